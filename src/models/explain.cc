#include "qkv/explain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "layers/linear.h"
#include "qkv/attention.h"
#include "qkv/error.h"
#include "runtime/memory.h"
#include "runtime/random.h"

namespace qkv {
namespace {

[[noreturn]] void Refuse(std::string what, std::string where, std::string expected, std::string got) {
  throw Error(ErrorCode::kInvalidArgument, std::move(what), std::move(where), std::move(expected),
              std::move(got));
}

void CheckIndex(int64_t index, int64_t size, const char* what) {
  if (index >= 0 && index < size) return;
  Refuse(std::string("no such ") + what, what, "0 to " + std::to_string(size - 1), std::to_string(index));
}

// (rows, columns) -> (columns, rows): parameters as the formula X W has them.
std::vector<float> Transposed(const std::vector<float>& matrix, int64_t rows, int64_t columns) {
  std::vector<float> result(matrix.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c)
      result[static_cast<size_t>(c * rows + r)] = matrix[static_cast<size_t>(r * columns + c)];
  }
  return result;
}

// Columns [first, first + count) of every row.
std::vector<float> Columns(const std::vector<float>& matrix, int64_t width, int64_t first, int64_t count) {
  std::vector<float> result;
  const int64_t rows = static_cast<int64_t>(matrix.size()) / width;
  result.reserve(static_cast<size_t>(rows * count));
  for (int64_t r = 0; r < rows; ++r) {
    const auto from = matrix.begin() + r * width + first;
    result.insert(result.end(), from, from + count);
  }
  return result;
}

// (T, H, D) -> (H, T, D) and, with the numbers exchanged, back.
std::vector<float> SwapAxes(const std::vector<float>& from, int64_t outer, int64_t inner, int64_t width) {
  std::vector<float> result(from.size());
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      std::copy_n(from.begin() + (o * inner + i) * width, width, result.begin() + (i * outer + o) * width);
    }
  }
  return result;
}

// The heads' queries, keys and values, (H, T, D) each, and the operator on them.
class Heads {
 public:
  std::vector<float> q, k, v;
  int64_t heads = 1, kv_heads = 1, length = 0, d_k = 0, d_v = 0;

  // (H, T, T): scores or weights of every pair. `scale` empty: 1 / sqrt(d_k).
  std::vector<float> Pairs(RowKind kind, std::optional<float> scale, Causal causal) const {
    AttentionOptions options;
    options.scale = scale;
    options.causal = causal;
    CaptureRequest request;
    request.row_kind = kind;
    request.rows.emplace(static_cast<size_t>(length));
    std::iota(request.rows->begin(), request.rows->end(), 0);
    std::vector<float> unused(static_cast<size_t>(heads * length * d_v));
    return AttentionWithCapture(Queries(), Keys(), Values(), options, request, Out(unused)).row_values;
  }

  // (H, T, Dv).
  std::vector<float> Sum(const AttentionOptions& options) const {
    std::vector<float> out(static_cast<size_t>(heads * length * d_v));
    Attention(Queries(), Keys(), Values(), options, Out(out));
    return out;
  }

 private:
  ConstTensor Queries() const { return {q.data(), Shape{1, heads, length, d_k}}; }
  ConstTensor Keys() const { return {k.data(), Shape{1, kv_heads, length, d_k}}; }
  ConstTensor Values() const { return {v.data(), Shape{1, kv_heads, length, d_v}}; }
  Tensor Out(std::vector<float>& out) const { return {out.data(), Shape{1, heads, length, d_v}}; }
};

class Explainer {
 public:
  Explainer(const OpenLayer& layer, const ExplainRequest& request);

  Explanation Run();

 private:
  bool simplified() const { return request_.level == ExplainLevel::kSimplified; }
  bool all_heads() const { return request_.level == ExplainLevel::kMultiHead; }
  bool drops() const { return request_.dropout_p > 0; }

  void CheckMemory() const;
  ExplainedStep& Add(StepKind kind);
  // Of (H, T, width) values: all heads, or the one that is explained.
  ExplainedTensor PerHead(std::string symbol, std::vector<float> values, Axis columns) const;
  ExplainedTensor Rows(std::string symbol, std::vector<float> values, int64_t width) const;

