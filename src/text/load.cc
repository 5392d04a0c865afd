#include <filesystem>
#include <optional>

#include "qkv/error.h"
#include "qkv/tokenizer.h"
#include "runtime/mapped_file.h"
#include "text/tokenizer_json.h"
#include "text/vocab_txt.h"

namespace qkv {
namespace {

// A link that leads nowhere is present: another file must not stand in for it.
bool Present(const std::filesystem::path& path) {
  std::error_code unseen;  // then it counts as absent
  return exists(symlink_status(path, unseen));
}

std::unique_ptr<const Tokenizer> LoadVocabulary(const std::filesystem::path& directory) {
  const auto vocabulary_path = directory / "vocab.txt", config_path = directory / "tokenizer_config.json";
  if (Present(directory / "added_tokens.json")) {
    throw Error(ErrorCode::kFile, "unsupported beside a vocab.txt", (directory / "added_tokens.json").string(),
                "tokenizer.json");
  }
  const MappedFile vocabulary(vocabulary_path);
  std::optional<MappedFile> config;
  if (Present(config_path)) config.emplace(config_path);
  return TokenizerFromVocabulary({vocabulary.text(), vocabulary_path.string()},
                                 {config ? config->text() : "{}", config_path.string()});
}

}  // namespace

std::unique_ptr<const Tokenizer> LoadTokenizer(const std::filesystem::path& directory) {
  std::error_code unseen;
  if (!is_directory(directory, unseen)) throw Error(ErrorCode::kFile, "no such folder", directory.string());
  const auto json_path = directory / "tokenizer.json";
  if (Present(json_path)) {
    const MappedFile file(json_path);
    return TokenizerFromJson(file.text(), json_path.string());
  }
  if (Present(directory / "vocab.txt")) return LoadVocabulary(directory);
  throw Error(ErrorCode::kFile, "no tokenizer", directory.string(), "tokenizer.json or vocab.txt");
}

}  // namespace qkv
