#include <algorithm>
#include <array>
#include <future>
#include <optional>
#include <utility>

#include "models/bert_layer.h"
#include "models/look.h"
#include "models/registry.h"
#include "qkv/attention.h"
#include "qkv/error.h"
#include "runtime/aligned.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

// The real tokens of a batch, one after the other without padding.
struct PackedTokens {
  std::vector<int64_t> ids, positions;
  std::vector<int64_t> offsets{0};  // sequence b is rows [offsets[b], offsets[b + 1])

  int64_t rows() const { return static_cast<int64_t>(ids.size()); }
};

class BertModel : public Model {
 public:
  BertModel(const ModelSource& source, const BertConfig& config, TensorFiles files,
            std::future<std::unique_ptr<const Tokenizer>> tokenizer);

  const ModelInfo& info() const override { return info_; }
  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  std::vector<float> Forward(const std::vector<int64_t>& ids, int64_t batch,
                             const std::vector<int64_t>* lengths, const Progress& progress) const override;
  ModelCapture Look(const Encoding& text, const LookRequest& request,
                    std::vector<float>* hidden) const override;
  std::vector<float> Layers(const std::vector<int64_t>& ids, const Progress& progress) const override;
  OpenLayer Open(const Encoding& text, int64_t layer) const override;

 private:
  // What the layers work on, for one call.
  struct Buffers {
    DType dtype;  // of all but the hidden states' sums
    AlignedBuffer<BFloat16> rounded;
    AlignedBuffer<std::byte> qkv, attended, scratch;

    HiddenRows Hidden(float* h) { return {h, rounded.data()}; }
    Rows Of(AlignedBuffer<std::byte>& buffer) const { return {buffer.data(), dtype}; }
  };

  void CheckTokens(const std::vector<int64_t>& ids, int64_t batch, int64_t length) const;
  PackedTokens Pack(const std::vector<int64_t>& ids, int64_t batch, const std::vector<int64_t>& lengths) const;
  Buffers MakeBuffers(int64_t rows) const;
  LayerAttention HeadsOf(Buffers& buffers, Shape shape) const;
  void EmbedTokens(const PackedTokens& tokens, const HiddenRows& h) const;
  // The first `count` layers.
  void RunLayers(const PackedTokens& tokens, int64_t batch, int64_t length, int64_t count, float* hidden,
                 const Progress& progress) const;

  ModelInfo info_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  TensorFiles files_;               // the word embeddings stay in the mapped file
  Floats words_;                    // (vocabulary, C)
  AlignedBuffer<float> positions_;  // (positions, C): each one's embedding and that of token type 0
  LayerNorm embedding_norm_;
  std::vector<std::optional<BertLayer>> layers_;  // all filled
};

int64_t CountParameters(const TensorFiles& files) {
  int64_t count = 0;
  for (const Safetensors& file : files.files()) {
    for (const TensorEntry& entry : file.entries()) {
      // Whatever the file holds besides the encoder (a pooler, position ids, a head) is not counted.
      const bool used = entry.name.find("embeddings.") != std::string::npos ||
                        entry.name.find("encoder.layer.") != std::string::npos;
      if (used && entry.name.find("position_ids") == std::string::npos) count += entry.elements;
    }
  }
  return count;
}

ModelInfo InfoOf(const ModelSource& source, const BertConfig& config, const TensorFiles& files) {
  ModelInfo info;
  info.name = source.name;
  info.architecture = "bert";
  info.layers = config.num_hidden_layers;
  info.heads = info.kv_heads = config.num_attention_heads;
  info.width = config.hidden_size;
  info.vocab = config.vocab_size;
  info.max_tokens = config.max_position_embeddings;
  info.parameters = CountParameters(files);
  return info;
}

// Sentences are all of token type 0 here, so its embedding is added to every position once.
AlignedBuffer<float> ReadPositions(const BertTensors& tensors, const BertConfig& config) {
  const int64_t width = config.hidden_size;
  const Floats positions =
      tensors.Matrix("embeddings.position_embeddings.weight", config.max_position_embeddings, width);
  const Floats types = tensors.Matrix("embeddings.token_type_embeddings.weight", config.type_vocab_size, width);
  AlignedBuffer<float> sums(config.max_position_embeddings * width);
  for (int64_t i = 0; i < sums.size(); ++i) {
    sums[i] = positions.values[static_cast<size_t>(i)] + types.values[static_cast<size_t>(i % width)];
  }
  return sums;
}

