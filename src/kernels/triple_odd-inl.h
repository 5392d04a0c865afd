// What triples cannot stand for (OddOnes): queries are marked as they are packed, and scores of such queries or
// keys are made in float32, by the very chains of kernels/forward.cc. A score depends on its row and its key
// alone.

#if defined(QKV_KERNELS_TRIPLE_ODD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_TRIPLE_ODD_INL_H_
#undef QKV_KERNELS_TRIPLE_ODD_INL_H_
#else
#define QKV_KERNELS_TRIPLE_ODD_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/block.h"
#include "kernels/denormals-inl.h"
#include "kernels/keys-inl.h"
#include "kernels/multiply-inl.h"
#include "kernels/pair_softmax-inl.h"
#include "kernels/score-inl.h"
#include "kernels/triple_products-inl.h"
#include "kernels/weights-inl.h"
#include "qkv/tensor.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace qkv {
namespace HWY_NAMESPACE {

// Channels c ... c + count - 1 of a query, scaled.
inline void LoadQuery(const Layout& layout, const void* query, int64_t c, int64_t count, float* to) {
  const auto bytes = static_cast<int64_t>(SizeOf(layout.q_dtype)) * layout.q_channel;
  const void* from = static_cast<const std::byte*>(query) + c * bytes;
  LoadRow(layout, from, layout.q_channel, count, static_cast<float>(layout.scale), to);
}

// A query as triples, parts `depth` elements apart, over zeros. Returns whether some of it is odd.
inline bool PackTripleQuery(const Layout& layout, const void* query, int64_t depth, BFloat16* to) {
  HWY_ALIGN float numbers[kStrip];
  __mmask16 odd = 0;
  for (int64_t c = 0; c < layout.d; c += kStrip) {
    const int64_t count = std::min(kStrip, layout.d - c), padded = PaddedWidth(count, kPairDepth);
    LoadQuery(layout, query, c, count, numbers);
    std::fill(numbers + count, numbers + padded, 0.0f);
    for (int64_t i = 0; i < padded; i += kPairDepth) {
      const __m512 first = _mm512_load_ps(numbers + i), second = _mm512_load_ps(numbers + i + 16);
      odd |= OddOnes(first) | OddOnes(second);
      StoreTriples(first, second, to + c + i, depth);
    }
  }
  return odd != 0;
}

// Where products are of numbers as they are, there is nothing to replace.
template <int64_t kParts>
class OddScores {
 public:
  OddScores(const Block&, const KeyTile&, const Item&, const Parts<kParts>&) {}
  void Replace(int64_t, float*, int64_t) const {}
};

template <>
class OddScores<kTripleParts> {
 public:
  OddScores(const Block& block, const KeyTile& tile, const Item& item, const Parts<kTripleParts>& parts)
      : block_(block), tile_(tile), item_(item), queries_(parts.odd + item.row) {
    any_ = tile.finite_keys == Values::kSomeNotFinite;
    for (int64_t r = 0; r < item.rows; ++r) any_ = any_ || queries_[r] != 0;
  }

  // In the scores of a column of keys, from `key` on.
  void Replace(int64_t key, float* scores, int64_t stride) const {
    if (HWY_UNLIKELY(any_)) ReplaceSome(key, scores, stride);
  }

 private:
  HWY_NOINLINE void ReplaceSome(int64_t key, float* scores, int64_t stride) const {
    const DenormalsAreNumbers mode;
    HWY_ALIGN float plain[kPairGroupRows * kColumn];
    const uint32_t odd_keys = Multiply(key, plain);
    for (int64_t r = 0; r < item_.rows; ++r) {
      for (int64_t j = 0; j < kColumn; ++j) {
        if (queries_[r] != 0 || (odd_keys >> j & 1) != 0) scores[r * stride + j] = plain[r * kColumn + j];
      }
    }
  }

  // Scores in float32, kColumn apart. Returns which of the keys are odd.
  uint32_t Multiply(int64_t key, float* plain) const {
    HWY_ALIGN float queries[kPairGroupRows * kDepthStep];
    HWY_ALIGN float keys[kDepthStep * kColumn];
    uint32_t odd_keys = 0;
    for (int64_t c = 0; c < block_.layout->d; c += kDepthStep) {
      const int64_t depth = std::min(kDepthStep, block_.layout->d - c);
      PackKeys(tile_.first + key, c, depth, keys);
      for (int64_t i = 0; i < depth; ++i) {
        odd_keys |= OddOnes(_mm512_load_ps(keys + i * kColumn));
        odd_keys |= uint32_t{OddOnes(_mm512_load_ps(keys + i * kColumn + 16))} << 16;
      }
      for (int64_t r = 0; r < item_.rows; ++r) {
        LoadQuery(*block_.layout, block_.rows[item_.row + r].q, c, depth, queries + r * kDepthStep);
      }
      for (int64_t r = 0; r < item_.rows; r += kTileRows) {
        MultiplyPanel(std::min<int64_t>(kTileRows, item_.rows - r), kColumn, depth, queries + r * kDepthStep,
                      kDepthStep, keys, kColumn, plain + r * kColumn, kColumn,
                      c == 0 ? Start::kZero : Start::kAdd);
      }
    }
    return odd_keys;
  }

  void PackKeys(int64_t key, int64_t c, int64_t depth, float* to) const {
    const Strided& k = block_.key_values->k;
    for (int64_t j = 0; j < kColumn; j += Lanes()) {
      const int64_t count = std::max<int64_t>(block_.key_values->length - key - j, 0);
      switch (k.dtype) {
        case DType::kBF16: PackKeyStrip<BFloat16>(k, key + j, count, c, depth, to + j, kColumn); break;
        case DType::kF16: PackKeyStrip<Float16>(k, key + j, count, c, depth, to + j, kColumn); break;
        case DType::kI8: PackKeyStrip<int8_t>(k, key + j, count, c, depth, to + j, kColumn); break;
        default: PackKeyStrip<float>(k, key + j, count, c, depth, to + j, kColumn); break;
      }
    }
  }

  const Block& block_;
  const KeyTile& tile_;
  const Item& item_;
  const int32_t* queries_;
  bool any_;
};

// The same as OddOnes of one number.
inline bool IsOdd(float number) {
  const float size = std::abs(number);
  return number != 0.0f && !(size >= 0x1p-102f && size <= 0x1p60f);
}

// What packing left out of the values.
template <int64_t kParts, class WeightOf>
void AddValuesLeftOut(const BlockPart& part, int64_t tile_first, Range keys, float* out, int64_t out_stride,
                      const WeightOf& weight_of) {
  if constexpr (kParts == kTripleParts)
    AddLeftOut(part, tile_first, keys, out, out_stride, &IsOdd, weight_of);
  else
    AddNotFinite(part, tile_first, keys, out, out_stride, weight_of);
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_POP_ATTRIBUTES

#endif  // include guard
