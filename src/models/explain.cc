#include "qkv/explain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "layers/linear.h"
#include "layers/multi_head_sizes.h"
#include "layers/rms_norm.h"
#include "models/finite.h"
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

  // (H, T, T): scores or weights of every pair.
  std::vector<float> Pairs(RowKind kind, const AttentionOptions& options) const {
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

  bool Visible(int64_t i, int64_t j) const;
  // The layer's own options, with or without its mask.
  AttentionOptions Masked() const;
  AttentionOptions Unmasked(float scale) const;
  std::vector<float> Output(const std::vector<float>& heads) const;

  void AddInput();
  void Project();
  void AddProjection(const char* name, const std::vector<float>& weight, const std::vector<float>& bias,
                     int64_t heads, int64_t width, const std::vector<float>& rows);
  void Split();
  ExplainedTensor OfHeads(const char* symbol, const std::vector<float>& values, int64_t heads) const;
  void NormaliseHeads();
  void Turn();
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
  std::vector<float> weights_, out_, dropped_out_;  // (H, T, T), (H, T, Dv) twice
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
  r.window = r.causal ? layer.window : std::nullopt;
  r.scale = simplified() ? 1 : layer.scale.value_or(1 / std::sqrt(static_cast<float>(r.d_k)));
  r.norm = layer.norm ? layer.norm->kind : ExplainedNorm::kNone;
  r.epsilon = layer.norm ? layer.norm->epsilon : 0;
  r.pairs = layer.rope && layer.rope->pairing == RopePairing::kAdjacent ? ExplainedPairs::kAdjacent
                                                                       : ExplainedPairs::kHalf;
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
  multi_head::CheckParameters(config, multi_head::CheckedSizes(config), layer.parameters);
}

bool Explainer::Visible(int64_t i, int64_t j) const {
  return j <= i && (!result_.window || j > i - *result_.window);
}

AttentionOptions Explainer::Unmasked(float scale) const {
  AttentionOptions options;
  options.scale = scale;
  return options;
}