BertModel::BertModel(const ModelSource& source, const BertConfig& config, TensorFiles files,
                     std::future<std::unique_ptr<const Tokenizer>> tokenizer)
    : info_(InfoOf(source, config, files)),
      files_(std::move(files)),
      words_(BertTensors(files_).Matrix("embeddings.word_embeddings.weight", config.vocab_size,
                                        config.hidden_size)),
      positions_(ReadPositions(BertTensors(files_), config)),
      embedding_norm_(BertTensors(files_).Norm("embeddings.LayerNorm", config)) {
  const BertTensors tensors(files_);
  tensors.CheckLayers(config.num_hidden_layers);
  layers_.resize(static_cast<size_t>(config.num_hidden_layers));
  const DType dtype = source.options.dtype.value_or(DType::kF32);
  const auto read = [&](int64_t layer) {
    layers_[static_cast<size_t>(layer)].emplace(tensors, config, layer, dtype);
  };
  // One thread a layer: threads that share one matrix wait for each other at every one. The first layer comes
  // before, since what it finds out about the matrices' shapes serves the others.
  read(0);
  ParallelFor(info_.layers - 1, [&](int64_t task, int) { read(task + 1); });
  tokenizer_ = tokenizer.get();
}

void BertModel::CheckTokens(const std::vector<int64_t>& ids, int64_t batch, int64_t length) const {
  if (length < 1) throw Error(ErrorCode::kInvalidArgument, "no tokens", "ids", "at least 1", "0");
  if (length > info_.max_tokens) {
    throw Error(ErrorCode::kInvalidArgument, "the text is too long for " + info_.name, "text",
                "at most " + std::to_string(info_.max_tokens) + " tokens", std::to_string(length) + " tokens");
  }
  if (static_cast<int64_t>(ids.size()) != batch * length) {
    throw Error(ErrorCode::kInvalidArgument, "wrong number of ids", "ids", "the same number for each sequence",
                std::to_string(ids.size()) + " for " + std::to_string(batch) + " sequences");
  }
}

PackedTokens BertModel::Pack(const std::vector<int64_t>& ids, int64_t batch,
                             const std::vector<int64_t>& lengths) const {
  const int64_t padded = static_cast<int64_t>(ids.size()) / batch;
  PackedTokens tokens;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t t = 0; t < lengths[static_cast<size_t>(b)]; ++t) {
      const int64_t id = ids[static_cast<size_t>(b * padded + t)];
      if (id < 0 || id >= info_.vocab) {
        throw Error(ErrorCode::kInvalidArgument, "token id outside the vocabulary",
                    "ids[" + std::to_string(b * padded + t) + "]", "0 to " + std::to_string(info_.vocab - 1),
                    std::to_string(id));
      }
      tokens.ids.push_back(id);
      tokens.positions.push_back(t);
    }
    tokens.offsets.push_back(tokens.rows());
  }
  return tokens;
}

BertModel::Buffers BertModel::MakeBuffers(int64_t rows) const {
  const BertLayer& layer = *layers_.front();
  const DType dtype = layer.operand();
  const auto bytes = [&](int64_t elements) {
    return AlignedBuffer<std::byte>(elements * static_cast<int64_t>(SizeOf(dtype)));
  };
  AlignedBuffer<BFloat16> rounded;
  if (dtype == DType::kBF16) rounded = AlignedBuffer<BFloat16>(rows * info_.width);
  return {dtype, std::move(rounded), bytes(rows * 3 * info_.width), bytes(rows * info_.width),
          bytes(layer.ScratchSize(rows))};
}

