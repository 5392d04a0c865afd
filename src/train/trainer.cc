#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "layers/row_tasks.h"
#include "qkv/error.h"
#include "train/decoder.h"
#include "train/optimizer.h"

namespace qkv::train {
namespace {

void CheckState(const ParameterTable& table, const TrainState& state) {
  const auto check = [&](const AlignedBuffer<float>& buffer, const char* name) {
    if (buffer.size() == table.total()) return;
    throw Error(ErrorCode::kInvalidArgument, "a state of another decoder", name,
                std::to_string(table.total()) + " numbers", std::to_string(buffer.size()));
  };
  check(state.parameters, "parameters");
  check(state.first_moment, "first_moment");
  check(state.second_moment, "second_moment");
  if (state.step >= 0) return;
  throw Error(ErrorCode::kInvalidArgument, "bad step", "step", "at least 0", std::to_string(state.step));
}

// Steps are told counted from 1, as the log has them.
[[noreturn]] void RefuseNotFinite(const char* what, int64_t step, double value) {
  throw Error(ErrorCode::kNotFinite, std::string("training diverged: the ") + what + " is not finite",
              "step " + std::to_string(step + 1), "a number", std::to_string(value));
}

AlignedBuffer<float> Zeros(int64_t count) {
  AlignedBuffer<float> zeros(count);
  std::fill_n(zeros.data(), count, 0.0f);
  return zeros;
}

}  // namespace

TrainState StateFrom(AlignedBuffer<float> parameters) {
  const int64_t total = parameters.size();
  return {0, std::move(parameters), Zeros(total), Zeros(total)};
}

TrainState InitialState(const DecoderConfig& config, uint64_t seed) {
  return StateFrom(InitialParameters(config, seed));
}

struct Trainer::Impl {
  DecoderConfig config;
  TrainOptions options;
  ParameterTable table;
  TrainState state;
  std::unique_ptr<Decoder> decoder;
  AlignedBuffer<float> gradient;
  std::vector<int32_t> inputs, targets;

  Batch Fill(const BatchSource& source, int64_t index) {
    const Batch batch{options.batch, options.length, inputs, targets};
    source.Fill(index, batch);
    return batch;
  }
  int64_t BatchTokens() const { return options.batch * options.length; }
};

Trainer::Trainer(const DecoderConfig& config, const TrainOptions& options, TrainState state) {
  CheckOptions(options);
  ParameterTable table(config);
  CheckState(table, state);
  auto decoder = MakeDecoder(config, {options.batch, options.length}, options.precision);
  const auto tokens = static_cast<size_t>(options.batch * options.length);
  AlignedBuffer<float> gradient = ZeroParameters(table);
  impl_.reset(new Impl{config, options, std::move(table), std::move(state), std::move(decoder),
                       std::move(gradient), std::vector<int32_t>(tokens), std::vector<int32_t>(tokens)});
}

Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

StepReport Trainer::Step(const BatchSource& source) {
  Impl& i = *impl_;
  const int64_t step = i.state.step, parts = i.options.accumulate, tokens = parts * i.BatchTokens();
  FillZeros(i.gradient.data(), i.gradient.size());
  i.decoder->Use(i.state.parameters.data());
  double sum = 0;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t index = step * parts + part;
    const Batch batch = i.Fill(source, index);
    const PassSeeds seeds(i.options.seed, index, i.config.dropout);
    sum += i.decoder->Learn(batch, seeds, 1.0f / static_cast<float>(tokens), i.gradient.data());
  }
  const double loss = sum / static_cast<double>(tokens);
  if (!std::isfinite(loss)) RefuseNotFinite("loss", step, loss);
  const double norm = GradientNorm(i.table, i.gradient.data());
  if (!std::isfinite(norm)) RefuseNotFinite("gradient", step, norm);
  ApplyStep(i.table, i.options, i.gradient.data(), norm, i.state);
  return {step, loss, norm, LearningRate(i.options, step), tokens};
}

double Trainer::Evaluate(const BatchSource& source, int64_t batches) {
  Impl& i = *impl_;
  i.decoder->Use(i.state.parameters.data());
  double sum = 0;
  for (int64_t index = 0; index < batches; ++index) sum += i.decoder->Loss(i.Fill(source, index));
  return sum / static_cast<double>(std::max<int64_t>(1, batches) * i.BatchTokens());
}

const TrainState& Trainer::state() const { return impl_->state; }
const ParameterTable& Trainer::table() const { return impl_->table; }
const DecoderConfig& Trainer::config() const { return impl_->config; }
const TrainOptions& Trainer::options() const { return impl_->options; }

}  // namespace qkv::train
