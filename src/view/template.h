// A page's text with its places {{name}} filled in.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace qkv::view {

// part(name) gives what belongs there; it is put in as it is, never searched again.
std::string FillTemplate(std::string_view text, const std::function<std::string_view(std::string_view)>& part);

}  // namespace qkv::view
