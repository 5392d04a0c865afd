#include "train/run_json.h"

#include <cstdint>
#include <nlohmann/json.hpp>

#include "qkv/error.h"
#include "runtime/json.h"

namespace qkv::train {
namespace {

using nlohmann::json;

// Calls visit(key, value) for every field, the same list for reading and writing.
template <class Config, class Options, class Visit>
void ForEachField(Config& config, Options& options, const Visit& visit) {
  visit("layers", config.layers);
  visit("heads", config.heads);
  visit("width", config.width);
  visit("context", config.context);
  visit("vocab", config.vocab);
  visit("dropout", config.dropout);
  visit("norm_epsilon", config.norm_epsilon);
  visit("head_weight", config.head_weight);
  visit("steps", options.steps);
  visit("warmup", options.warmup_steps);
  visit("batch", options.batch);
  visit("length", options.length);
  visit("accumulate", options.accumulate);
  visit("lr", options.learning_rate);
  visit("final_lr", options.final_learning_rate);
  visit("beta1", options.beta1);
  visit("beta2", options.beta2);
  visit("epsilon", options.epsilon);
  visit("weight_decay", options.weight_decay);
  visit("clip", options.clip);
  visit("seed", options.seed);
  visit("precision", options.precision);
}

template <class Settings, class Visit> void ForEachSetting(Settings& settings, const Visit& visit) {
  visit("validation", settings.validation_share);
  visit("validate_every", settings.validate_every);
  visit("sample_every", settings.sample_every);
  visit("checkpoint_every", settings.checkpoint_every);
  visit("keep", settings.keep);
  visit("export_dtype", settings.exported);
}

[[noreturn]] void Fail(const std::string& where, const std::string& key, const char* expected, const json& got) {
  throw Error(ErrorCode::kFile, "bad value", where + ": " + key, expected, QuoteJson(got));
}

json ToJson(HeadWeight value) { return value == HeadWeight::kTied ? "tied" : "own"; }
json ToJson(Precision value) { return value == Precision::kFloat32 ? "f32" : "bf16"; }
template <class T> json ToJson(const T& value) { return value; }

void FromJson(const json& from, const std::string& where, const std::string& key, HeadWeight& to) {
  if (from == "tied") to = HeadWeight::kTied;
  else if (from == "own") to = HeadWeight::kOwn;
  else Fail(where, key, "tied or own", from);
}
void FromJson(const json& from, const std::string& where, const std::string& key, Precision& to) {
  if (from == "f32") to = Precision::kFloat32;
  else if (from == "bf16") to = Precision::kBFloat16;
  else Fail(where, key, "f32 or bf16", from);
}
void FromJson(const json& from, const std::string& where, const std::string& key, int64_t& to) {
  if (!from.is_number_integer() || (from.is_number_unsigned() && from.get<uint64_t>() > INT64_MAX)) {
    Fail(where, key, "a whole number", from);
  }
  to = from.get<int64_t>();
}
void FromJson(const json& from, const std::string& where, const std::string& key, uint64_t& to) {
  if (!from.is_number_unsigned()) Fail(where, key, "a whole number from 0", from);
  to = from.get<uint64_t>();
}
template <class Real> void FromJson(const json& from, const std::string& where, const std::string& key, Real& to) {
  if (!from.is_number()) Fail(where, key, "a number", from);
  to = from.get<Real>();
}

nlohmann::ordered_json ToObject(const DecoderConfig& config, const TrainOptions& options) {
  nlohmann::ordered_json object;
  ForEachField(config, options, [&](const char* key, const auto& value) { object[key] = ToJson(value); });
  return object;
}

}  // namespace

std::string RunJson(const DecoderConfig& config, const TrainOptions& options) {
  return ToObject(config, options).dump(2) + "\n";
}

std::string RunJson(const DecoderConfig& config, const TrainOptions& options, const RunSettings& settings) {
  nlohmann::ordered_json object = ToObject(config, options);
  ForEachSetting(settings, [&](const char* key, const auto& value) { object[key] = ToJson(value); });
  return object.dump(2) + "\n";
}

Difference FirstDifference(const DecoderConfig& first_config, const TrainOptions& first_options,
                           const DecoderConfig& second_config, const TrainOptions& second_options) {
  const nlohmann::ordered_json first = ToObject(first_config, first_options);
  const nlohmann::ordered_json second = ToObject(second_config, second_options);
  for (const auto& [key, value] : first.items()) {
    if (second[key] != value) return {key, value.dump(), second[key].dump()};
  }
  return {};
}

std::set<std::string> ReadRunJson(const std::string& text, const std::string& where, DecoderConfig& config,
                                  TrainOptions& options, RunSettings& settings) {
  const json object = ParseJson(text, where);
  if (!object.is_object()) throw Error(ErrorCode::kFile, "bad configuration", where, "an object", QuoteJson(object));
  std::set<std::string> named;
  const auto read = [&](const char* key, auto& value) {
    const auto found = object.find(key);
    if (found == object.end()) return;
    FromJson(*found, where, key, value);
    named.insert(key);
  };
  ForEachField(config, options, read);
  ForEachSetting(settings, read);
  for (const auto& [key, value] : object.items()) {
    if (!named.contains(key)) throw Error(ErrorCode::kFile, "unknown key", where + ": " + key);
  }
  return named;
}

}  // namespace qkv::train
