#include "models/gguf_tokenizer.h"

#include "qkv/error.h"
#include "text/ggml_vocabulary.h"

namespace qkv {
namespace {

class Keys {
 public:
  Keys(const GgufMetadata& metadata, const std::string& where) : metadata_(metadata), where_(where) {}

  bool Has(const char* key) const { return metadata_.Find(Name(key)) != nullptr; }

  std::string Text(const char* key) const { return std::string(Value(key, AsString, "string").value_or("")); }
  std::optional<bool> Bool(const char* key) const { return Value(key, AsBool, "boolean"); }
  std::optional<int64_t> Int(const char* key) const { return Value(key, AsInt, "integer"); }

  std::vector<std::string_view> Strings(const char* key) const { return metadata_.Strings(Name(key)); }
  std::vector<int64_t> Ints(const char* key) const {
    return Has(key) ? metadata_.Ints(Name(key)) : std::vector<int64_t>();
  }
  std::vector<float> Floats(const char* key) const {
    return Has(key) ? metadata_.Floats(Name(key)) : std::vector<float>();
  }

 private:
  static std::string Name(const char* key) { return std::string("tokenizer.ggml.") + key; }

  // Nothing where the key is absent.
  template <class T>
  std::optional<T> Value(const char* key, std::optional<T> (*as)(const GgufValue&),
                         const char* expected) const {
    const GgufValue* value = metadata_.Find(Name(key));
    if (value == nullptr) return {};
    if (const auto taken = as(*value)) return taken;
    throw Error(ErrorCode::kFile, "wrong type", where_ + ": " + Name(key), expected, NameOf(value->kind));
  }

  const GgufMetadata& metadata_;
  const std::string& where_;
};

}  // namespace

std::unique_ptr<const Tokenizer> LoadGgufTokenizer(const GgufMetadata& metadata, const std::string& where) {
  const Keys keys(metadata, where);
  GgmlVocabulary vocabulary{.where = where,
                            .model = keys.Text("model"),
                            .pre = keys.Text("pre"),
                            .tokens = keys.Strings("tokens"),
                            .types = keys.Ints("token_type"),
                            .scores = keys.Floats("scores"),
                            .merges = {},
                            .start = keys.Int("bos_token_id"),
                            .end = keys.Int("eos_token_id"),
                            .unknown = keys.Int("unknown_token_id"),
                            .adds_start = keys.Bool("add_bos_token"),
                            .adds_end = keys.Bool("add_eos_token"),
                            .adds_space_prefix = keys.Bool("add_space_prefix")};
  if (vocabulary.model == "gpt2") vocabulary.merges = keys.Strings("merges");
  return TokenizerFromGgml(vocabulary);
}

}  // namespace qkv
