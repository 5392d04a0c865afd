// Whether a model's files hold as many layers as its configuration gives.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace qkv {

// A layer that is missing is an error where its tensors are read. Error{kFile} for one beyond them, which
// nothing would read: the model would compute something else than its files are made for. has: whether the
// files hold a layer; where: names the first one's tensor.
void RefuseMoreLayers(const std::function<bool(int64_t layer)>& has, int64_t layers, const std::string& where);

}  // namespace qkv
