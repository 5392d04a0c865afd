// JSON from files that nobody vouches for. Beyond what JSON itself demands (UTF-8, one value, nothing after
// it): no key twice in an object, and limits on size, depth and number of values, checked while reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace qkv {

struct JsonLimits {
  size_t max_bytes = size_t{64} << 20;  // of text: the largest tokenizers take about 35 MB
  size_t max_depth = 64;                // arrays and objects within each other
  size_t max_values = 8'000'000;        // in all: one takes 16 bytes or more, however short its text
};

// The object root[parent][key], where a file keeps a vocabulary: too many members to be worth building. Each is
// handed to `take` as it is read, and the result holds an empty object instead. Members must be integers from 0
// to 2^63 - 1; whether two have the same name is for `take` to find out.
struct JsonVocabulary {
  std::string_view parent, key;
  std::function<void(std::string& name, int64_t value)> take;
};

// Error{kFile} naming `where` (a file's name) and the place in it.
nlohmann::json ParseJson(std::string_view text, const std::string& where, const JsonLimits& limits = {});

nlohmann::json ParseJson(std::string_view text, const std::string& where, const JsonVocabulary& vocabulary,
                         const JsonLimits& limits = {});

// The first of them on a whole file.
nlohmann::json ReadJsonFile(const std::filesystem::path& path, const JsonLimits& limits = {});

// A value as a message may quote it: 'text', 1.5, "an array".
std::string QuoteJson(const nlohmann::json& value);

}  // namespace qkv
