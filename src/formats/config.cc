#include "formats/config.h"

#include <algorithm>
#include <utility>

#include "qkv/error.h"

namespace qkv {
namespace {

using nlohmann::json;

constexpr JsonLimits kConfigLimits{.max_bytes = size_t{16} << 20, .max_depth = 64, .max_values = 1'000'000};
constexpr JsonObject::IntRange kSize{1, int64_t{1} << 31};
constexpr JsonObject::IntRange kLayers{1, 4096};  // each takes memory before its tensors are looked up

std::string Joined(const std::vector<std::string_view>& choices) {
  std::string text;
  for (std::string_view choice : choices) text += (text.empty() ? "" : ", ") + std::string(choice);
  return text;
}

}  // namespace

JsonObject::JsonObject(json object, std::string where) : object_(std::move(object)), where_(std::move(where)) {
  if (!object_.is_object()) Refuse("wrong kind of JSON", "an object", QuoteJson(object_));
}

void JsonObject::Refuse(const std::string& reason, const std::string& expected, const std::string& got) const {
  throw Error(ErrorCode::kFile, reason, where_, expected, got);
}

void JsonObject::RefuseValue(const char* key, const std::string& expected, const json& got) const {
  Refuse(std::string("unsupported ") + key, expected, QuoteJson(got));
}

const json* JsonObject::Find(const char* key) const {
  const auto place = object_.find(key);
  return place == object_.end() || place->is_null() ? nullptr : &*place;
}

const json& JsonObject::Require(const char* key) const {
  const json* value = Find(key);
  if (value == nullptr) throw Error(ErrorCode::kFile, std::string("no ") + key, where_);
  return *value;
}

int64_t JsonObject::Int(const char* key, IntRange range) const {
  const json& value = Require(key);
  // A number past 2^63 is kept unsigned and would come out negative.
  const bool representable =
      value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
  const int64_t number = representable ? value.get<int64_t>() : 0;
  if (!representable || number < range.least || number > range.most) {
    RefuseValue(key, "a whole number from " + std::to_string(range.least) + " to " + std::to_string(range.most),
                value);
  }
  return number;
}

int64_t JsonObject::IntOr(const char* key, int64_t fallback, IntRange range) const {
  return Has(key) ? Int(key, range) : fallback;
}

double JsonObject::Real(const char* key, OpenRange range) const {
  const json& value = Require(key);
  const double number = value.is_number() ? value.get<double>() : range.above;
  if (!(number > range.above && number < range.below)) {
    RefuseValue(key, "a number between " + json(range.above).dump() + " and " + json(range.below).dump(),
                value);
  }
  return number;
}

double JsonObject::RealOr(const char* key, double fallback, OpenRange range) const {
  return Has(key) ? Real(key, range) : fallback;
}

bool JsonObject::BoolOr(const char* key, bool fallback) const {
  const json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) RefuseValue(key, "true or false", *value);
  return value->get<bool>();
}

std::string JsonObject::String(const char* key) const {
  const json& value = Require(key);
  if (!value.is_string()) RefuseValue(key, "a string", value);
  return value.get<std::string>();
}

std::string JsonObject::StringOr(const char* key, const std::string& fallback) const {
  return Has(key) ? String(key) : fallback;
}

std::string JsonObject::ChoiceOr(const char* key, const std::string& fallback,
                                 const std::vector<std::string_view>& choices) const {
  const std::string value = StringOr(key, fallback);
  if (std::find(choices.begin(), choices.end(), value) == choices.end()) {
    RefuseValue(key, (choices.size() > 1 ? "one of " : "") + Joined(choices), json(value));
  }
  return value;
}

std::vector<std::string> JsonObject::Strings(const char* key) const {
  const json& values = Require(key);
  const bool strings = values.is_array() && std::all_of(values.begin(), values.end(),
                                                        [](const json& value) { return value.is_string(); });
  if (!strings) RefuseValue(key, "an array of strings", values);
  return values.get<std::vector<std::string>>();
}

std::vector<int64_t> JsonObject::IntsOr(const char* key, IntRange range) const {
  const json* values = Find(key);
  if (values == nullptr) return {};
  if (!values->is_array()) return {Int(key, range)};
  std::vector<int64_t> numbers;
  for (const json& value : *values) {
    numbers.push_back(JsonObject(json{{key, value}}, where_).Int(key, range));
  }
  return numbers;
}

std::optional<JsonObject> JsonObject::Object(const char* key) const {
  const json* value = Find(key);
  if (value == nullptr) return {};
  return JsonObject(*value, where_ + ", " + key);
}

void JsonObject::AllowOnly(const std::vector<std::string_view>& known) const {
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      Refuse("unsupported setting", "one of " + Joined(known), QuoteJson(key));
    }
  }
}

JsonObject ParseConfig(std::string_view text, const std::string& where) {
  return JsonObject(ParseJson(text, where, kConfigLimits), where);
}

JsonObject ReadConfig(const std::filesystem::path& file) {
  return JsonObject(ReadJsonFile(file, kConfigLimits), file.string());
}

std::string ModelType(const JsonObject& config) {
  const std::string type = config.String("model_type");
  if (type.empty()) config.Refuse("empty model_type", "an architecture's name", "''");
  return type;
}

BertConfig ReadBertConfig(const JsonObject& config) {
  BertConfig bert;
  bert.vocab_size = config.Int("vocab_size", kSize);
  bert.hidden_size = config.Int("hidden_size", kSize);
  bert.num_hidden_layers = config.Int("num_hidden_layers", kLayers);
  bert.num_attention_heads = config.Int("num_attention_heads", kSize);
  bert.intermediate_size = config.Int("intermediate_size", kSize);
  bert.max_position_embeddings = config.Int("max_position_embeddings", kSize);
  bert.type_vocab_size = config.IntOr("type_vocab_size", 2, kSize);
  bert.layer_norm_eps = config.RealOr("layer_norm_eps", 1e-12, {0, 1});
  bert.hidden_act = config.ChoiceOr("hidden_act", "gelu", {"gelu", "gelu_new", "gelu_pytorch_tanh", "relu"});
  if (bert.hidden_size % bert.num_attention_heads != 0) {
    config.Refuse("hidden_size is not a multiple of num_attention_heads",
                  "a multiple of " + std::to_string(bert.num_attention_heads),
                  std::to_string(bert.hidden_size));
  }
  // Settings that would change what the model computes.
  config.ChoiceOr("position_embedding_type", "absolute", {"absolute"});
  for (const char* key : {"is_decoder", "add_cross_attention"}) {
    if (config.BoolOr(key, false)) config.Refuse(std::string("unsupported ") + key, "false", "true");
  }
  return bert;
}

}  // namespace qkv
