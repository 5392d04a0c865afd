// Hugging Face config.json: what a model's settings are, read strictly. A setting that is missing, out of range
// or not supported is refused by its name, so that no model runs with settings other than its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/json.h"

namespace qkv {

// A JSON object whose members are fetched by type. All errors are Error{kFile} naming file and key, what was
// expected and what is there. A null member counts as absent.
class JsonObject {
 public:
  struct IntRange {
    int64_t least, most;  // both allowed
  };
  struct OpenRange {
    double above, below;  // both excluded
  };

  JsonObject(nlohmann::json object, std::string where);

  bool Has(const char* key) const { return Find(key) != nullptr; }
  int64_t Int(const char* key, IntRange range) const;
  int64_t IntOr(const char* key, int64_t fallback, IntRange range) const;
  double Real(const char* key, OpenRange range) const;
  double RealOr(const char* key, double fallback, OpenRange range) const;
  bool BoolOr(const char* key, bool fallback) const;
  std::string String(const char* key) const;
  std::string StringOr(const char* key, const std::string& fallback) const;
  std::vector<std::string> Strings(const char* key) const;  // an array of strings
  std::vector<int64_t> IntsOr(const char* key, IntRange range) const;  // a number or an array of them; else none
  std::optional<JsonObject> Object(const char* key) const;  // its place is called `where`, key
  // One of `choices`; others are refused with the list.
  std::string ChoiceOr(const char* key, const std::string& fallback,
                       const std::vector<std::string_view>& choices) const;

  // A member that is not among `known` is refused: a setting that nobody here knows.
  void AllowOnly(const std::vector<std::string_view>& known) const;

  // For rules over several keys.
  [[noreturn]] void Refuse(const std::string& reason, const std::string& expected,
                           const std::string& got) const;

 private:
  const nlohmann::json* Find(const char* key) const;
  const nlohmann::json& Require(const char* key) const;
  [[noreturn]] void RefuseValue(const char* key, const std::string& expected, const nlohmann::json& got) const;

  nlohmann::json object_;
  std::string where_;
};

JsonObject ParseConfig(std::string_view text, const std::string& where);
JsonObject ReadConfig(const std::filesystem::path& file);

std::string ModelType(const JsonObject& config);  // "bert", "gpt2", ...; not empty

// Names and defaults are those of transformers' BertConfig.
struct BertConfig {
  int64_t vocab_size = 0, hidden_size = 0, num_hidden_layers = 0, num_attention_heads = 0,
          intermediate_size = 0;
  int64_t max_position_embeddings = 0, type_vocab_size = 0;
  double layer_norm_eps = 0;
  std::string hidden_act;  // "gelu", "gelu_new", "gelu_pytorch_tanh" or "relu"
};

BertConfig ReadBertConfig(const JsonObject& config);

}  // namespace qkv
