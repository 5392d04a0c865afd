#include "train/sample.h"

#include <algorithm>
#include <utility>

#include "models/causal_config.h"
#include "models/causal_model.h"
#include "models/causal_tensors.h"
#include "qkv/generate.h"
#include "text/tokenizer_json.h"
#include "train/export.h"
#include "train/parameters.h"

namespace qkv::train {
namespace {

constexpr const char* kWhere = "the model in training";
constexpr size_t kPromptBytes = 20;  // and on to the end of the word
// Below the model's own chances: a small model's rare choices are mostly noise.
constexpr float kTemperature = 0.8f, kTopP = 0.95f;

std::vector<TensorEntry> EntriesOf(const ParameterTable& table, std::span<const float> parameters) {
  std::vector<TensorEntry> entries;
  for (const ParameterEntry& parameter : table.entries()) {
    TensorEntry& entry = entries.emplace_back();
    entry.name = StoredName(parameter.name);
    entry.shape.assign(parameter.shape.size.begin(), parameter.shape.size.begin() + parameter.shape.rank);
    entry.elements = parameter.size();
    entry.bytes = std::as_bytes(
        parameters.subspan(static_cast<size_t>(parameter.offset), static_cast<size_t>(parameter.size())));
  }
  return entries;
}

// The decoder as the model that `qkv generate` would load, without the way over a disk. The entries outlive it.
CausalModel ModelOf(const DecoderConfig& decoder, const ParameterTable& table,
                    const std::vector<TensorEntry>& entries, const std::string& tokenizer_json) {
  const CausalConfig config = ReadGpt2Config(ParseConfig(ConfigJson(decoder, Precision::kFloat32), kWhere));
  const auto find = [&](std::string_view name) {
    const auto found =
        std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.name == name; });
    return found == entries.end() ? nullptr : &*found;
  };
  return {CausalInfo(kWhere, config, table.count()), config,
          CausalTensors(kGpt2Names, find, kWhere), TokenizerFromJson(tokenizer_json, kWhere),
          std::nullopt};
}

}  // namespace

Sampler::Sampler(const DecoderConfig& config, std::string tokenizer_json, const Tokenizer& tokenizer,
                 std::span<const int32_t> tokens)
    : config_(config), tokenizer_json_(std::move(tokenizer_json)) {
  const auto half = static_cast<size_t>(std::max<int64_t>(config.context / 2, 1));
  const auto first = tokens.first(std::min(tokens.size(), half));
  prompt_ids_.assign(first.begin(), first.end());
  prompt_ = tokenizer.Decode(prompt_ids_);
  const size_t end = prompt_.find_first_of(" \t\n", kPromptBytes);
  if (end == std::string::npos) return;
  prompt_.resize(end);
  prompt_ids_ = tokenizer.Encode(prompt_).ids;
}

Sample Sampler::Write(std::span<const float> parameters, int64_t most_tokens, uint64_t seed) const {
  const ParameterTable table(config_);
  const std::vector<TensorEntry> entries = EntriesOf(table, parameters);
  const CausalModel model = ModelOf(config_, table, entries, tokenizer_json_);
  GenerateOptions options;
  options.sampling.temperature = kTemperature;
  options.sampling.top_p = kTopP;
  options.sampling.seed = seed;
  options.max_tokens = most_tokens;
  return {prompt_, Generate(model, prompt_ids_, options).text};
}

}  // namespace qkv::train
