// JSON from files that nobody vouches for. Beyond what JSON itself demands (UTF-8, one value, nothing after
// it): no key twice in an object, and limits on size, depth and number of values, checked while reading.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace qkv {

struct JsonLimits {
  size_t max_bytes = size_t{64} << 20;  // of text: the largest tokenizers take about 35 MB
  size_t max_depth = 64;                // arrays and objects within each other
  size_t max_values = 8'000'000;        // in all: one takes 16 bytes or more, however short its text
};

// Error{kFile} naming `where` (a file's name) and the place in it.
nlohmann::json ParseJson(std::string_view text, const std::string& where, const JsonLimits& limits = {});

// The same of a whole file.
nlohmann::json ReadJsonFile(const std::filesystem::path& path, const JsonLimits& limits = {});

// A value as a message may quote it: 'text', 1.5, "an array".
std::string QuoteJson(const nlohmann::json& value);

}  // namespace qkv
