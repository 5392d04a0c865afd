// The oracle of gradients: a set of options run forward and backward by the library, compared with plain
// gradients in double.
#pragma once

#include <string>
#include <vector>

#include "support/option_set.h"

namespace qkv::test {

// Empty, or what is wrong and the line that runs it again: all gradients within the bound, nothing written
// between elements, and what lies in keys and rows that nothing sees without effect.
std::string CheckBackward(const OptionSet& set);

// All gradients that the library gives, one after the other; planted keys hold zeros.
std::vector<double> LibraryGradients(const OptionSet& set);

}  // namespace qkv::test
