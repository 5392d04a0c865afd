// A file mapped read-only into memory: nothing is copied until it is touched.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace qkv {

class MappedFile {
 public:
  // Error{kFile} naming the path: missing, a folder, unreadable. An empty file gives an empty span.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace qkv
