// What happens to weights, whatever kernel made them: dropout, and values that are not finite.

#if defined(QKV_KERNELS_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_WEIGHTS_INL_H_
#undef QKV_KERNELS_WEIGHTS_INL_H_
#else
#define QKV_KERNELS_WEIGHTS_INL_H_
#endif

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/block.h"
#include "kernels/load.h"
#include "kernels/score-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

inline void DropWeights(const ScoreRules& rules, const Row& row, int64_t tile_first, Range span, float* p) {
  const float scale = static_cast<float>(rules.dropout_scale);
  for (int64_t j = span.first; j < span.last; j += 4) {  // tiles and spans begin at multiples of 4
    const unsigned kept = rules.dropout->KeptOfFour(row.batch, row.head, row.position, (tile_first + j) / 4);
    for (int64_t l = 0; l < 4; ++l) p[j + l] = (kept >> l) & 1 ? p[j + l] * scale : 0.0f;
  }
}

// Some rows of a block.
struct BlockPart {
  const Block& block;
  int64_t first, count;
};

// Packing made zeros of the values that are not finite; rows that see them get them here. A weight that underflowed
// to zero is still positive: infinity stays infinity. keys: of the tile; weight(r, j): of row r of the block.
template <class WeightOf>
void AddNotFinite(const BlockPart& part, int64_t tile_first, Range keys, float* out, int64_t out_stride,
                  const WeightOf& weight_of) {
  const Block& block = part.block;
  const int64_t last = std::min(keys.last, block.key_values->length - tile_first);
  for (int64_t j = keys.first; j < last; ++j) {
    const int64_t key = tile_first + j;
    for (int64_t c = 0; c < block.layout->dv; ++c) {
      const float value = static_cast<float>(LoadDouble(block.key_values->v, key, c));
      if (std::isfinite(value)) continue;
      for (int64_t r = part.first; r < part.first + part.count; ++r) {
        const Row& row = block.rows[r];
        if (!IsVisible(*block.rules, row, key)) continue;
        const auto& dropout = block.rules->dropout;
        if (dropout && !dropout->Kept(row.batch, row.head, row.position, key)) continue;
        const float weight = weight_of(r, j);
        out[r * out_stride + c] += (weight == 0.0f ? FLT_MIN : weight) * value;
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
