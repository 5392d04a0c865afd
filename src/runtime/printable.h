// Text from files as it may stand in a message or a table: on one line, without control characters, not too
// long.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace qkv {

// Valid UTF-8 stays; control characters (C0, DEL, C1), line separators, direction overrides and bytes that are
// not UTF-8 become escapes: \n, \x1b, \u202e, \xff; a backslash is doubled. Text over `limit` bytes is cut:
// "abc…".
std::string Printable(std::string_view text, size_t limit = 200);

}  // namespace qkv
