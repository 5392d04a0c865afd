// What the tests of formats share: making files, and the messages of errors.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "qkv/error.h"

namespace qkv::test {

inline const std::filesystem::path kGolden = std::filesystem::path(QKV_GOLDEN) / "formats";

// A .safetensors file's bytes, with the header's true length.
inline std::string FileBytes(std::string_view header, std::string_view data = {}) {
  const uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes.append(header).append(data);
}

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// A folder of its own, removed at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string name = testing::TempDir() + "qkv_formats_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path Write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// As qkv/model.h's ModelsFolder, which formats may not use.
inline std::filesystem::path InstalledModel(const char* name) {
  const auto from = [](const char* variable) {
    return std::filesystem::path(std::getenv(variable) ? std::getenv(variable) : "");
  };
  if (!from("QKV_MODELS").empty()) return from("QKV_MODELS") / name;
  if (!from("XDG_DATA_HOME").empty()) return from("XDG_DATA_HOME") / "qkv/models" / name;
  return from("HOME") / ".local/share/qkv/models" / name;
}

// The message of the qkv::Error{kFile} that `call` throws; "no error" where it throws none.
template <class Call>
std::string FileError(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFile) << error.what();
    return error.what();
  }
  return "no error";
}

}  // namespace qkv::test
