#include "cli/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "cli/exit_status.h"
#include "qkv/error.h"
#include "runtime/threads.h"

namespace qkv::cli {

std::optional<int64_t> ParseWhole(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // from_chars takes a minus sign.
  if (error != std::errc() || end != text.data() + text.size() || text.front() == '-') return {};
  return value;
}

int64_t ParseCount(const std::string& option, const std::string& text, int64_t least, int64_t most) {
  const std::optional<int64_t> value = ParseWhole(text);
  if (!value || *value < least || *value > most) {
    const bool too_large = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos && !value;
    const std::string range = most == INT64_MAX && !too_large ? fmt::format("a whole number of at least {}", least)
                                                : fmt::format("a whole number from {} to {}", least, most);
    throw Error(ErrorCode::kInvalidArgument, "bad number", option, range, Quote(text));
  }
  return *value;
}

namespace {

constexpr int64_t kMostThreads = 1024;  // far above it the system cannot make them, and OpenMP gives up loudly

std::string ShortName(DType dtype) {
  return dtype == DType::kF32 ? "f32" : dtype == DType::kBF16 ? "bf16" : "f16";
}

}  // namespace

void UseThreads(const std::string& text) {
  SetThreads(static_cast<int>(ParseCount("--threads", text, 1, kMostThreads)));
}

void CheckThreadVariable() {
  const char* text = std::getenv("QKV_NUM_THREADS");
  if (text != nullptr && *text != '\0') ParseCount("QKV_NUM_THREADS", text, 1, kMostThreads);
}

DType ParseDType(const std::string& option, const std::string& name, const std::vector<DType>& known) {
  std::string names;
  for (const DType dtype : known) {
    if (name == ShortName(dtype)) return dtype;
    names += (names.empty() ? "" : dtype == known.back() ? " or " : ", ") + ShortName(dtype);
  }
  throw Error(ErrorCode::kInvalidArgument, "unknown type", option, names, Quote(name));
}

double ParseReal(const std::string& option, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    throw Error(ErrorCode::kInvalidArgument, "bad number", option, "a number such as 0.8", Quote(text));
  }
  return value;
}

IndexList::IndexList(std::string option, const std::string& text) : option_(std::move(option)) {
  for (size_t start = 0; start <= text.size();) {
    const size_t comma = std::min(text.find(',', start), text.size());
    const std::string_view item = std::string_view(text).substr(start, comma - start);
    const size_t dash = item.find('-');
    const std::optional<int64_t> first = ParseWhole(item.substr(0, dash));
    const std::optional<int64_t> last =
        dash == std::string_view::npos ? first : ParseWhole(item.substr(dash + 1));
    if (!first || !last || *last < *first) {
      throw Error(ErrorCode::kInvalidArgument, "bad list", option_, "whole numbers and ranges such as 3,5-7",
                  Quote(text));
    }
    ranges_.emplace_back(*first, *last);
    start = comma + 1;
  }
}

std::vector<int64_t> IndexList::Resolve(int64_t size, const char* things) const {
  std::vector<bool> chosen(size);
  for (const auto& [first, last] : ranges_) {
    if (last >= size) {
      throw Error(ErrorCode::kInvalidArgument, "out of range", option_,
                  fmt::format("0 to {} (the model has {} {})", size - 1, size, things), std::to_string(last));
    }
    std::fill(chosen.begin() + first, chosen.begin() + last + 1, true);
  }
  std::vector<int64_t> numbers;
  for (int64_t number = 0; number < size; ++number) {
    if (chosen[number]) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace qkv::cli