AttentionOptions Explainer::Masked() const {
  AttentionOptions options = Unmasked(result_.scale);
  options.causal = config_.causal;
  if (result_.window) options.window.left = *result_.window - 1;
  return options;
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
  AddInput();
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

void Explainer::AddInput() {
  const int64_t width = config_.d_in;
  const ExplainedTensor x = Rows("X", layer_.input, width);
  if (!layer_.norm) {
    Add(StepKind::kInput).tensors = {x};
    return;
  }
  const OpenNorm& norm = *layer_.norm;
  Add(StepKind::kInput).tensors = {Rows("H", norm.hidden, width)};
  auto& tensors = Add(StepKind::kNorm).tensors;
  tensors.push_back({"g", Shape{width}, Axis::kChannels, norm.gain});
  if (!norm.shift.empty()) tensors.push_back({"b", Shape{width}, Axis::kChannels, norm.shift});
  tensors.push_back(x);
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
  if (layer_.head_norms) NormaliseHeads();
  if (layer_.rope) Turn();
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

// Of (H or Hkv, T, width) values: all heads, or the one that the explained head reads.
ExplainedTensor Explainer::OfHeads(const char* symbol, const std::vector<float>& values, int64_t heads) const {
  const int64_t width = static_cast<int64_t>(values.size()) / heads / length_;
  if (all_heads()) return {symbol, Shape{1, heads, length_, width}, Axis::kChannels, values};
  const auto first = values.begin() + result_.head * heads / result_.heads * length_ * width;
  return {symbol, Shape{1, length_, width}, Axis::kChannels, {first, first + length_ * width}};
}

void Explainer::NormaliseHeads() {
  const OpenHeadNorms& norms = *layer_.head_norms;
  const auto normalise = [&](const std::vector<float>& gain, std::vector<float>& rows) {
    RmsNorm(gain, norms.epsilon).Forward(rows.data(), static_cast<int64_t>(rows.size()) / result_.d_k, rows.data());
  };
  normalise(norms.q, heads_.q);
  normalise(norms.k, heads_.k);
  Add(StepKind::kHeadNorm).tensors = {{"g_Q", Shape{result_.d_k}, Axis::kChannels, norms.q},
                                      {"g_K", Shape{result_.d_k}, Axis::kChannels, norms.k},
                                      OfHeads("Q", heads_.q, result_.heads),
                                      OfHeads("K", heads_.k, result_.kv_heads)};
}

void Explainer::Turn() {
  const RopeTable& table = layer_.rope->table;
  const ConstTensor cos(table.cos.data(), table.shape), sin(table.sin.data(), table.shape);
  RopeOptions options;
  options.pairing = layer_.rope->pairing;
  const auto turn = [&](std::vector<float>& rows, int64_t heads) {
    const Tensor x(rows.data(), Shape{1, heads, length_, result_.d_k});
    RotaryEmbed(x, cos, sin, options, x);
  };
  turn(heads_.q, result_.heads);
  turn(heads_.k, result_.kv_heads);
  const int64_t pairs = table.shape[table.shape.rank - 1];
  Add(StepKind::kTurn).tensors = {Rows("cos", table.cos, pairs), Rows("sin", table.sin, pairs),
                                  OfHeads("Q'", heads_.q, result_.heads), OfHeads("K'", heads_.k, result_.kv_heads)};
}

void Explainer::AddScores() {
  Add(StepKind::kScores).tensors = {
      PerHead("S", heads_.Pairs(RowKind::kRawScores, Unmasked(1)), Axis::kTokens)};
  if (!simplified()) {
    Add(StepKind::kScale).tensors = {
        PerHead("S'", heads_.Pairs(RowKind::kRawScores, Unmasked(result_.scale)), Axis::kTokens)};
  }
  if (result_.causal) {
    Add(StepKind::kMask).tensors = {
        PerHead("M", heads_.Pairs(RowKind::kBiasedScores, Masked()), Axis::kTokens)};
  }
}

void Explainer::AddWeights() {
  weights_ = heads_.Pairs(RowKind::kWeights, Masked());
  Add(StepKind::kSoftmax).tensors = {PerHead("A", weights_, Axis::kTokens)};
  if (request_.level != ExplainLevel::kHead) return;
  AttentionOptions unscaled = Masked();
  unscaled.scale = 1;
  Add(StepKind::kSaturation).tensors = {PerHead("U", heads_.Pairs(RowKind::kWeights, unscaled), Axis::kTokens)};
  if (result_.causal) AddOtherOrder();
}

// Softmax over all keys first, the mask afterwards.
void Explainer::AddOtherOrder() {
  ExplainedTensor all = PerHead("F", heads_.Pairs(RowKind::kWeights, Unmasked(result_.scale)), Axis::kTokens);
  ExplainedTensor divided = all, again = all;
  divided.symbol = "R";
  again.symbol = "P";
  for (int64_t i = 0; i < length_; ++i) {
    float* r = divided.values.data() + i * length_;
    float* p = again.values.data() + i * length_;
    for (int64_t j = 0; j < length_; ++j) {
      p[j] = Visible(i, j) ? std::exp(p[j]) : 0;  // weights are at most 1
      if (!Visible(i, j)) r[j] = 0;
    }
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
  AttentionOptions options = Masked();
  out_ = heads_.Sum(options);
  ExplainedStep& step = Add(StepKind::kSum);
  step.tensors.push_back(PerHead("Z", out_, Axis::kChannels));
  if (!drops()) return;
  options.dropout_p = request_.dropout_p;
  options.seed = request_.seed;
  dropped_out_ = heads_.Sum(options);
  step.tensors.push_back(PerHead("Z'", dropped_out_, Axis::kChannels));
}

// The layer's last multiply, of (H, T, Dv).
std::vector<float> Explainer::Output(const std::vector<float>& heads) const {
  const MultiHeadParameters& p = layer_.parameters;
  const Linear output(heads_.heads * heads_.d_v,
                      LinearPart{p.w_o.data(), p.b_o.empty() ? nullptr : p.b_o.data(), config_.d_out});
  std::vector<float> y(static_cast<size_t>(length_ * config_.d_out));
  output.Forward(SwapAxes(heads, heads_.heads, length_, heads_.d_v).data(), length_, y.data());
  return y;
}

void Explainer::AddOutput() {
  const MultiHeadParameters& p = layer_.parameters;
  const int64_t width = heads_.heads * heads_.d_v;
  Add(StepKind::kConcat).tensors = {Rows("Z", SwapAxes(out_, heads_.heads, length_, heads_.d_v), width)};
  if (!config_.output_projection) return;
  ExplainedStep& step = Add(StepKind::kOutput);
  step.tensors.push_back(
      {"W_O", Shape{width, config_.d_out}, Axis::kChannels, Transposed(p.w_o, config_.d_out, width)});
  if (!p.b_o.empty()) step.tensors.push_back({"b_O", Shape{config_.d_out}, Axis::kChannels, p.b_o});
  step.tensors.push_back(Rows("Y", Output(out_), config_.d_out));
  if (drops()) step.tensors.push_back(Rows("Y'", Output(dropped_out_), config_.d_out));
}

}  // namespace

Explanation Explain(const OpenLayer& layer, const ExplainRequest& request) {
  Explanation explanation = Explainer(layer, request).Run();
  for (const ExplainedStep& step : explanation.steps) {
    for (const ExplainedTensor& tensor : step.tensors) CheckFinite(tensor.values, layer.model);
  }
  return explanation;
}

}  // namespace qkv
