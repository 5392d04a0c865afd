// Keys and values kept from call to call: what a decoder attends to as it reads and writes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "qkv/attention.h"
#include "qkv/export.h"
#include "qkv/tensor.h"

namespace qkv {

struct KVCacheConfig {
  int64_t batch = 1, kv_heads = 1;
  int64_t d = 0, dv = 0;           // head sizes of K and V
  DType dtype = DType::kF32;       // float32, bfloat16, float16; int8: one scale per token and head (below)
  int64_t capacity = 0;            // tokens a sequence may hold; with a window, tokens that are kept
  std::optional<int64_t> page;     // tokens of a page; none: each sequence is one page
  std::optional<int64_t> window;   // sliding window of W tokens, the query's own among them: attending sees no
                                   // others, and appending past the capacity drops the oldest tokens
};

// One object is for one thread at a time. Lengths, positions and masks count every token ever appended, dropped ones
// too. Whatever the layout, attending gives the bits of one call over the same keys; chunks of a windowed cache need
// capacity >= window + chunk - 1 for that, since a chunk's first query looks back that far.
//
// int8: x is kept as round(x / scale), scale = max|x| / 127 over the token's head; attending equals float32
// attention over the dequantised cache.
class QKV_API KVCache {
 public:
  // Error{kInvalidArgument}: sizes below 1, a window larger than the capacity; kWrongType; kOutOfMemory.
  explicit KVCache(const KVCacheConfig& config);
  ~KVCache();
  KVCache(KVCache&&) noexcept;
  KVCache& operator=(KVCache&&) noexcept;

  const KVCacheConfig& config() const;
  const std::vector<int64_t>& lengths() const;  // of each sequence, all tokens ever appended and not trimmed
  int64_t bytes() const;                        // of the pages

  // k (B, Hkv, T, D), v (B, Hkv, T, Dv), any strides; float32 where the cache is int8 or 16 bit (rounded to it), or
  // the cache's own type. counts (B), where given: how many of the T tokens each sequence takes, from the first.
  // Errors before anything is changed: kInvalidArgument (shapes, a full cache, int8 of a value that is not finite),
  // kWrongType.
  void Append(const ConstTensor& k, const ConstTensor& v, const std::vector<int64_t>* counts = nullptr);

  // out (B, Hq, Tq, Dv) = attention of q (B, Hq, Tq, D) over the cache. As qkv::Attention, where kv_lengths and the
  // packed form are the cache's own business and refused, and window.left where the cache has a window; mask and
  // bias broadcast to (B, Hq, Tq, longest length).
  // q: float32, or the cache's type.
  void Attend(const ConstTensor& q, const AttentionOptions& options, const Tensor& out,
              const Tensor* lse = nullptr) const;

  // Makes sequence `to` a copy of sequence `from`: pages are shared until one of the two appends to them.
  void Fork(int64_t from, int64_t to);

  // Forgets the tokens from `length` on. Error{kInvalidArgument}: longer than it is, or what a ring has dropped.
  void Trim(int64_t sequence, int64_t length);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace qkv
