// Whole files or none.
#pragma once

#include <filesystem>
#include <string_view>

namespace qkv::view {

// Writes beside the file and renames, so that a full disk leaves the old file, or none. What is not a regular
// file (/dev/stdout, a pipe) is written as it is. Error{kIo} naming the file.
void WriteWholeFile(const std::filesystem::path& file, std::string_view bytes);

}  // namespace qkv::view
