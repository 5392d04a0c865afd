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

  // The call's arguments.
  Tensor q() const { return q_->view(); }
  Tensor k() const { return k_->view(); }
  Tensor v() const { return v_->view(); }
  const AttentionOptions& options() const { return options_; }
  int64_t keys(int64_t b) const { return keys_[static_cast<size_t>(b)]; }  // that k and v hold
  bool IsPlanted(int64_t b, int64_t j) const;
  Layout LayoutOf(Factor factor) const;
  // The index of (b, h, row, channel) in a tensor as q, or as k and v.
  Index AtQuery(int64_t b, int64_t h, int64_t i, int64_t c) const { return Where(b, h, i, c, first_q_); }
  Index AtKey(int64_t b, int64_t h, int64_t j, int64_t c) const { return Where(b, h, j, c, first_k_); }
  // In a tensor as lse.
  Index AtRow(int64_t b, int64_t h, int64_t i) const {
    return set_.packed() ? Index{h, first_q_[static_cast<size_t>(b)] + i, 0, 0} : Index{b, h, i, 0};
  }
  Shape OutShape() const;
  Shape LseShape() const;

  // Fills the planted keys; chooses the instruction set and threads of the set.
  void Prepare(Planting planting);
  Outputs RunLibrary(Planting planting);
  // The planted call against the same with zeros: rows that see no planted key have the same bits, others show
  // it. What shows it is then replaced by what the zeros gave; what else such a row holds is still to be compared.
  std::string ComparePlanted(const Outputs& zeros, Outputs& planted) const;

 private:
  void DrawSizes(Rng& rng);
  void DrawNumbers(Rng& rng);
  void DrawRules(Rng& rng);
  void DrawCapture(Rng& rng);
  void MakeTensors();
  Broadcast DrawBroadcast(Rng& rng, Factor shape, TypedTensor& tensor);
  Shape BroadcastShape(Factor factor) const;
  void Plant(Planting planting);
  Index Where(int64_t b, int64_t h, int64_t row, int64_t channel, const std::vector<int64_t>& first) const;
  Outputs Collect(const TypedTensor& out, const TypedTensor* lse) const;
  std::string ComparePlantedRow(const Outputs& zeros, Outputs& planted, int64_t b, int64_t h, int64_t i) const;

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
