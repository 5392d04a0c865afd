// What a model computes is finite unless its parameters are damaged.
#pragma once

#include <span>
#include <string>

namespace qkv {

// Error{kFile} naming the model where a value is NaN or +inf. (-inf is what a mask leaves.)
void CheckFinite(std::span<const float> values, const std::string& model);

[[noreturn]] void FailNotFinite(const std::string& model);

}  // namespace qkv
