// Training a decoder, a step at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "runtime/aligned.h"
#include "train/batch.h"
#include "train/decoder_config.h"
#include "train/options.h"
#include "train/parameters.h"

namespace qkv::train {

// All that a run is made of besides its options: with the same options, batches, threads and instruction set,
// going on from a copy of it ends with the same bits as going on from it. Arrays are laid out as ParameterTable
// says.
struct TrainState {
  int64_t step = 0;  // steps done
  AlignedBuffer<float> parameters, first_moment, second_moment;
};

TrainState InitialState(const DecoderConfig& config, uint64_t seed);
// The start of fine-tuning: these parameters, moments of zero.
TrainState StateFrom(AlignedBuffer<float> parameters);

struct StepReport {
  int64_t step = 0;          // the number of the step that was made: 0 for the first
  double loss = 0;           // mean cross-entropy in nats per token, before the step
  double gradient_norm = 0;  // global, before clipping
  double learning_rate = 0;
  int64_t tokens = 0;  // that the step learned from
};

class Trainer {
 public:
  // Takes all the memory that training needs. Error{kInvalidArgument}: options or sizes that contradict, a
  // state of another size; Error{kOutOfMemory}.
  Trainer(const DecoderConfig& config, const TrainOptions& options, TrainState state);
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  // One step, on batches number step * accumulate and the accumulate - 1 after it.
  // Error{kNotFinite} naming the step where the loss or the gradient is NaN or infinite: the state is then that
  // before the step. Error{kInvalidArgument} for a token outside the vocabulary.
  StepReport Step(const BatchSource& source);

  // Mean cross-entropy in nats per token over the source's batches 0 ... batches - 1, without dropout.
  double Evaluate(const BatchSource& source, int64_t batches);

  const TrainState& state() const;
  const ParameterTable& table() const;
  const DecoderConfig& config() const;
  const TrainOptions& options() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace qkv::train
