// The decoder, the initial parameters and the batches of tests/golden/train/make.py.
#pragma once

#include "layers/noise.h"
#include "train/trainer.h"

namespace qkv::test {

struct GoldenRun {
  train::DecoderConfig config;
  train::TrainOptions options;

  GoldenRun() {
    config.layers = 4;
    config.heads = 4;
    config.width = 32;
    config.context = 24;
    config.vocab = 61;
    options.steps = 200;
    options.warmup_steps = 20;
    options.batch = 4;
    options.length = 24;
    options.accumulate = 2;
    options.learning_rate = 3e-3;
    options.final_learning_rate = 3e-4;
  }

  // Uniform within 0.1 of 0, or of 1 for the norms' gains: parameter n from seed n + 1.
  AlignedBuffer<float> Parameters() const {
    const train::ParameterTable table(config);
    AlignedBuffer<float> parameters = train::ZeroParameters(table);
    uint32_t seed = 1;
    for (const train::ParameterEntry& entry : table.entries()) {
      const std::vector<float> values = Noise(seed++, entry.size(), 0.2f);
      const bool gain = entry.shape.rank == 1 && entry.name.ends_with("weight");
      for (int64_t i = 0; i < entry.size(); ++i) {
        parameters[entry.offset + i] = values[static_cast<size_t>(i)] + (gain ? 1.0f : 0.0f);
      }
    }
    return parameters;
  }
};

// Sequences x -> 5 x + 7, with one token in eight drawn at random.
class GoldenBatches : public train::BatchSource {
 public:
  explicit GoldenBatches(int64_t vocab) : vocab_(vocab) {}

  void Fill(int64_t index, const train::Batch& batch) const override {
    const int64_t row = batch.length + 1, count = batch.sequences * row;
    const auto seed = static_cast<uint32_t>(1000 + 2 * index);
    const std::vector<float> random = Noise(seed, count), jump = Noise(seed + 1, count);
    for (int64_t b = 0; b < batch.sequences; ++b) {
      int64_t token = 0;
      for (int64_t t = 0; t < row; ++t) {
        const auto at = static_cast<size_t>(b * row + t);
        const bool drawn = t == 0 || jump[at] < -0.375f;
        token = drawn ? static_cast<int64_t>((random[at] + 0.5f) * static_cast<float>(vocab_))
                      : (5 * token + 7) % vocab_;
        if (t > 0) batch.targets[static_cast<size_t>(b * batch.length + t - 1)] = static_cast<int32_t>(token);
        if (t < batch.length)
          batch.inputs[static_cast<size_t>(b * batch.length + t)] = static_cast<int32_t>(token);
      }
    }
  }

 private:
  int64_t vocab_;
};

}  // namespace qkv::test
