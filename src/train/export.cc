#include "train/export.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "formats/config.h"
#include "formats/safetensors_writer.h"
#include "formats/tensor_files.h"
#include "kernels/round.h"
#include "qkv/error.h"
#include "runtime/write_file.h"

namespace qkv::train {
namespace {

constexpr const char* kPrefix = "transformer.";

// The double that prints as the float does: 0.1, not 0.10000000149.
double AsPrinted(float value) {
  char text[32];
  const char* end = std::to_chars(text, text + sizeof text, value).ptr;
  double printed = 0;
  std::from_chars(text, end, printed);
  return printed;
}

// Sizes are bounded here too: they come from a file.
DecoderConfig ConfigOf(const JsonObject& json) {
  constexpr JsonObject::IntRange kSize{1, int64_t{1} << 30};
  json.ChoiceOr("model_type", "gpt2", {"gpt2"});
  json.ChoiceOr("activation_function", "gelu_new", {"gelu_new", "gelu_pytorch_tanh"});
  DecoderConfig config;
  config.layers = json.Int("n_layer", kSize);
  config.heads = json.Int("n_head", kSize);
  config.width = json.Int("n_embd", kSize);
  config.context = json.Int("n_positions", kSize);
  config.vocab = json.Int("vocab_size", kSize);
  config.norm_epsilon = static_cast<float>(json.RealOr("layer_norm_epsilon", 1e-5, {0, 1}));
  config.dropout = static_cast<float>(json.RealOr("resid_pdrop", 0.1, {-1, 1}));
  const bool tied = json.BoolOr("tie_word_embeddings", true);
  config.head_weight = tied ? HeadWeight::kTied : HeadWeight::kOwn;
  json.IntOr("n_inner", config.inner(), {config.inner(), config.inner()});
  if (!json.BoolOr("scale_attn_weights", true))
    json.Refuse("scores without a scale", "scale_attn_weights true", "false");
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
    if (json.BoolOr(key, false))
      json.Refuse("not a GPT-2 that can be trained here", std::string(key) + " false", "true");
  }
  return config;
}

DecoderConfig CheckedConfig(const std::filesystem::path& file) {
  const DecoderConfig config = ConfigOf(ReadConfig(file));
  try {
    CheckConfig(config);
  } catch (const Error& error) {
    throw Error(ErrorCode::kFile, error.reason(), file.string() + ", " + error.where(), error.expected(),
                error.got());
  }
  return config;
}

}  // namespace

std::string StoredName(const std::string& parameter) {
  return parameter == "lm_head.weight" ? parameter : kPrefix + parameter;
}

std::string ConfigJson(const DecoderConfig& config, Precision stored) {
  const nlohmann::ordered_json json = {{"architectures", {"GPT2LMHeadModel"}},
                                       {"model_type", "gpt2"},
                                       {"activation_function", "gelu_new"},
                                       {"n_layer", config.layers},
                                       {"n_head", config.heads},
                                       {"n_embd", config.width},
                                       {"n_inner", nullptr},
                                       {"n_positions", config.context},
                                       {"vocab_size", config.vocab},
                                       {"layer_norm_epsilon", AsPrinted(config.norm_epsilon)},
                                       {"attn_pdrop", AsPrinted(config.dropout)},
                                       {"embd_pdrop", AsPrinted(config.dropout)},
                                       {"resid_pdrop", AsPrinted(config.dropout)},
                                       {"initializer_range", 0.02},
                                       {"tie_word_embeddings", config.head_weight == HeadWeight::kTied},
                                       {"bos_token_id", nullptr},
                                       {"eos_token_id", nullptr},
                                       {"dtype", stored == Precision::kBFloat16 ? "bfloat16" : "float32"}};
  return json.dump(2) + "\n";
}

void WriteDecoder(const std::filesystem::path& folder, const DecoderConfig& config,
                  std::span<const float> parameters, Precision stored) {
  const ParameterTable table(config);
  std::vector<BFloat16> rounded;
  if (stored == Precision::kBFloat16) {
    rounded.resize(parameters.size());
    RoundToBFloat16(parameters.data(), static_cast<int64_t>(parameters.size()), rounded.data());
  }
  std::vector<TensorToWrite> tensors;
  for (const ParameterEntry& entry : table.entries()) {
    const auto first = static_cast<size_t>(entry.offset), count = static_cast<size_t>(entry.size());
    TensorToWrite tensor;
    tensor.name = StoredName(entry.name);
    tensor.dtype = stored == Precision::kBFloat16 ? DType::kBF16 : DType::kF32;
    for (int axis = 0; axis < entry.shape.rank; ++axis) tensor.shape.push_back(entry.shape[axis]);
    tensor.data = stored == Precision::kBFloat16 ? std::as_bytes(std::span(rounded).subspan(first, count))
                                                 : std::as_bytes(parameters.subspan(first, count));
    tensors.push_back(std::move(tensor));
  }
  WriteSafetensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
  WriteWholeFile(folder / "config.json", ConfigJson(config, stored));
}

LoadedDecoder ReadDecoder(const std::filesystem::path& folder) {
  LoadedDecoder loaded;
  loaded.config = CheckedConfig(folder / "config.json");
  const TensorFiles files(folder);
  const ParameterTable table(loaded.config);
  const bool prefixed = files.Find(StoredName("wte.weight")) != nullptr;
  loaded.parameters = ZeroParameters(table);
  for (const ParameterEntry& entry : table.entries()) {
    std::vector<int64_t> shape(entry.shape.size.begin(), entry.shape.size.begin() + entry.shape.rank);
    const std::string name = prefixed ? StoredName(entry.name) : entry.name;
    const Floats floats = files.RequireFloats(name, shape);
    std::copy_n(floats.values.data(), entry.size(), loaded.parameters.data() + entry.offset);
  }
  return loaded;
}

}  // namespace qkv::train
