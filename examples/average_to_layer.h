// What the second lesson's program and its picture share: MiniLM, its sentences, and one of its layers on them.
#pragma once

#include <qkv/explain.h>
#include <qkv/model.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

namespace lesson {

inline constexpr int64_t kLayer = 5, kHead = 11;

inline std::string Chicken(const char* end) {
  return std::string("The chicken didn't cross the road because it was too ") + end;
}
inline constexpr const char* kPond = "I walked along the pond, and noticed one of the trees along the bank.";

inline const qkv::Model& MiniLm() {
  static const std::unique_ptr<const qkv::Model> model = qkv::LoadModel("minilm");
  return *model;
}

inline qkv::OpenLayer Open(const std::string& text, int64_t layer = kLayer) {
  return MiniLm().Open(MiniLm().tokenizer().Encode(text), layer);
}

// Where a word stands among the tokens; the model's tokenizer writes words in small letters.
inline int64_t Find(const qkv::OpenLayer& layer, const char* word) {
  return std::find(layer.tokens.begin(), layer.tokens.end(), word) - layer.tokens.begin();
}

inline qkv::Explanation Explain(const qkv::OpenLayer& layer, qkv::ExplainLevel level, const char* word,
                                int64_t head = kHead) {
  qkv::ExplainRequest request;
  request.level = level;
  request.head = level == qkv::ExplainLevel::kHead ? head : 0;
  request.token = Find(layer, word);
  return qkv::Explain(layer, request);
}

// The marked token's row of a step's tensor, of one head where the tensor has several.
inline const float* Row(const qkv::Explanation& e, qkv::StepKind kind, const char* symbol, int64_t head = 0) {
  const qkv::ExplainedTensor& tensor = *e.Find(kind, symbol);
  const qkv::Shape& shape = tensor.shape;
  const int64_t rows = shape[shape.rank - 2], columns = shape[shape.rank - 1];
  return tensor.values.data() + (head * rows + e.token) * columns;
}

}  // namespace lesson
