// The text that a command works on: an argument, a file or standard input.
#pragma once

#include <optional>
#include <string>

namespace qkv::cli {

// Exactly one of them must be given; "-" is standard input. The last line end of a file is no part of the text.
// Error{kInvalidArgument} for none, both or far too much, kFile for what cannot be read.
// command: its name, whose help an error points to.
std::string ReadText(const std::optional<std::string>& text, const std::optional<std::string>& file,
                     const char* command);

}  // namespace qkv::cli
