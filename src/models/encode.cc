#include "qkv/encode.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/finite.h"
#include "models/truncate.h"
#include "qkv/error.h"

namespace qkv {
namespace {

constexpr size_t kTextsAtOnce = 32;

// Sequences of one length for Model::Forward, padded with token 0.
struct Padded {
  std::vector<int64_t> ids, lengths;
  int64_t length = 0;
};

Padded Pad(const std::vector<std::vector<int64_t>>& texts) {
  Padded padded;
  for (const auto& ids : texts) padded.length = std::max(padded.length, static_cast<int64_t>(ids.size()));
  for (const auto& ids : texts) {
    padded.ids.insert(padded.ids.end(), ids.begin(), ids.end());
    padded.ids.resize(padded.ids.size() + static_cast<size_t>(padded.length) - ids.size());
    padded.lengths.push_back(static_cast<int64_t>(ids.size()));
  }
  return padded;
}

std::vector<int64_t> TokensOf(const Model& model, const std::vector<std::string>& texts, size_t i, int64_t most,
                              const SentenceOptions& options) {
  Encoding encoding = model.tokenizer().Encode(texts[i]);
  if (encoding.ids.empty()) throw Error(ErrorCode::kInvalidArgument, "the text is empty: it has no tokens");
  const auto count = static_cast<int64_t>(encoding.ids.size());
  if (count > most) {
    Truncate(encoding, static_cast<size_t>(most));
    if (options.on_cut) options.on_cut(i, count, most);
  }
  return std::move(encoding.ids);
}

// The mean of `rows` rows, scaled to length 1.
void AppendMean(const float* hidden, int64_t rows, int64_t width, std::vector<float>& to) {
  std::vector<double> sum(static_cast<size_t>(width));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t c = 0; c < width; ++c) sum[static_cast<size_t>(c)] += static_cast<double>(hidden[row * width + c]);
  }
  double squares = 0;
  for (double value : sum) squares += value * value;
  const double scale = squares > 0 ? 1 / std::sqrt(squares) : 0;
  for (double value : sum) to.push_back(static_cast<float>(value * scale));
}

}  // namespace

std::vector<float> EncodeSentences(const Model& model, const std::vector<std::string>& texts,
                                   const SentenceOptions& options) {
  if (model.info().causal) {
    throw Error(ErrorCode::kInvalidArgument, "a causal model's tokens do not know what comes after them",
                model.info().name, "an encoder such as minilm", model.info().architecture);
  }
  const int64_t width = model.info().width, most = std::min(options.max_tokens, model.info().max_tokens);
  if (most < 1) throw Error(ErrorCode::kInvalidArgument, "bad number of tokens", "max_tokens", "at least 1", "0");
  std::vector<float> vectors;
  for (size_t first = 0; first < texts.size(); first += kTextsAtOnce) {
    std::vector<std::vector<int64_t>> batch;
    for (size_t i = first; i < std::min(texts.size(), first + kTextsAtOnce); ++i) {
      batch.push_back(TokensOf(model, texts, i, most, options));
    }
    const Padded padded = Pad(batch);
    const auto count = static_cast<int64_t>(batch.size());
    const std::vector<float> hidden = model.Forward(padded.ids, count, &padded.lengths, options.progress);
    for (int64_t b = 0; b < count; ++b) {
      AppendMean(hidden.data() + b * padded.length * width, padded.lengths[static_cast<size_t>(b)], width, vectors);
    }
  }
  CheckFinite(vectors, model.info().name);
  return vectors;
}

double CosineSimilarity(std::span<const float> a, std::span<const float> b) {
  double product = 0, a_squares = 0, b_squares = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    product += x * y;
    a_squares += x * x;
    b_squares += y * y;
  }
  const double lengths = std::sqrt(a_squares * b_squares);
  return lengths > 0 ? product / lengths : 0;
}

}  // namespace qkv
