// Where tests find the models: a test that needs one fails without it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace qkv::test {

// $QKV_MODELS/NAME, else $XDG_DATA_HOME/qkv/models/NAME, else ~/.local/share/qkv/models/NAME.
inline std::filesystem::path ModelFolder(const std::string& name) {
  const auto from = [](const char* variable) {
    const char* value = std::getenv(variable);
    return std::filesystem::path(value == nullptr ? "" : value);
  };
  if (!from("QKV_MODELS").empty()) return from("QKV_MODELS") / name;
  const auto data = from("XDG_DATA_HOME").is_absolute() ? from("XDG_DATA_HOME") : from("HOME") / ".local/share";
  return data / "qkv/models" / name;
}

}  // namespace qkv::test