// The heads inside the fused projection, without copies. `shape`: (B, T), or (rows) for a packed batch.
LayerAttention BertModel::HeadsOf(Buffers& buffers, Shape shape) const {
  const int64_t width = info_.width, head = width / info_.heads;
  const auto view = [&](Rows rows, int64_t row) -> Tensor {
    if (shape.rank == 1) return {rows.data, rows.dtype, Shape{shape[0], info_.heads, head}, {row, head, 1}};
    return {rows.data, rows.dtype, Shape{shape[0], info_.heads, shape[1], head}, {shape[1] * row, head, row, 1}};
  };
  const Rows qkv = buffers.Of(buffers.qkv);
  return {view(qkv, 3 * width), view(qkv.From(width), 3 * width), view(qkv.From(2 * width), 3 * width),
          view(buffers.Of(buffers.attended), width)};
}

void BertModel::EmbedTokens(const PackedTokens& tokens, const HiddenRows& h) const {
  constexpr int64_t kTaskRows = 32;
  const int64_t width = info_.width, rows = tokens.rows();
  ParallelFor((rows + kTaskRows - 1) / kTaskRows, [&](int64_t task, int) {
    const int64_t first = task * kTaskRows, count = std::min(kTaskRows, rows - first);
    for (int64_t row = first; row < first + count; ++row) {
      const float* word = words_.values.data() + tokens.ids[static_cast<size_t>(row)] * width;
      const float* position = positions_.data() + tokens.positions[static_cast<size_t>(row)] * width;
      std::transform(word, word + width, position, h.values + row * width, std::plus<>());
    }
    const HiddenRows part = h.From(first * width);
    embedding_norm_.ForwardHere(part.values, count, part.values, part.rounded);
  });
}

void BertModel::RunLayers(const PackedTokens& tokens, int64_t batch, int64_t length, int64_t count, float* hidden,
                          const Progress& progress) const {
  const int64_t rows = tokens.rows();
  Buffers buffers = MakeBuffers(rows);
  const HiddenRows h = buffers.Hidden(hidden);
  EmbedTokens(tokens, h);
  AttentionOptions options;
  const bool padded = rows < batch * length;
  if (padded) options.cu_q = options.cu_kv = tokens.offsets;
  const LayerAttention heads = HeadsOf(buffers, padded ? Shape{rows} : Shape{batch, length});
  for (int64_t l = 0; l < count; ++l) {
    const BertLayer& layer = *layers_[static_cast<size_t>(l)];
    layer.Project(h, rows, buffers.Of(buffers.qkv));
    Attention(heads.q, heads.k, heads.v, options, heads.out);
    layer.Finish(buffers.Of(buffers.attended), rows, h, buffers.Of(buffers.scratch));
    if (progress && !progress(l + 1, count)) throw Error(ErrorCode::kCancelled, "cancelled");
  }
}

std::vector<float> BertModel::Forward(const std::vector<int64_t>& ids, int64_t batch,
                                      const std::vector<int64_t>* lengths, const Progress& progress) const {
  if (batch < 1)
    throw Error(ErrorCode::kInvalidArgument, "no sequences", "batch", "at least 1", std::to_string(batch));
  const int64_t length = static_cast<int64_t>(ids.size()) / batch, width = info_.width;
  CheckTokens(ids, batch, length);
  CheckLengths(lengths, batch, length);
  const std::vector<int64_t> whole(static_cast<size_t>(batch), length);
  const PackedTokens tokens = Pack(ids, batch, lengths == nullptr ? whole : *lengths);
  std::vector<float> h(static_cast<size_t>(batch * length * width));
  RunLayers(tokens, batch, length, info_.layers, h.data(), progress);
  // Where sequences were packed, to their places; from the last one on, so that nothing is overwritten unread.
  for (int64_t b = batch - 1; b > 0 && tokens.rows() < batch * length; --b) {
    const float* packed = h.data() + tokens.offsets[static_cast<size_t>(b)] * width;
    const float* end = h.data() + tokens.offsets[static_cast<size_t>(b + 1)] * width;
    std::copy_backward(packed, end, h.data() + b * length * width + (end - packed));
  }
  return h;
}

