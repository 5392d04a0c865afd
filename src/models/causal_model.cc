#include "models/causal_model.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "models/causal_matrix.h"
#include "qkv/attention.h"
#include "qkv/error.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

RopeFrequencies FrequenciesOf(const CausalConfig& config, int64_t length) {
  RopeConfig rope = *config.rope;
  if (auto* dynamic = std::get_if<DynamicNtkRope>(&rope.scaling)) dynamic->length = length;
  RopeFrequencies frequencies = MakeRopeFrequencies(rope);
  for (size_t i = 0; i < config.rope_factors.size(); ++i) {
    frequencies.frequencies[i] /= static_cast<double>(config.rope_factors[i]);
  }
  return frequencies;
}

bool GrowsWithText(const CausalConfig& config) {
  return std::holds_alternative<DynamicNtkRope>(config.rope->scaling);
}

StoredLinear ReadOutput(const CausalTensors& tensors, const CausalConfig& config, std::optional<DType> dtype) {
  const CausalNames& names = tensors.names();
  const char* module = config.tied ? names.embeddings : names.output;
  return ReadMatrix(tensors, config.width, {{tensors.Module(module), config.vocab}},
                    {Biased::kNo, Activation::kNone, dtype});
}

}  // namespace

ModelInfo CausalInfo(const std::string& name, const CausalConfig& config, int64_t parameters) {
  ModelInfo info;
  info.name = name;
  info.architecture = config.architecture;
  info.layers = config.layers;
  info.heads = config.heads;
  info.kv_heads = config.kv_heads;
  info.width = config.width;
  info.vocab = config.vocab;
  info.max_tokens = config.max_tokens;
  info.positions = config.rope ? Positions::kRotary : Positions::kLearned;
  info.parameters = parameters;
  info.causal = true;
  info.end_ids = config.end_ids;
  return info;
}

CausalModel::CausalModel(ModelInfo info, CausalConfig config, const CausalTensors& tensors,
                         std::unique_ptr<const Tokenizer> tokenizer, std::optional<DType> dtype)
    : info_(std::move(info)),
      config_(std::move(config)),
      tensors_(tensors),
      tokenizer_(std::move(tokenizer)),
      embeddings_(tensors, tensors.Module(tensors.names().embeddings) + ".weight", config_.vocab, config_.width),
      final_norm_(tensors, config_, tensors.Module(tensors.names().final_norm)),
      output_(ReadOutput(tensors, config_, dtype)) {
  const CausalNames& names = tensors.names();
  if (config_.rope) {
    if (!GrowsWithText(config_)) frequencies_ = FrequenciesOf(config_, config_.max_tokens);
  } else {
    positions_.emplace(tensors, tensors.Module(names.positions) + ".weight", config_.max_tokens, config_.width);
  }
  tensors.CheckLayers(config_.layers);
  layers_.resize(static_cast<size_t>(config_.layers));
  const auto read = [&](int64_t layer) {
    layers_[static_cast<size_t>(layer)].emplace(tensors, config_, layer, dtype);
  };
  // One thread a layer: threads that share one matrix wait for each other at every one. The first layer comes before,
  // since what it finds out about the matrices' shapes serves the others.
  read(0);
  ParallelFor(config_.layers - 1, [&](int64_t task, int) { read(task + 1); });
}

void CausalModel::CheckTokens(std::span<const int64_t> ids, const Passage& passage, int64_t most) const {
  if (passage.length < 1) throw Error(ErrorCode::kInvalidArgument, "no tokens", "ids", "at least 1", "0");
  if (passage.first + passage.length > most) {
    throw Error(ErrorCode::kInvalidArgument, "the text is too long for " + info_.name, "text",
                "at most " + std::to_string(most) + " tokens",
                std::to_string(passage.first + passage.length) + " tokens");
  }
  if (static_cast<int64_t>(ids.size()) != passage.rows()) {
    throw Error(ErrorCode::kInvalidArgument, "wrong number of ids", "ids", "the same number for each sequence",
                std::to_string(ids.size()) + " for " + std::to_string(passage.batch) + " sequences");
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < config_.vocab) continue;
    throw Error(ErrorCode::kInvalidArgument, "token id outside the vocabulary", "ids[" + std::to_string(i) + "]",
                "0 to " + std::to_string(config_.vocab - 1), std::to_string(ids[i]));
  }
}

