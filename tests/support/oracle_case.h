// A call of the operator made from an option set: the plain numbers, the tensors in their layouts, and running
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "qkv/attention.h"
#include "support/option_set.h"
#include "support/plain_attention.h"
#include "support/typed_tensor.h"

namespace qkv::test {

// What a call gave, in logical order. Rows that the call does not hold (packed batches) stay NaN.
struct Outputs {
  std::vector<double> out;  // (B, Hq, Tq, Dv)
  std::vector<double> lse;  // (B, Hq, Tq), empty when not asked for
  std::optional<Capture> capture;
  bool gaps_untouched = true;
};

// What is put in place of the zeros that the planted keys hold.
enum class Planting { kZeros, kAsTheSetSays };

class OracleCase {
 public:
  explicit OracleCase(const OptionSet& set);

  const OptionSet& set() const { return set_; }
  const PlainCall& plain() const { return plain_; }
  const CaptureRequest& request() const { return request_; }

  // On the instruction set and threads of the set.
  Outputs RunLibrary(Planting planting);
  // The planted call against the same with zeros: rows that see no planted key have the same bits, others show
  // it.
  std::string ComparePlanted(const Outputs& zeros, const Outputs& planted) const;

 private:
  void DrawSizes(Rng& rng);
  void DrawNumbers(Rng& rng);
  void DrawRules(Rng& rng);
  void DrawCapture(Rng& rng);
  void MakeTensors();
  Broadcast DrawBroadcast(Rng& rng, Factor shape, TypedTensor& tensor);
  Shape BroadcastShape(Factor factor) const;
  Layout LayoutOf(Factor factor) const;
  void Plant(Planting planting);
  bool IsPlanted(int64_t b, int64_t j) const;
  Index Where(int64_t b, int64_t h, int64_t row, int64_t channel, const std::vector<int64_t>& first) const;
  Outputs Collect(const TypedTensor& out, const TypedTensor* lse) const;
  std::string ComparePlantedRow(const Outputs& zeros, const Outputs& planted, int64_t b, int64_t h,
                                int64_t i) const;

  OptionSet set_;
  PlainCall plain_;
  AttentionOptions options_;
  CaptureRequest request_;
  std::vector<int64_t> keys_;                  // B: keys that exist
  std::vector<int64_t> first_q_, first_k_;     // packed: cu_q, cu_kv
  std::vector<std::vector<int64_t>> planted_;  // keys of each sequence
  std::unique_ptr<TypedTensor> q_, k_, v_, mask_, bias_, slopes_, sink_;
};

}  // namespace qkv::test
