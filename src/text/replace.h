#pragma once

#include <string>
#include <string_view>

namespace qkv {

// `from` is not empty; what was put in is not looked at again.
inline void ReplaceAll(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

}  // namespace qkv