CausalModel::Buffers CausalModel::MakeBuffers(int64_t rows) const {
  const int64_t heads = config_.heads * config_.head_width, kv = config_.kv_heads * config_.head_width;
  const auto size = static_cast<int64_t>(SizeOf(attention_dtype()));
  const int64_t rounded = attention_dtype() == DType::kF32 ? 0 : rows * (heads + 2 * kv) * size;
  return {AlignedBuffer<float>(rows * config_.width), AlignedBuffer<float>(rows * (heads + 2 * kv)),
          AlignedBuffer<float>(layers_.front()->ScratchSize(rows)), AlignedBuffer<std::byte>(rounded),
          AlignedBuffer<std::byte>(rows * heads * size)};
}

void CausalModel::Embed(std::span<const int64_t> ids, const Passage& passage, Buffers& buffers) const {
  const int64_t width = config_.width;
  std::vector<float> position(positions_ ? static_cast<size_t>(width) : 0);
  for (int64_t row = 0; row < passage.rows(); ++row) {
    float* h = buffers.h.data() + row * width;
    embeddings_.CopyRow(ids[static_cast<size_t>(row)], h);
    if (!positions_) continue;
    positions_->CopyRow(passage.first + row % passage.length, position.data());
    std::transform(position.begin(), position.end(), h, h, std::plus<>());
  }
}

RopeTable CausalModel::Angles(const Passage& passage) const {
  std::vector<int64_t> positions(static_cast<size_t>(passage.length));
  for (int64_t t = 0; t < passage.length; ++t) positions[static_cast<size_t>(t)] = passage.first + t;
  if (frequencies_) return MakeRopeTable(*frequencies_, positions);
  return MakeRopeTable(FrequenciesOf(config_, passage.first + passage.length), positions);
}

// q and k where they lie: their heads stand side by side, so that they are one tensor here.
void CausalModel::Turn(const Passage& passage, const RopeTable& table, Buffers& buffers) const {
  const int64_t row = (config_.heads + 2 * config_.kv_heads) * config_.head_width;
  const Shape shape{passage.batch, config_.heads + config_.kv_heads, passage.length, config_.head_width};
  const Tensor x(buffers.qkv.data(), DType::kF32, shape, {passage.length * row, config_.head_width, row, 1});
  RopeOptions options;
  options.pairing = config_.pairing;
  RotaryEmbed(x, ConstTensor(table.cos.data(), table.shape), ConstTensor(table.sin.data(), table.shape), options, x);
}

LayerAttention CausalModel::HeadsOf(const Passage& passage, Buffers& buffers) const {
  const int64_t head = config_.head_width, heads = config_.heads * head, kv = config_.kv_heads * head;
  const DType dtype = attention_dtype();
  const auto view = [&](void* data, int64_t count, int64_t row) -> Tensor {
    return {data, dtype, Shape{passage.batch, count, passage.length, head}, {passage.length * row, head, row, 1}};
  };
  const Rows qkv(dtype == DType::kF32 ? static_cast<void*>(buffers.qkv.data()) : buffers.rounded.data(), dtype);
  const int64_t row = heads + 2 * kv;
  return {view(qkv.data, config_.heads, row), view(qkv.From(heads).data, config_.kv_heads, row),
          view(qkv.From(heads + kv).data, config_.kv_heads, row), view(buffers.attended.data(), config_.heads, heads)};
}

void CausalModel::Round(const Passage& passage, Buffers& buffers) const {
  if (attention_dtype() == DType::kF32) return;
  const int64_t row = (config_.heads + 2 * config_.kv_heads) * config_.head_width;
  RoundRows(buffers.qkv.data(), passage.rows() * row, reinterpret_cast<BFloat16*>(buffers.rounded.data()));
}

