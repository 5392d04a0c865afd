// The plan of a call: its rows cut into blocks, and where their keys are packed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attention/problem.h"
#include "kernels/block.h"
#include "kernels/pack.h"
#include "runtime/aligned.h"

namespace qkv {

// A KV head of a sequence and the query rows that read it: the rows of its `group` query heads, query by query
// (row r is query r div group of head kv_head * group + r mod group), so that heads that share keys run together.
struct HeadJob {
  const Problem* problem = nullptr;
  const Sequence* sequence = nullptr;
  int64_t kv_head = 0;
  KeyValues key_values;
  std::shared_ptr<const std::vector<int64_t>> picked;  // numbers of these rows among all, ascending; null: all
  int64_t rows = 0;
  int64_t block_rows = 1;

  int64_t blocks() const { return (rows + block_rows - 1) / block_rows; }
  int64_t tiles() const { return (key_values.length + kKeyTile - 1) / kKeyTile; }
  int64_t splits() const { return (key_values.length + kSplitKeys - 1) / kSplitKeys; }
  int64_t number(int64_t r) const { return picked == nullptr ? r : (*picked)[static_cast<size_t>(r)]; }
  void MakeRow(int64_t r, Row& row) const;
};

// picked: the rows of each job.
std::vector<HeadJob> MakeJobs(const Problem& problem, std::shared_ptr<const std::vector<int64_t>> picked = nullptr);

// A job with some of the rows that another has: `numbers` of those, ascending.
HeadJob WithRows(const HeadJob& job, const std::vector<int64_t>& numbers);

// The rows of one block, and the block itself; the rows live here.
class BlockRows {
 public:
  BlockRows(const HeadJob& job, int64_t block);
  const Block& block() const { return block_; }
  const std::vector<Row>& rows() const { return rows_; }
  // Tiles [first, last) hold all that the rows see.
  int64_t first_tile() const { return first_tile_; }
  int64_t last_tile() const { return last_tile_; }
  // Keys [first, last) that the rows see, and maybe others between.
  int64_t first_key() const { return first_key_; }
  int64_t last_key() const { return last_key_; }

 private:
  std::vector<Row> rows_;
  Block block_;
  int64_t first_tile_ = 0, last_tile_ = 0, first_key_ = 0, last_key_ = 0;
};

enum class Parts { kKeys, kKeysAndValues };

// What packing found out about a tile.
struct Found {
  Values keys = Values::kFinite, values = Values::kFinite;
};

// A head's keys, and values where asked, packed tile by tile into memory of the caller's.
class PackedHead {
 public:
  PackedHead(const HeadJob& job, const PackKernels& kernels, Parts parts, float* memory, Found* found);
  static int64_t Floats(const HeadJob& job, const PackKernels& kernels, Parts parts);
  void Pack(int64_t tile) const;  // tiles may be packed by any thread
  KeyTile tile(int64_t tile) const;
  // Tiles in which packing found keys or values that are not finite.
  std::vector<int64_t> NotFinite() const;

 private:
  const HeadJob* job_;
  PackKernels kernels_;
  Parts parts_;
  float* keys_;
  float* values_;
  Found* found_;
  int64_t keys_floats_, values_floats_;  // of a tile
};

inline constexpr int64_t kWaveFloats = 16 << 20;  // 64 MiB of packed keys and values at once

// Consecutive jobs whose packed keys and values fit in a budget, or one job that does not.
struct Wave {
  int64_t first = 0, last = 0;
};
std::vector<Wave> MakeWaves(const std::vector<HeadJob>& jobs, const PackKernels& kernels, Parts parts);

// All of a wave's heads packed, in parallel.
class PackedWave {
 public:
  PackedWave(const std::vector<HeadJob>& jobs, Wave wave, const PackKernels& kernels, Parts parts);
  const PackedHead& head(int64_t job) const { return heads_[static_cast<size_t>(job - first_)]; }

 private:
  int64_t first_;
  AlignedBuffer<float> memory_;
  std::vector<Found> found_;
  std::vector<PackedHead> heads_;
};

}  // namespace qkv
