#include "sample.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>

namespace qkv::test {
namespace {

std::ifstream Open(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + file.string());
  return in;
}

std::vector<int64_t> UpTo(int64_t count) {
  std::vector<int64_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

}  // namespace

ModelCapture ReadCapture(const std::filesystem::path& folder, const std::string& name) {
  auto described = Open(folder / (name + ".json"));
  const auto json = nlohmann::json::parse(described);
  ModelCapture capture;
  capture.model = json.at("model");
  capture.tokens = json.at("tokens");
  capture.labels = json.at("labels");
  capture.continues = json.at("continues").get<std::vector<bool>>();
  capture.special = json.at("special").get<std::vector<bool>>();
  capture.spans = json.at("spans");
  capture.ids = json.at("ids").get<std::vector<int64_t>>();
  capture.layers = json.at("layers");
  capture.heads = json.at("heads");
  capture.causal = json.value("causal", false);
  capture.layer_ids = UpTo(capture.layers);
  capture.head_ids = UpTo(capture.heads);
  const auto tokens = static_cast<int64_t>(capture.tokens.size());
  capture.query_ids = UpTo(tokens);
  capture.weights.resize(capture.layers * capture.heads * tokens * tokens);
  auto values = Open(folder / (name + ".f32"));
  const auto bytes = static_cast<std::streamsize>(capture.weights.size() * sizeof(float));
  if (!values.read(reinterpret_cast<char*>(capture.weights.data()), bytes))
    throw std::runtime_error("too few weights in " + name);
  return capture;
}

std::string ReadText(const std::filesystem::path& folder, const std::string& name) {
  auto described = Open(folder / (name + ".json"));
  return nlohmann::json::parse(described).at("text");
}

ModelCapture MakeCapture(const std::vector<std::string>& labels, const std::vector<float>& weights) {
  ModelCapture capture;
  const auto tokens = static_cast<int64_t>(labels.size());
  capture.model = "made up";
  capture.tokens = capture.labels = labels;
  capture.continues.assign(tokens, false);
  for (const std::string& label : labels) capture.special.push_back(label.starts_with("["));
  capture.ids = capture.query_ids = UpTo(tokens);
  capture.layers = capture.heads = 1;
  capture.layer_ids = capture.head_ids = {0};
  capture.weights = weights;
  return capture;
}

ModelCapture KeepTop(const ModelCapture& capture, int64_t k) {
  ModelCapture top = capture;
  const auto tokens = static_cast<int64_t>(capture.tokens.size());
  top.weights.clear();
  top.top_k = k;
  for (size_t row = 0; row < capture.weights.size(); row += tokens) {
    std::vector<int64_t> keys = UpTo(tokens);
    std::stable_sort(keys.begin(), keys.end(),
                     [&](int64_t a, int64_t b) { return capture.weights[row + a] > capture.weights[row + b]; });
    for (int64_t i = 0; i < k; ++i) {
      top.top_keys.push_back(i < tokens ? keys[i] : -1);
      top.top_weights.push_back(i < tokens ? capture.weights[row + keys[i]] : 0.0f);
    }
  }
  return top;
}

}  // namespace qkv::test