void CausalModel::RunLayers(const Passage& passage, int64_t layers, const Attend& attend, Buffers& buffers,
                        const Progress& progress) const {
  const LayerAttention heads = HeadsOf(passage, buffers);
  const std::optional<RopeTable> table = config_.rope ? std::optional(Angles(passage)) : std::nullopt;
  AttentionOptions options;
  options.causal = Causal::kBottomRight;
  for (int64_t l = 0; l < layers; ++l) {
    const CausalLayer& layer = *layers_[static_cast<size_t>(l)];
    const auto window = config_.windows[static_cast<size_t>(l)];
    options.scale = config_.scales[static_cast<size_t>(l)];
    options.window.left = window ? std::optional(*window - 1) : std::nullopt;
    const CausalLayer::Packed packed = layer.Pack(passage.rows());
    layer.Project(buffers.h.data(), passage.rows(), packed, buffers.qkv.data(), buffers.scratch.data());
    if (table) Turn(passage, *table, buffers);
    Round(passage, buffers);
    attend(l, heads, options);
    layer.Finish({buffers.attended.data(), attention_dtype()}, passage.rows(), packed, buffers.h.data(),
                 buffers.scratch.data());
    if (progress && !progress(l + 1, layers)) throw Error(ErrorCode::kCancelled, "cancelled");
  }
}

std::vector<float> CausalModel::Forward(const std::vector<int64_t>& ids, int64_t batch,
                                    const std::vector<int64_t>* lengths, const Progress& progress) const {
  if (batch < 1) {
    throw Error(ErrorCode::kInvalidArgument, "no sequences", "batch", "at least 1", std::to_string(batch));
  }
  const Passage passage{batch, static_cast<int64_t>(ids.size()) / batch, 0};
  CheckTokens(ids, passage, config_.max_tokens);
  CheckLengths(lengths, batch, passage.length);  // padding comes after the text, which never looks at it
  Buffers buffers = MakeBuffers(passage.rows());
  Embed(ids, passage, buffers);
  const auto attend = [](int64_t, const LayerAttention& heads, const AttentionOptions& options) {
    Attention(heads.q, heads.k, heads.v, options, heads.out);
  };
  RunLayers(passage, config_.layers, attend, buffers, progress);
  Normalise(buffers.h.data(), passage.rows());
  return {buffers.h.data(), buffers.h.data() + buffers.h.size()};
}

ModelCapture CausalModel::Look(const Encoding& text, const LookRequest& request, std::vector<float>* hidden) const {
  const Passage passage{1, static_cast<int64_t>(text.ids.size()), 0};
  const bool limited = !config_.rope || request.length == LengthRule::kTrained;
  CheckTokens(text.ids, passage, limited ? config_.max_tokens : passage.length);
  LookRecorder recorder(info_, text, request);
  Buffers buffers = MakeBuffers(passage.rows());
  Embed(text.ids, passage, buffers);
  const auto attend = [&](int64_t layer, const LayerAttention& heads, const AttentionOptions& options) {
    recorder.Attend(layer, heads, options);
  };
  const int64_t layers = hidden != nullptr ? config_.layers : recorder.LastLayer() + 1;
  RunLayers(passage, layers, attend, buffers, request.progress);
  if (hidden != nullptr) {
    Normalise(buffers.h.data(), passage.rows());
    hidden->assign(buffers.h.data(), buffers.h.data() + buffers.h.size());
  }
  return recorder.Take();
}

std::vector<float> CausalModel::Layers(const std::vector<int64_t>& ids, const Progress& progress) const {
  const Passage passage{1, static_cast<int64_t>(ids.size()), 0};
  CheckTokens(ids, passage, config_.max_tokens);
  Buffers buffers = MakeBuffers(passage.rows());
  Embed(ids, passage, buffers);
  std::vector<float> states;
  const auto keep = [&] { states.insert(states.end(), buffers.h.data(), buffers.h.data() + buffers.h.size()); };
  const auto attend = [&](int64_t, const LayerAttention& heads, const AttentionOptions& options) {
    keep();  // what the layer before has left, or the embeddings
    Attention(heads.q, heads.k, heads.v, options, heads.out);
  };
  RunLayers(passage, config_.layers, attend, buffers, progress);
  Normalise(buffers.h.data(), passage.rows());
  keep();
  return states;
}

}  // namespace qkv
