// Checks of single arguments; each throws one Error that names the argument, its shape and what was expected.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkv/error.h"
#include "qkv/tensor.h"

namespace qkv {

[[noreturn]] void FailArgument(const std::string& argument, const std::string& what, const std::string& expected,
                               const std::string& got);
[[noreturn]] void FailType(const std::string& argument, const std::string& expected, DType got);

// Sizes are not negative, their product and every reachable offset fit in 63 bits, data is there if it is not empty.
void CheckTensor(const std::string& argument, const ConstTensor& tensor);
void CheckShape(const std::string& argument, const ConstTensor& tensor, const Shape& expected);
void CheckDType(const std::string& argument, const ConstTensor& tensor, DType expected);

// No two indices share an element.
void CheckWritable(const std::string& argument, const ConstTensor& tensor);
// The memory from a tensor's lowest to its highest byte and the other's do not meet, or they lie side by side in the
// same rows.
void CheckApart(const std::string& argument, const ConstTensor& tensor, const std::string& other_argument,
                const ConstTensor& other);

// Right-aligned broadcasting as in numpy: size 1 or absent axes get stride 0.
ConstTensor BroadcastTo(const std::string& argument, const ConstTensor& tensor, const Shape& shape);

void CheckLengths(const std::string& argument, const std::vector<int64_t>& lengths, int64_t batch, int64_t most);
// batch + 1 ascending offsets from 0 to total.
void CheckOffsets(const std::string& argument, const std::vector<int64_t>& offsets, int64_t total);

}  // namespace qkv
