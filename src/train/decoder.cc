#include "train/decoder.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/round.h"
#include "layers/embedding.h"
#include "layers/head_loss.h"
#include "layers/norm_backward.h"
#include "layers/residual.h"
#include "layers/row_tasks.h"
#include "qkv/error.h"

namespace qkv::train {
namespace {

constexpr int64_t kEmbeddingPlace = 0;  // of PassSeeds

template <class T>
class DecoderOf : public Decoder {
 public:
  DecoderOf(const DecoderConfig& config, PassShape shape)
      : config_(config),
        shape_(shape),
        table_(config),
        rounded_(std::is_same_v<T, float> ? 0 : table_.total()),
        scratch_(config, shape.rows()),
        last_(shape.rows() * config.width),
        hidden_(shape.rows() * config.width),
        head_(config.vocab, config.width, shape.rows()) {
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      blocks_.emplace_back(config, layer);
      kept_.emplace_back(config, shape.rows());
    }
  }

  void Use(const float* parameters) override {
    parameters_ = parameters;
    if constexpr (std::is_same_v<T, float>) {
      matrices_ = parameters;
    } else {
      matrices_ = rounded_.data();
      ForRows(table_.total(), 1, [&](int64_t first, int64_t count) {
        RoundToBFloat16(parameters + first, count, rounded_.data() + first);
      });
    }
  }

  double Loss(const Batch& batch) override {
    Forward(batch, PassSeeds(0, 0, 0));
    return head_.Forward(hidden_.data(), batch.targets, HeadTable(matrices_));
  }

  double Learn(const Batch& batch, const PassSeeds& seeds, float scale, float* gradients) override {
    Forward(batch, seeds);
    const double loss =
        head_.Backward(hidden_.data(), batch.targets, HeadTable(matrices_), scale, HeadTable(gradients));
    Backward(batch, seeds, gradients);
    return loss;
  }

 private:
  RowsShape Rows() const { return {shape_.rows(), config_.width}; }
  Embedding Embeds() const { return {config_.vocab, config_.width, shape_.length}; }
  template <class P>
  P* At(const char* name, P* flat) const {
    return flat + table_.Find(name).offset;
  }
  template <class P>
  P* HeadTable(P* flat) const {
    return At(config_.head_weight == HeadWeight::kTied ? "wte.weight" : "lm_head.weight", flat);
  }
  LayerNormParameters LastNorm() const {
    return {At("ln_f.weight", parameters_), At("ln_f.bias", parameters_), config_.width, config_.norm_epsilon};
  }
  float* OutputOf(size_t layer) { return layer + 1 < kept_.size() ? kept_[layer + 1].x.data() : last_.data(); }

  void Forward(const Batch& batch, const PassSeeds& seeds) {
    float* x = kept_.front().x.data();
    EmbedForward(Embeds(), batch.inputs, At("wte.weight", parameters_), At("wpe.weight", parameters_), x);
    if (const auto dropout = seeds.Rows(kEmbeddingPlace)) DropGradient(*dropout, x, Rows(), x);
    for (size_t layer = 0; layer < blocks_.size(); ++layer) {
      const auto weights = BlockAt(table_, static_cast<int64_t>(layer), matrices_, parameters_);
      blocks_[layer].Forward(shape_, weights, seeds, kept_[layer], scratch_, OutputOf(layer));
    }
    LayerNormForward(last_.data(), shape_.rows(), LastNorm(), hidden_.data());
  }

  // hidden_ holds the gradient by the last norm's output.
  void Backward(const Batch& batch, const PassSeeds& seeds, float* gradients) {
    if (dx_.size() == 0) dx_ = AlignedBuffer<float>(shape_.rows() * config_.width);
    FillZeros(dx_.data(), dx_.size());
    LayerNormBackward<T>({last_.data(), hidden_.data(), dx_.data(), At("ln_f.weight", gradients),
                          At("ln_f.bias", gradients), scratch_.normal.data(), RoundedGradient(seeds, scratch_)},
                         shape_.rows(), LastNorm());
    for (size_t layer = blocks_.size(); layer-- > 0;) {
      const auto number = static_cast<int64_t>(layer);
      blocks_[layer].Backward(shape_, BlockAt(table_, number, matrices_, parameters_), seeds, kept_[layer],
                              scratch_, dx_.data(), BlockAt(table_, number, gradients, gradients));
    }
    if (const auto dropout = seeds.Rows(kEmbeddingPlace)) DropGradient(*dropout, dx_.data(), Rows(), dx_.data());
    EmbedBackward(Embeds(), batch.inputs, dx_.data(), At("wte.weight", gradients), At("wpe.weight", gradients));
  }

  DecoderConfig config_;
  PassShape shape_;
  ParameterTable table_;
  AlignedBuffer<T> rounded_;  // the parameters in T; empty for float
  const float* parameters_ = nullptr;
  const T* matrices_ = nullptr;
  std::vector<Block<T>> blocks_;
  std::vector<BlockActivations<T>> kept_;
  BlockScratch<T> scratch_;
  AlignedBuffer<float> last_;  // (rows, C): the last block's output
  AlignedBuffer<T> hidden_;    // (rows, C): the last norm's output, then its gradient
  AlignedBuffer<float> dx_;    // (rows, C): the gradient by the residual stream
  HeadLoss<T> head_;
};

}  // namespace

std::unique_ptr<Decoder> MakeDecoder(const DecoderConfig& config, PassShape shape, Precision precision) {
  CheckConfig(config);
  if (shape.length > config.context) {
    throw Error(ErrorCode::kInvalidArgument, "sequences longer than the decoder's context", "length",
                "at most " + std::to_string(config.context), std::to_string(shape.length));
  }
  if (precision == Precision::kBFloat16) return std::make_unique<DecoderOf<BFloat16>>(config, shape);
  return std::make_unique<DecoderOf<float>>(config, shape);
}

}  // namespace qkv::train
