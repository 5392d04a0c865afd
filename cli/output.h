// Where results go: standard output and notes. Every write is checked.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace qkv::cli {

// The reader of standard output has closed its end: nothing more to do, and no failure.
struct ReaderGone {};

// Buffered standard output. Flush it at the end: what a destructor finds out can no longer be reported.
class StandardOutput {
 public:
  void Write(std::string_view text);  // Error{kIo} for a full disk and the like; ReaderGone
  void Flush();

 private:
  std::string buffer_;
};

void PrintText(std::string_view text);  // all of it to standard output

// One line on standard error, made printable. A standard error that is gone is no reason to fail.
void PrintNote(std::string_view line);

// Error{kIo} where this file could not be written: a folder, no parent folder, no permission.
void CheckWritable(const std::filesystem::path& file);

}  // namespace qkv::cli