ModelCapture BertModel::Look(const Encoding& text, const LookRequest& request,
                             std::vector<float>* hidden) const {
  const auto length = static_cast<int64_t>(text.ids.size());
  CheckTokens(text.ids, 1, length);
  LookRecorder recorder(info_, text, request);
  const PackedTokens tokens = Pack(text.ids, 1, {length});
  std::vector<float> h(static_cast<size_t>(length * info_.width));
  Buffers buffers = MakeBuffers(length);
  const HiddenRows rows = buffers.Hidden(h.data());
  EmbedTokens(tokens, rows);
  const LayerAttention heads = HeadsOf(buffers, Shape{1, length});
  const int64_t count = hidden != nullptr ? info_.layers : recorder.LastLayer() + 1;
  for (int64_t l = 0; l < count; ++l) {
    const BertLayer& layer = *layers_[static_cast<size_t>(l)];
    layer.Project(rows, length, buffers.Of(buffers.qkv));
    recorder.Attend(l, heads, {});
    // Beyond the last layer that anybody asked for only its weights matter.
    if (hidden != nullptr || l + 1 < count)
      layer.Finish(buffers.Of(buffers.attended), length, rows, buffers.Of(buffers.scratch));
    if (request.progress && !request.progress(l + 1, count)) throw Error(ErrorCode::kCancelled, "cancelled");
  }
  if (hidden != nullptr) *hidden = std::move(h);
  return recorder.Take();
}

std::vector<float> BertModel::Layers(const std::vector<int64_t>& ids, const Progress& progress) const {
  const auto length = static_cast<int64_t>(ids.size());
  CheckTokens(ids, 1, length);
  const PackedTokens tokens = Pack(ids, 1, {length});
  const auto size = static_cast<size_t>(length * info_.width);
  std::vector<float> states(size * static_cast<size_t>(info_.layers + 1));
  Buffers buffers = MakeBuffers(length);
  HiddenRows h = buffers.Hidden(states.data());
  EmbedTokens(tokens, h);
  const LayerAttention heads = HeadsOf(buffers, Shape{1, length});
  for (int64_t l = 0; l < info_.layers; ++l) {
    const BertLayer& layer = *layers_[static_cast<size_t>(l)];
    h.values = std::copy_n(h.values, size, h.values + size) - size;  // the layer works where its result stays
    layer.Project(h, length, buffers.Of(buffers.qkv));
    Attention(heads.q, heads.k, heads.v, {}, heads.out);
    layer.Finish(buffers.Of(buffers.attended), length, h, buffers.Of(buffers.scratch));
    if (progress && !progress(l + 1, info_.layers)) throw Error(ErrorCode::kCancelled, "cancelled");
  }
  return states;
}

OpenLayer BertModel::Open(const Encoding& text, int64_t layer) const {
  const auto length = static_cast<int64_t>(text.ids.size());
  CheckTokens(text.ids, 1, length);
  if (layer < 0 || layer >= info_.layers) {
    throw Error(ErrorCode::kInvalidArgument, "no such layer", "layer", "0 to " + std::to_string(info_.layers - 1),
                std::to_string(layer));
  }
  OpenLayer open;
  open.model = info_.name;
  open.layer = layer;
  open.tokens = text.labels;
  open.config.d_in = open.config.d_out = info_.width;
  open.config.num_heads = info_.heads;
  open.config.qkv_bias = true;
  open.parameters = ReadAttention(BertTensors(files_), info_.width, layer);
  open.input.resize(static_cast<size_t>(length * info_.width));
  RunLayers(Pack(text.ids, 1, {length}), 1, length, layer, open.input.data(), {});
  return open;
}

}  // namespace

std::unique_ptr<const Model> LoadBert(const ModelSource& source) {
  const BertConfig config = ReadBertConfig(source.config);
  // Reading the vocabulary takes as long as packing the parameters. Deferred where there is no thread to be
  // had.
  constexpr std::launch kBeside = std::launch::async | std::launch::deferred;
  auto tokenizer = std::async(kBeside, [&] { return LoadTokenizer(source.folder); });
  TensorFiles files(source.folder);
  return std::make_unique<BertModel>(source, config, std::move(files), std::move(tokenizer));
}

}  // namespace qkv
