#include "models/bert_layer.h"

#include <algorithm>
#include <array>

#include "models/layer_count.h"
#include "qkv/error.h"

namespace qkv {
namespace {

constexpr const char* kWordEmbeddings = "embeddings.word_embeddings.weight";

// Bytes of widened rows (4 C channels each) that pass through the rest of a layer at a time: they then stay in
// the second-level caches of two cores of 2 MiB, and the multiplies are tall enough to run at full speed.
constexpr int64_t kWidenedBytes = 3 << 20;

// Rows of each of the equal parts that pass at a time: a small last part would be multiplied at half the speed.
// Whole tiles of 16 rows.
int64_t RowsAtOnce(int64_t rows, int64_t row_bytes) {
  const int64_t most = std::max<int64_t>(16, kWidenedBytes / row_bytes);
  const int64_t parts = std::max<int64_t>(1, (rows + most - 1) / most);
  return ((rows + parts - 1) / parts + 15) / 16 * 16;
}

Activation ActivationOf(const BertConfig& config) {
  if (config.hidden_act == "relu") return Activation::kRelu;
  return config.hidden_act == "gelu" ? Activation::kGeluErf : Activation::kGeluTanh;
}

Linear ReadLinear(const BertTensors& tensors, const std::string& name, int64_t inputs, int64_t outputs,
                  DType dtype, Activation activation = Activation::kNone) {
  const Floats weight = tensors.Matrix(name + ".weight", outputs, inputs);
  const Floats bias = tensors.Vector(name + ".bias", outputs);
  return Linear(inputs, LinearPart{weight.values.data(), bias.values.data(), outputs}, activation, dtype);
}

// W_Q, W_K and W_V in one multiply.
Linear ReadQkv(const BertTensors& tensors, const std::string& name, int64_t width, DType dtype) {
  std::array<Floats, 3> weights, biases;
  std::array<LinearPart, 3> parts;
  const std::array<const char*, 3> names{"query", "key", "value"};
  for (size_t i = 0; i < parts.size(); ++i) {
    weights[i] = tensors.Matrix(name + "." + names[i] + ".weight", width, width);
    biases[i] = tensors.Vector(name + "." + names[i] + ".bias", width);
    parts[i] = {weights[i].values.data(), biases[i].values.data(), width};
  }
  return Linear(width, parts, Activation::kNone, dtype);
}

std::string LayerName(int64_t index) { return "encoder.layer." + std::to_string(index); }

}  // namespace

BertTensors::BertTensors(const TensorFiles& files) : files_(files) {
  const std::string headed = std::string("bert.") + kWordEmbeddings;
  if (files.Find(kWordEmbeddings) == nullptr && files.Find(headed) != nullptr) prefix_ = "bert.";
}

void BertTensors::CheckLayers(int64_t layers) const {
  const auto name = [&](int64_t layer) { return prefix_ + LayerName(layer) + ".attention.self.query.weight"; };
  RefuseMoreLayers([&](int64_t layer) { return files_.Find(name(layer)) != nullptr; }, layers,
                   "tensor " + name(layers));
}

Floats BertTensors::Matrix(const std::string& name, int64_t rows, int64_t columns) const {
  return files_.RequireFloats(prefix_ + name, {rows, columns});
}

Floats BertTensors::Vector(const std::string& name, int64_t size) const {
  return files_.RequireFloats(prefix_ + name, {size});
}

LayerNorm BertTensors::Norm(const std::string& name, const BertConfig& config) const {
  const bool converted = files_.Find(prefix_ + name + ".gamma") != nullptr;
  const Floats gain = Vector(name + (converted ? ".gamma" : ".weight"), config.hidden_size);
  const Floats shift = Vector(name + (converted ? ".beta" : ".bias"), config.hidden_size);
  return LayerNorm(gain.values, shift.values, static_cast<float>(config.layer_norm_eps));
}

MultiHeadParameters ReadAttention(const BertTensors& tensors, int64_t width, int64_t index) {
  const std::string attention = LayerName(index) + ".attention.";
  const auto copy = [](const Floats& floats) {
    return std::vector<float>(floats.values.begin(), floats.values.end());
  };
  const auto weight = [&](const char* name) {
    return copy(tensors.Matrix(attention + name + ".weight", width, width));
  };
  const auto bias = [&](const char* name) { return copy(tensors.Vector(attention + name + ".bias", width)); };
  return {weight("self.query"), weight("self.key"), weight("self.value"), weight("output.dense"),
          bias("self.query"),   bias("self.key"),   bias("self.value"),   bias("output.dense")};
}

BertLayer::BertLayer(const BertTensors& tensors, const BertConfig& config, int64_t index, DType dtype)
    : qkv_(ReadQkv(tensors, LayerName(index) + ".attention.self", config.hidden_size, dtype)),
      output_(ReadLinear(tensors, LayerName(index) + ".attention.output.dense", config.hidden_size,
                         config.hidden_size, dtype)),
      output_norm_(tensors.Norm(LayerName(index) + ".attention.output.LayerNorm", config)),
      up_(ReadLinear(tensors, LayerName(index) + ".intermediate.dense", config.hidden_size,
                     config.intermediate_size, dtype, ActivationOf(config))),
      down_(ReadLinear(tensors, LayerName(index) + ".output.dense", config.intermediate_size,
                       config.hidden_size, dtype)),
      down_norm_(tensors.Norm(LayerName(index) + ".output.LayerNorm", config)) {}

void BertLayer::Finish(ConstRows attended, int64_t rows, const HiddenRows& h, Rows scratch) const {
  const int64_t width = output_.outputs(), at_once = PartRows(rows);
  for (int64_t first = 0; first < rows; first += at_once) {
    const int64_t count = std::min(at_once, rows - first);
    const HiddenRows part = h.From(first * width);
    output_.Forward(attended.From(first * width), count, part.values, Into::kAdd);
    output_norm_.Forward(part.values, count, part.values, part.rounded);
    up_.Forward(part.operand(), count, scratch);
    down_.Forward(scratch, count, part.values, Into::kAdd);
    down_norm_.Forward(part.values, count, part.values, part.rounded);
  }
}

int64_t BertLayer::PartRows(int64_t rows) const {
  return RowsAtOnce(rows, up_.outputs() * static_cast<int64_t>(SizeOf(operand())));
}

int64_t BertLayer::ScratchSize(int64_t rows) const { return PartRows(rows) * up_.outputs(); }

}  // namespace qkv
