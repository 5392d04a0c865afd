// What a text looks like in columns of a terminal, and how to show it without letting it act.
#pragma once

#include <string>
#include <string_view>

namespace qkv::view {

// Columns that a terminal uses: Chinese 2, combining marks 0, an emoji sequence 2. `text` is Visible().
int DisplayWidth(std::string_view text);

// The text with everything that acts instead of showing made harmless: line ends as an arrow, control
// characters as their symbols (ESC as U+241B), direction overrides, other invisible characters and non-characters as <U+202E>, invalid
// UTF-8 as U+FFFD.
std::string Visible(std::string_view text);

// At most that many characters of the text, with an ellipsis where it was cut: laying out text takes time, and
// one word can be a megabyte.
std::string Clipped(std::string_view text, int characters);

// The longest beginning of `text` that fits into `columns`, with an ellipsis where it was cut.
std::string FitWidth(std::string_view text, int columns);

}  // namespace qkv::view
