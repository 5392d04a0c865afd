// A block: up to kMaxBlockRows query rows that share a KV head, the unit of work of the forward and capture kernels.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/pack.h"
#include "kernels/problem.h"
#include "runtime/aligned.h"

namespace qkv {

struct Block {
  const Row* rows = nullptr;
  int64_t count = 0;
  const Layout* layout = nullptr;
  const ScoreRules* rules = nullptr;
  const KeyValues* key_values = nullptr;
};

// Keys first ... first + kKeyTile - 1 of the block's KV head, packed (kernels/pack.h).
struct KeyTile {
  int64_t first = 0;
  const float* keys = nullptr;
  const float* values = nullptr;  // not read by capture
  Values finite = Values::kFinite;
};

// Sums of a row's softmax over some keys: out = sum_j exp(s_j - max) v_j, sum = sum_j exp(s_j - max).
// No visible key: max -inf, sum 0, out 0.
struct Sums {
  float* max = nullptr;  // (rows)
  float* sum = nullptr;  // (rows)
  float* out = nullptr;  // (rows, Dv), rows apart as ScratchSizes says
};

// What a kernel works in for the blocks of a call, in floats.
struct ScratchSizes {
  int64_t rows = 0;  // of sums
  int64_t queries = 0, scores = 0;
  int64_t out_stride = 0;  // from a row of Sums::out to the next
  int64_t streamed = 0;    // packed keys or values of a streamed block
  bool operator==(const ScratchSizes&) const = default;
};

// What a thread works in; sized once for the largest block of a call.
class Scratch {
 public:
  explicit Scratch(const ScratchSizes& sizes);

  float* queries() { return queries_.data(); }  // the float32 kernels': (rows, D), scaled
  float* scores() { return scores_.data(); }    // the float32 kernels': (rows, kKeyTile), rows kScoreStride apart
  float* streamed() { return streamed_.data(); }
  Sums split() { return {split_stats_.data(), split_stats_.data() + rows_, split_out_.data()}; }
  Sums total() { return {total_stats_.data(), total_stats_.data() + rows_, total_out_.data()}; }
  int64_t out_stride() const { return out_stride_; }

  // What a split left is all there is so far.
  void TakeSplitAsTotal() {
    std::swap(split_stats_, total_stats_);
    std::swap(split_out_, total_out_);
  }

 private:
  int64_t rows_, out_stride_;
  AlignedBuffer<float> queries_, scores_, split_stats_, split_out_, total_stats_, total_out_, streamed_;
};

struct ForwardKernels {
  ScratchSizes (*scratch)(int64_t rows, const Layout& layout) noexcept;  // for blocks of up to so many rows
  // Loads and scales the block's queries; sets the total to what the sinks alone give. Returns kSomeNotFinite where the
  // kernel's products do not take the queries as they are (kernels/triples.h).
  Values (*begin)(const Block& block, Scratch& scratch) noexcept;
  // Sets the split's sums to nothing; adds a tile of keys to them; adds `from` (rows, out_stride) to the total.
  void (*begin_split)(const Block& block, Scratch& scratch) noexcept;
  void (*add_tile)(const Block& block, const KeyTile& tile, Scratch& scratch) noexcept;
  // The same, with keys and values read where they lie: for blocks of at most kStreamedRows rows.
  void (*stream_tile)(const Block& block, int64_t tile_first, Scratch& scratch) noexcept;
  void (*merge)(const Block& block, const Sums& from, Scratch& scratch) noexcept;
  // Writes out and lse from the total, and uses up its `out`. After it, max and sum are what capture takes.
  void (*finish)(const Block& block, Scratch& scratch) noexcept;
  int64_t row_group;  // rows that are multiplied together: blocks are whole groups
};

ForwardKernels ForwardKernelsFor(Isa isa);  // in float32, whatever the types

}  // namespace qkv
