// Values of options, parsed strictly: what is not wholly right is an Error{kInvalidArgument} naming the option.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "qkv/tensor.h"

namespace qkv::cli {

// Decimal digits and nothing else; no value for anything else or where it does not fit.
std::optional<int64_t> ParseWhole(std::string_view text);

int64_t ParseCount(const std::string& option, const std::string& text, int64_t least, int64_t most);
double ParseReal(const std::string& option, const std::string& text);  // a finite number

void UseThreads(const std::string& text);  // the value of --threads
void CheckThreadVariable();  // QKV_NUM_THREADS, whose value the library ignores where it is no number of threads

// "f32", "bf16" or "f16", where it is a known one of them.
DType ParseDType(const std::string& option, const std::string& name,
                 const std::vector<DType>& known = {DType::kF32, DType::kBF16});

// "3,5-7": whole numbers and ranges of them, counted from 0.
class IndexList {
 public:
  IndexList() = default;  // all
  IndexList(std::string option, const std::string& text);

  // The numbers, ascending, each once. Empty: all. Error where one is not below `size`, the number of `things`.
  std::vector<int64_t> Resolve(int64_t size, const char* things) const;

 private:
  std::string option_;
  std::vector<std::pair<int64_t, int64_t>> ranges_;  // first and last
};

}  // namespace qkv::cli
