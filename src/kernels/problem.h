// What a kernel is given: plain pointers, strides and ranges. Validation and planning (src/attention) fill these
// in, so kernels check nothing. Strides are in elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "qkv/tensor.h"
#include "runtime/random.h"

namespace qkv {

// Key tiles begin at absolute multiples of kKeyTile keys, and a row's sums are merged at absolute multiples of
// kSplitKeys, whatever the batch, chunk or thread: that is what makes a row's bits depend on itself alone.
inline constexpr int64_t kKeyTile = 512;     // 128 KiB of packed keys at D = 64: a tile of K, V and scores fit in L2
inline constexpr int64_t kSplitKeys = 1024;  // 2 tiles: fine enough to share one long sequence among 64 threads
inline constexpr int64_t kMaxBlockRows = 96; // 16 groups of 6 rows: scores 198 KiB
inline constexpr int64_t kStreamedRows = 16;  // a block of no more reads its keys where they lie (attention/forward.cc)
inline constexpr int64_t kScoreStride = kKeyTile + 16;  // of a row of scores: off the powers of two, which share cache sets

// Where a cache keeps the keys of a sequence: key j is number j mod keys_per_page of page (j div keys_per_page) mod
// page_count. More keys than the pages hold is a ring: the oldest have been overwritten.
struct PageTable {
  std::vector<std::byte*> pages;
  int64_t keys_per_page = 1;
};

// K or V of one KV head. In one piece: channel c of key j is at data + j * key + c * channel. In pages: at the same
// place relative to byte `page_offset` of the key's page, j counted within the page; int8 elements have one float32
// scale per key, from byte `scale_offset`.
struct Strided {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t key = 0, channel = 1;
  const PageTable* table = nullptr;
  int64_t page_offset = 0, scale_offset = 0;

  const std::byte* Page(int64_t j) const {
    return table->pages[static_cast<size_t>(j / table->keys_per_page) % table->pages.size()];
  }
  template <class T> const T* Key(int64_t j) const {
    if (table == nullptr) return static_cast<const T*>(data) + j * key;
    return reinterpret_cast<const T*>(Page(j) + page_offset) + j % table->keys_per_page * key;
  }
  float Scale(int64_t j) const {
    return reinterpret_cast<const float*>(Page(j) + scale_offset)[j % table->keys_per_page];
  }
};

// The keys and values of one KV head of one sequence.
struct KeyValues {
  Strided k, v;
  int64_t length = 0;  // keys
};

// What turns a scaled dot product into the score that enters the softmax, the same for all rows of a call.
struct ScoreRules {
  std::optional<float> softcap;
  bool has_alibi = false;
  bool has_mask = false;
  int64_t mask_key = 0;    // stride of the mask along keys
  bool has_bias = false;
  DType bias_dtype = DType::kF32;
  int64_t bias_key = 0;
  std::optional<DropoutBits> dropout;
  double dropout_scale = 1;  // 1 / (1 - p); a double, as the scale, for float64 inputs
};

// One query of one head.
struct Row {
  int64_t batch = 0, head = 0, query = 0;  // where it stands in the call
  int64_t position = 0;                    // p = query + offset
  int64_t first = 0, last = 0;             // keys [first, last) pass causal, window and length
  const void* q = nullptr;
  void* out = nullptr;
  float* lse = nullptr;                    // or null
  const uint8_t* mask = nullptr;           // (b, h, i, 0): 0 blocks, whatever the bytes of true are
  const void* bias = nullptr;              // (b, h, i, 0)
  float slope = 0;                         // ALiBi's
  const float* sink = nullptr;             // the head's, or null
};

// What the sums of exponentials are for. The output needs no more than the weights' own accuracy; a log-sum-exp and
// captured weights want them to float32's.
enum class RowSums { kForOutput, kExact };

// Sizes and layouts shared by all rows of a call.
struct Layout {
  int64_t d = 0, dv = 0;
  double scale = 1;
  DType q_dtype = DType::kF32;   // of q and out
  int64_t q_channel = 1, out_channel = 1;
  RowSums row_sums = RowSums::kForOutput;
};

}  // namespace qkv
