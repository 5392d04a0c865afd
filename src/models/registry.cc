#include "models/registry.h"

#include <array>
#include <string_view>
#include <system_error>
#include <vector>

#include "formats/file_kind.h"
#include "models/store.h"
#include "qkv/error.h"
#include "runtime/mapped_file.h"
#include "runtime/printable.h"

namespace qkv {
namespace {

struct Family {
  std::string_view model_type;
  std::unique_ptr<const Model> (*load)(const ModelSource&);
};

constexpr std::array kFamilies{Family{"bert", LoadBert},   Family{"gpt2", LoadGpt2},
                               Family{"llama", LoadLlama}, Family{"mistral", LoadLlama},
                               Family{"qwen2", LoadLlama}, Family{"qwen3", LoadLlama}};

std::string FamilyNames() {
  std::string names;
  for (const Family& family : kFamilies) names += (names.empty() ? "" : ", ") + std::string(family.model_type);
  return names;
}

const std::filesystem::path& OnlyOne(const std::vector<std::filesystem::path>& files,
                                     const std::filesystem::path& folder) {
  if (files.size() == 1) return files.front();
  std::string names;
  for (const auto& file : files) names += (names.empty() ? "" : ", ") + file.filename().string();
  throw Error(ErrorCode::kInvalidArgument, "several GGUF files in the folder", folder.string(),
              "the path of one of them", Printable(names));
}

}  // namespace

std::unique_ptr<const Model> LoadModel(const std::string& name_or_path, const ModelOptions& options) {
  if (options.dtype && options.dtype != DType::kF32 && options.dtype != DType::kBF16) {
    throw Error(ErrorCode::kInvalidArgument, "models do not run in this type", "dtype", "float32 or bfloat16",
                NameOf(*options.dtype));
  }
  const std::filesystem::path folder = FindModel(name_or_path);
  std::error_code failed;
  if (!std::filesystem::is_directory(folder, failed)) {
    if (DetectKind(MappedFile(folder).bytes()) == FileKind::kGguf)
      return LoadGguf(name_or_path, folder, options);
    throw Error(ErrorCode::kFile, "not a model", folder.string(),
                "a GGUF file, a folder with one, or a folder with config.json, model.safetensors and the "
                "tokenizer's files");
  }
  if (const auto files = GgufFilesIn(folder); !files.empty()) {
    return LoadGguf(name_or_path, OnlyOne(files, folder), options);
  }
  const std::filesystem::path config_file = folder / "config.json";
  const ModelSource source{name_or_path, folder, ReadConfig(config_file), options};
  const std::string type = ModelType(source.config);
  for (const Family& family : kFamilies) {
    if (family.model_type == type) return family.load(source);
  }
  throw Error(ErrorCode::kFile, "unsupported kind of model", config_file.string() + ", model_type",
              FamilyNames(), Printable(type));
}

}  // namespace qkv