  void Project();
  void AddProjection(const char* name, const std::vector<float>& weight, const std::vector<float>& bias,
                     int64_t heads, int64_t width, const std::vector<float>& rows);
  void Split();
  void AddScores();
  void AddWeights();
  void AddOtherOrder();
  void AddDropout();
  void AddSum();
  void AddOutput();

  const OpenLayer& layer_;
  const ExplainRequest& request_;
  const MultiHeadConfig& config_;
  int64_t length_;
  Explanation result_;
  Heads heads_;
  std::optional<MultiHeadAttention> whole_;  // the layer itself
  std::vector<float> weights_, out_;         // (H, T, T), (H, T, Dv)
};

Explainer::Explainer(const OpenLayer& layer, const ExplainRequest& request)
    : layer_(layer),
      request_(request),
      config_(layer.config),
      length_(static_cast<int64_t>(layer.tokens.size())) {
  if (config_.num_heads < 1) Refuse("bad size", "num_heads", "at least 1", std::to_string(config_.num_heads));
  Explanation& r = result_;
  r.level = request.level;
  r.model = layer.model;
  r.layer = layer.layer;
  r.head = request.head;
  r.tokens = layer.tokens;
  r.token = request.token;
  r.d_in = config_.d_in;
  r.d_out = config_.d_out;
  r.heads = simplified() ? 1 : config_.num_heads;
  r.kv_heads = simplified() ? 1 : config_.kv_heads.value_or(config_.num_heads);
  r.d_k = simplified() ? config_.d_in : config_.d_k.value_or(config_.d_out / config_.num_heads);
  r.d_v = simplified() ? config_.d_in : config_.d_v.value_or(config_.d_out / config_.num_heads);
  r.causal = config_.causal != Causal::kNone;
  r.dropout_p = request.dropout_p;
  r.seed = layer.model.empty() ? layer.seed : request.seed;
  if (simplified() && request.dropout_p != 0)
    Refuse("has no training to drop weights in", "simplified", "dropout 0", "more");
  if (!all_heads()) CheckIndex(request.head, r.heads, "head");
  CheckIndex(request.token, length_, "token");
  if (static_cast<int64_t>(layer.input.size()) != length_ * config_.d_in) {
    Refuse("wrong number of values", "input", std::to_string(length_ * config_.d_in),
           std::to_string(layer.input.size()));
  }
  CheckMemory();
  if (simplified()) return;
  if (config_.d_context)
    Refuse("only self-attention is explained", "d_context", "none", std::to_string(*config_.d_context));
  MultiHeadConfig config = config_;
  config.dropout = request.dropout_p;
  config.dtype = DType::kF32;
  whole_.emplace(config, layer.parameters);  // checks what was not checked here
}

// Parameters packed twice and once shown; the pairs of tokens that the steps keep, and as many while they are
// made.
void Explainer::CheckMemory() const {
  const auto d_in = static_cast<double>(config_.d_in), d_out = static_cast<double>(config_.d_out);
  const auto heads = static_cast<double>(result_.heads), length = static_cast<double>(length_);
  const double parameters = simplified() ? 0 : 3 * d_in * d_out + d_out * d_out;
  const double pairs = 12 * heads * length * length, rows = 8 * length * (d_in + d_out);
  RequireMemory(sizeof(float) * (3 * parameters + pairs + rows), "the explanation");
}

ExplainedStep& Explainer::Add(StepKind kind) {
  result_.steps.push_back({kind, {}});
  return result_.steps.back();
}

ExplainedTensor Explainer::PerHead(std::string symbol, std::vector<float> values, Axis columns) const {
  const int64_t width =
      columns == Axis::kTokens ? length_ : static_cast<int64_t>(values.size()) / heads_.heads / length_;
  if (all_heads())
    return {std::move(symbol), Shape{1, heads_.heads, length_, width}, columns, std::move(values)};
  const auto first = values.begin() + result_.head * length_ * width;
  return {std::move(symbol), Shape{1, length_, width}, columns, {first, first + length_ * width}};
}

ExplainedTensor Explainer::Rows(std::string symbol, std::vector<float> values, int64_t width) const {
  return {std::move(symbol), Shape{1, length_, width}, Axis::kChannels, std::move(values)};
}

Explanation Explainer::Run() {
  Add(StepKind::kInput).tensors = {Rows("X", layer_.input, config_.d_in)};
  if (simplified()) {
    heads_ = {layer_.input, layer_.input, layer_.input, 1, 1, length_, config_.d_in, config_.d_in};
  } else {
    Project();
  }
  AddScores();
  AddWeights();
  if (drops()) AddDropout();
  AddSum();
  if (all_heads()) AddOutput();
  return std::move(result_);
}

