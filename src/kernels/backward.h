// Gradients of attention for one block of rows and one tile of keys at a time: kernels of the backward pass.
//
//   S = Q K^T    P = exp(S - lse)    dP = dO V^T    dS = P o (dP - delta)    dV += P^T dO    dK += dS^T Q    dQ
//   += dS K
#pragma once

#include <cstdint>

#include "kernels/block.h"
#include "kernels/pack.h"
#include "kernels/problem.h"
#include "runtime/aligned.h"
#include "runtime/cpu.h"

namespace qkv {

// Keys of a tile: 96 rows of P and dS are 204 KiB, packed K, V, dK and dV at D = 64 another 320 KiB: half of a
// 1 MiB second level, beside the rows themselves.
inline constexpr int64_t kBackwardKeys = 256;
inline constexpr int64_t kBackwardStride = kBackwardKeys + 16;  // of a row of P or dS: off the powers of two

// A row's gradients by its own outputs, and what its weights are recomputed from.
struct RowStatistic {
  float base = 0;   // lse, or 0 for a row that sees nothing
  float delta = 0;  // rowsum(dO o O) - dlse
  float lost = 1;   // what RowExp's weights under the base must be multiplied by to be exp(s - base)
};

struct BackwardRow {
  const void* dout = nullptr;  // (Dv), q's type
  RowStatistic statistic;
  float* dq = nullptr;        // (D), contiguous, added to
  float* dbias = nullptr;     // of key 0, or null; added to
  float* bias_sum = nullptr;  // the row's sum of dS, or null; added to
};

struct BackwardBlock {
  Block block;
  const BackwardRow* rows = nullptr;  // as many as the block's
  const float* prepared = nullptr;    // what prepare_rows made of them
  Values finite = Values::kFinite;    // what it returned
  int64_t dout_channel = 1;
  int64_t dbias_key = 0;  // stride
};

// Keys first ... first + count - 1 of a KV head; count may be 0. `held`: as many have gradients, those past the
// length too.
struct BackwardTile {
  const KeyValues* key_values = nullptr;
  int64_t first = 0, count = 0, held = 0;
};

// Where a tile's gradients go: rows of any type and stride, key first + n at data + n * row * size.
struct GradientRows {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t row = 0, channel = 1;
};

// What a thread works in; sized once for a call.
struct BackwardScratch {
  const Layout& layout;
  const ScoreRules& rules;
  AlignedBuffer<float> memory;    // laid out by the kernels
  AlignedBuffer<float> prepared;  // rows of a block that only this thread's tile reads
};

struct BackwardKernels {
  PackKernels pack;
  int64_t block_rows;  // of all blocks but a head's last
  int64_t (*scratch_floats)(const Layout& layout) noexcept;
  // The statistic of a row whose dlse is given.
  RowStatistic (*statistic)(const Layout& layout, const Row& row, const void* dout, int64_t dout_channel,
                            float dlse) noexcept;
  // Every tile reads the rows that see it: what it reads is made once, of q and dO. Returns whether all of it is finite.
  int64_t (*prepared_floats)(const Layout& layout, int64_t rows) noexcept;  // for a block, whole cache lines
  Values (*prepare_rows)(const BackwardBlock& block, float* prepared) noexcept;
  // Packs the tile and sets its gradients to zero.
  void (*begin_tile)(const BackwardTile& tile, const PackKernels& pack, BackwardScratch& scratch) noexcept;
  // Adds the block's part to dK, dV and dbias; leaves its part of dQ, without the scale, and of the sums of dS
  // in the scratch. Returns whether there is any.
  bool (*add_block)(const BackwardBlock& block, const BackwardTile& tile, BackwardScratch& scratch) noexcept;
  // Adds those parts to the rows'.
  void (*add_rows)(const BackwardBlock& block, BackwardScratch& scratch) noexcept;
  // Writes the tile's gradients.
  void (*store_tile)(const BackwardTile& tile, const GradientRows& dk, const GradientRows& dv,
                     BackwardScratch& scratch) noexcept;
  // Writes `count` rows of `channels` floats, `stride` apart.
  void (*store)(const float* from, int64_t stride, int64_t count, int64_t channels,
                const GradientRows& to) noexcept;
};

BackwardKernels BackwardKernelsFor(Isa isa);  // in float32, whatever the types

}  // namespace qkv
