// The oracle: a set of options run by the library, compared with plain attention in double.
#pragma once

#include <string>

#include "support/option_set.h"

namespace qkv::test {

// Empty, or what is wrong and the line that runs it again. Everything that a set can be held to: out and lse
// within the bound, captures, nothing written between elements, and what lies in blocked keys without effect.
std::string CheckOptionSet(const OptionSet& set);

}  // namespace qkv::test
