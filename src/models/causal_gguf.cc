// Causal models from GGUF files: their settings are metadata, their names llama.cpp's.
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "formats/gguf.h"
#include "models/causal_model.h"
#include "models/gguf_config.h"
#include "models/gguf_tokenizer.h"
#include "models/registry.h"

namespace qkv {
namespace {

std::vector<int64_t> EndTokens(const JsonObject& all, int64_t vocab) {
  std::vector<int64_t> ends;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    if (all.Has(key)) ends.push_back(all.Int(key, {0, vocab - 1}));
  }
  return ends;
}

int64_t CountParameters(const Gguf& file) {
  int64_t count = 0;
  for (const TensorEntry& entry : file.entries()) count += entry.elements;
  return count;
}

}  // namespace

std::unique_ptr<const Model> LoadGguf(const std::string& name, const std::filesystem::path& path,
                                      const ModelOptions& options) {
  const auto file = std::make_shared<const Gguf>(path);
  // Reading the vocabulary takes as long as all else. Deferred where there is no thread to be had.
  constexpr std::launch kBeside = std::launch::async | std::launch::deferred;
  auto tokenizer = std::async(kBeside, [&] { return LoadGgufTokenizer(file->metadata(), path.string()); });
  const JsonObject all = file->metadata().Settings();
  const CausalTensors tensors =
      GgufTensors(all, [file](std::string_view tensor) { return file->Find(tensor); }, path.string());
  CausalConfig config = ReadGgufConfig(all, tensors);
  config.end_ids = EndTokens(all, config.vocab);
  ModelInfo info = CausalInfo(name, config, CountParameters(*file));
  info.chat_template = all.StringOr("tokenizer.chat_template", "");
  return std::make_unique<CausalModel>(std::move(info), config, tensors, tokenizer.get(), options.dtype);
}

}  // namespace qkv
