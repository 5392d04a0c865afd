// Whole files or none.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace qkv {

// Writes beside the file, and Commit() renames: until then the old file, or none, is what others see, whether
// the disk is full or the process is killed. What is not a regular file (/dev/stdout, a pipe) is written as it
// is.
class FileWriter {
 public:
  // Error{kIo} naming the file, from every call.
  explicit FileWriter(const std::filesystem::path& file);
  ~FileWriter();  // without Commit() it leaves no trace
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void Write(std::span<const std::byte> bytes);
  void Write(std::string_view text) { Write(std::as_bytes(std::span(text))); }
  void Commit();  // on the disk, under its name

 private:
  void Close();
  [[noreturn]] void Fail(int error) const;

  std::filesystem::path file_, target_;  // as the caller names it, and where that leads
  std::string beside_;                   // the temporary file; empty where written in place
  int descriptor_ = -1;
};

void WriteWholeFile(const std::filesystem::path& file, std::string_view bytes);

// What killed FileWriters of this file left beside it. Nobody may be writing it now.
void RemoveUnfinished(const std::filesystem::path& file);

}  // namespace qkv