void Explainer::Project() {
  const Explanation& r = result_;
  const MultiHeadParameters& p = layer_.parameters;
  const int64_t q_width = r.heads * r.d_k, k_width = r.kv_heads * r.d_k, v_width = r.kv_heads * r.d_v;
  const auto part = [](const std::vector<float>& weight, const std::vector<float>& bias, int64_t outputs) {
    return LinearPart{weight.data(), bias.empty() ? nullptr : bias.data(), outputs};
  };
  // In one multiply, as the layers do it.
  const Linear qkv(config_.d_in, std::array{part(p.w_q, p.b_q, q_width), part(p.w_k, p.b_k, k_width),
                                            part(p.w_v, p.b_v, v_width)});
  std::vector<float> rows(static_cast<size_t>(length_ * qkv.outputs()));
  qkv.Forward(layer_.input.data(), length_, rows.data());
  const std::vector<float> q = Columns(rows, qkv.outputs(), 0, q_width);
  const std::vector<float> k = Columns(rows, qkv.outputs(), q_width, k_width);
  const std::vector<float> v = Columns(rows, qkv.outputs(), q_width + k_width, v_width);
  heads_ = {SwapAxes(q, length_, r.heads, r.d_k),
            SwapAxes(k, length_, r.kv_heads, r.d_k),
            SwapAxes(v, length_, r.kv_heads, r.d_v),
            r.heads,
            r.kv_heads,
            length_,
            r.d_k,
            r.d_v};
  Add(StepKind::kProject);
  AddProjection("Q", p.w_q, p.b_q, r.heads, r.d_k, q);
  AddProjection("K", p.w_k, p.b_k, r.kv_heads, r.d_k, k);
  AddProjection("V", p.w_v, p.b_v, r.kv_heads, r.d_v, v);
  auto& tensors = result_.steps.back().tensors;
  std::stable_partition(tensors.begin(), tensors.end(), [](const auto& t) { return t.symbol.size() > 1; });
  if (all_heads()) Split();
}

// Of all heads, or of the part of one.
void Explainer::AddProjection(const char* name, const std::vector<float>& weight,
                              const std::vector<float>& bias, int64_t heads, int64_t width,
                              const std::vector<float>& rows) {
  const int64_t all = heads * width, mine = result_.head * heads / result_.heads * width;
  const int64_t first = all_heads() ? 0 : mine, count = all_heads() ? all : width;
  const std::vector<float> columns = Transposed(weight, all, config_.d_in);
  auto& tensors = result_.steps.back().tensors;
  tensors.push_back({std::string("W_") + name, Shape{config_.d_in, count}, Axis::kChannels,
                     Columns(columns, all, first, count)});
  if (!bias.empty()) {
    tensors.push_back(
        {std::string("b_") + name, Shape{count}, Axis::kChannels, Columns(bias, all, first, count)});
  }
  tensors.push_back(Rows(name, Columns(rows, all, first, count), count));
}

void Explainer::Split() {
  const Explanation& r = result_;
  Add(StepKind::kSplit).tensors = {{"Q", Shape{1, r.heads, length_, r.d_k}, Axis::kChannels, heads_.q},
                                   {"K", Shape{1, r.kv_heads, length_, r.d_k}, Axis::kChannels, heads_.k},
                                   {"V", Shape{1, r.kv_heads, length_, r.d_v}, Axis::kChannels, heads_.v}};
}

void Explainer::AddScores() {
  Add(StepKind::kScores).tensors = {
      PerHead("S", heads_.Pairs(RowKind::kRawScores, 1.0f, Causal::kNone), Axis::kTokens)};
  if (!simplified()) {
    Add(StepKind::kScale).tensors = {
        PerHead("S'", heads_.Pairs(RowKind::kRawScores, {}, Causal::kNone), Axis::kTokens)};
  }
  if (result_.causal) {
    const std::optional<float> scale = simplified() ? std::optional(1.0f) : std::nullopt;
    Add(StepKind::kMask).tensors = {
        PerHead("M", heads_.Pairs(RowKind::kBiasedScores, scale, config_.causal), Axis::kTokens)};
  }
}

