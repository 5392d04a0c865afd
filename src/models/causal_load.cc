// Loading causal models from Hugging Face folders.
#include <future>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "models/causal_model.h"
#include "models/registry.h"
#include "runtime/json.h"
#include "runtime/mapped_file.h"

namespace qkv {
namespace {

int64_t CountParameters(const TensorFiles& files) {
  int64_t count = 0;
  for (const Safetensors& file : files.files()) {
    for (const TensorEntry& entry : file.entries()) count += entry.elements;
  }
  return count;
}

// Beside the tokenizer's settings, or in a file of its own; some folders have several templates by name, none of which
// is the model's one.
std::string ReadChatTemplate(const std::filesystem::path& folder) {
  const std::filesystem::path program = folder / "chat_template.jinja", settings = folder / "tokenizer_config.json";
  std::error_code failed;
  if (std::filesystem::exists(program, failed)) {
    const MappedFile file(program);
    return std::string(file.text());
  }
  if (!std::filesystem::exists(settings, failed)) return {};
  const nlohmann::json config = ReadJsonFile(settings);
  const auto found = config.is_object() ? config.find("chat_template") : config.end();
  return found != config.end() && found->is_string() ? found->get<std::string>() : "";
}

// The end tokens of generation_config.json win over config.json's, as in transformers.
std::vector<int64_t> ReadEndTokens(const ModelSource& source, const CausalConfig& config) {
  const std::filesystem::path file = source.folder / "generation_config.json";
  std::error_code failed;
  if (!std::filesystem::exists(file, failed)) return config.end_ids;
  const std::vector<int64_t> ends = ReadConfig(file).IntsOr("eos_token_id", {0, int64_t{1} << 31});
  return ends.empty() ? config.end_ids : ends;
}

std::unique_ptr<const Model> LoadFolder(const ModelSource& source, const CausalConfig& config,
                                        const CausalNames& names) {
  // Reading the vocabulary takes as long as packing the parameters. Deferred where there is no thread to be had.
  constexpr std::launch kBeside = std::launch::async | std::launch::deferred;
  auto tokenizer = std::async(kBeside, [&] { return LoadTokenizer(source.folder); });
  const auto files = std::make_shared<const TensorFiles>(source.folder);
  const CausalTensors tensors(names, [files](std::string_view name) { return files->Find(name); },
                              source.folder.string());
  ModelInfo info = CausalInfo(source.name, config, CountParameters(*files));
  info.chat_template = ReadChatTemplate(source.folder);
  info.end_ids = ReadEndTokens(source, config);
  return std::make_unique<CausalModel>(std::move(info), config, tensors, tokenizer.get(),
                                       source.options.dtype);
}

}  // namespace

std::unique_ptr<const Model> LoadLlama(const ModelSource& source) {
  return LoadFolder(source, ReadLlamaConfig(source.config), kLlamaNames);
}

std::unique_ptr<const Model> LoadGpt2(const ModelSource& source) {
  return LoadFolder(source, ReadGpt2Config(source.config), kGpt2Names);
}

}  // namespace qkv
