// The golden files of tests/golden/text, made by make.py there from the reference.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "qkv/tokenizer.h"
#include "runtime/json.h"

namespace qkv::test {

inline nlohmann::json ReadGolden(const std::string& name) {
  return ReadJsonFile(std::filesystem::path(QKV_GOLDEN) / "text" / name);
}

inline std::vector<int64_t> FlatSpans(const Encoding& encoding) {
  std::vector<int64_t> flat;
  for (const auto& [first, last] : encoding.span) flat.insert(flat.end(), {first, last});
  return flat;
}

// FNV-1a over the ids as 32-bit little-endian numbers, in hexadecimal.
inline std::string Checksum(const std::vector<int64_t>& ids) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const int64_t id : ids)
    for (int shift = 0; shift < 32; shift += 8)
      hash = (hash ^ (static_cast<uint64_t>(id) >> shift & 0xFF)) * 0x100000001b3;
  char text[17];
  std::snprintf(text, sizeof text, "%016lx", static_cast<unsigned long>(hash));
  return text;
}

// One text with all that the reference says of it.
inline void ExpectCase(const Tokenizer& tokenizer, const nlohmann::json& expected) {
  const std::string text = expected.at("text");
  SCOPED_TRACE("text: " + text.substr(0, 200));
  const Encoding encoding = tokenizer.Encode(text);
  EXPECT_EQ(encoding.ids, expected.at("ids").get<std::vector<int64_t>>());
  EXPECT_EQ(encoding.tokens, expected.at("tokens").get<std::vector<std::string>>());
  EXPECT_EQ(FlatSpans(encoding), expected.at("spans").get<std::vector<int64_t>>());
  EXPECT_EQ(tokenizer.Decode(encoding.ids), expected.at("decoded").get<std::string>());
  for (const size_t size : {encoding.labels.size(), encoding.continues.size(), encoding.special.size()})
    EXPECT_EQ(size, encoding.ids.size());
}

}  // namespace qkv::test