void Explainer::AddWeights() {
  const std::optional<float> scale = simplified() ? std::optional(1.0f) : std::nullopt;
  weights_ = heads_.Pairs(RowKind::kWeights, scale, config_.causal);
  Add(StepKind::kSoftmax).tensors = {PerHead("A", weights_, Axis::kTokens)};
  if (request_.level != ExplainLevel::kHead) return;
  Add(StepKind::kSaturation).tensors = {
      PerHead("U", heads_.Pairs(RowKind::kWeights, 1.0f, config_.causal), Axis::kTokens)};
  if (result_.causal) AddOtherOrder();
}

// Softmax over all keys first, the mask afterwards.
void Explainer::AddOtherOrder() {
  ExplainedTensor all = PerHead("F", heads_.Pairs(RowKind::kWeights, {}, Causal::kNone), Axis::kTokens);
  ExplainedTensor divided = all, again = all;
  divided.symbol = "R";
  again.symbol = "P";
  for (int64_t i = 0; i < length_; ++i) {
    float* r = divided.values.data() + i * length_;
    float* p = again.values.data() + i * length_;
    for (int64_t j = 0; j < length_; ++j) p[j] = j <= i ? std::exp(p[j]) : 0;  // weights are at most 1
    std::fill(r + i + 1, r + length_, 0.0f);
    for (float* row : {r, p}) {
      // Zero where all that the row may see is too small beside a key that it may not: this order loses it.
      const double sum = std::accumulate(row, row + i + 1, 0.0);
      if (sum == 0) continue;
      for (int64_t j = 0; j <= i; ++j) row[j] = static_cast<float>(row[j] / sum);
    }
  }
  Add(StepKind::kOtherOrder).tensors = {std::move(all), std::move(divided), std::move(again)};
}

// The operator's own bits; it drops weights inside its pass and never has them in memory.
void Explainer::AddDropout() {
  const DropoutBits bits(request_.seed, request_.dropout_p);
  const float kept = 1 / (1 - request_.dropout_p);
  std::vector<float> dropped = weights_;
  for (int64_t h = 0; h < heads_.heads; ++h) {
    for (int64_t i = 0; i < length_; ++i) {
      float* row = dropped.data() + (h * length_ + i) * length_;
      for (int64_t j = 0; j < length_; ++j) row[j] = bits.Kept(0, h, i, j) ? row[j] * kept : 0;
    }
  }
  Add(StepKind::kDropout).tensors = {PerHead("A'", std::move(dropped), Axis::kTokens)};
}

void Explainer::AddSum() {
  AttentionOptions options;
  options.causal = config_.causal;
  if (simplified()) options.scale = 1.0f;
  out_ = heads_.Sum(options);
  ExplainedStep& step = Add(StepKind::kSum);
  step.tensors.push_back(PerHead("Z", out_, Axis::kChannels));
  if (!drops()) return;
  options.dropout_p = request_.dropout_p;
  options.seed = request_.seed;
  step.tensors.push_back(PerHead("Z'", heads_.Sum(options), Axis::kChannels));
}

void Explainer::AddOutput() {
  const MultiHeadParameters& p = layer_.parameters;
  const int64_t width = heads_.heads * heads_.d_v;
  Add(StepKind::kConcat).tensors = {Rows("Z", SwapAxes(out_, heads_.heads, length_, heads_.d_v), width)};
  if (!config_.output_projection) return;
  const auto output = [&](std::optional<Dropout> training) {
    std::vector<float> y(static_cast<size_t>(length_ * config_.d_out));
    whole_->Forward(layer_.input.data(), 1, length_, y.data(), training);
    return y;
  };
  ExplainedStep& step = Add(StepKind::kOutput);
  step.tensors.push_back(
      {"W_O", Shape{width, config_.d_out}, Axis::kChannels, Transposed(p.w_o, config_.d_out, width)});
  if (!p.b_o.empty()) step.tensors.push_back({"b_O", Shape{config_.d_out}, Axis::kChannels, p.b_o});
  step.tensors.push_back(Rows("Y", output({}), config_.d_out));
  if (drops()) step.tensors.push_back(Rows("Y'", output(Dropout{request_.seed}), config_.d_out));
}

}  // namespace

Explanation Explain(const OpenLayer& layer, const ExplainRequest& request) {
  return Explainer(layer, request).Run();
}

}  // namespace qkv
