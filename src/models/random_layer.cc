#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>

#include "qkv/error.h"
#include "qkv/explain.h"
#include "runtime/memory.h"
#include "runtime/random.h"
#include "runtime/threads.h"
#include "text/bert_text.h"
#include "text/utf8.h"

namespace qkv {
namespace {

// Streams of random numbers under one seed.
enum class Stream : uint32_t { kWords, kQuery, kKey, kValue, kOutput };

// Uniform numbers with mean 0 and the variance given: four of each block of random bits.
void Fill(std::vector<float>& values, Stream stream, uint64_t seed, double variance) {
  constexpr size_t kTaskValues = size_t{1} << 16;
  const PhiloxKey key{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  const auto half_width = static_cast<float>(std::sqrt(3 * variance));
  const auto fill = [&](size_t first, size_t end) {
    for (size_t i = first; i < end; i += 4) {
      const uint64_t block = i / 4;
      const PhiloxCounter words = Philox4x32(
          {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), static_cast<uint32_t>(stream), 0},
          key);
      for (size_t lane = 0; lane < std::min<size_t>(4, end - i); ++lane) {
        values[i + lane] = half_width * (static_cast<float>(words[lane]) * 0x1p-31f - 1);
      }
    }
  };
  const size_t tasks = (values.size() + kTaskValues - 1) / kTaskValues;
  ParallelFor(static_cast<int64_t>(tasks), [&](int64_t task, int) {
    const size_t first = static_cast<size_t>(task) * kTaskValues;
    fill(first, std::min(values.size(), first + kTaskValues));
  });
}

void RequirePositive(int64_t size, const char* name) {
  if (size >= 1) return;
  throw Error(ErrorCode::kInvalidArgument, "bad size", name, "at least 1", std::to_string(size));
}

void CheckSizes(const RandomLayerSizes& sizes, double tokens) {
  RequirePositive(sizes.d_in, "d_in");
  RequirePositive(sizes.d_out, "d_out");
  RequirePositive(sizes.heads, "heads");
  if (sizes.d_out % sizes.heads != 0) {
    throw Error(ErrorCode::kInvalidArgument, "the output width cannot be divided among the heads", "d_out",
                "a multiple of heads = " + std::to_string(sizes.heads), std::to_string(sizes.d_out));
  }
  const auto d_in = static_cast<double>(sizes.d_in), d_out = static_cast<double>(sizes.d_out);
  RequireMemory(sizeof(float) * (3 * d_in * d_out + d_out * d_out + 2 * tokens * d_in), "the random layer");
}

// A row for each word; the same one where a word comes again.
std::vector<float> WordVectors(const std::vector<int64_t>& ids, int64_t width, uint64_t seed) {
  int64_t distinct = 0;
  for (const int64_t id : ids) distinct = std::max(distinct, id + 1);
  std::vector<float> table(static_cast<size_t>(distinct * width)), rows;
  Fill(table, Stream::kWords, seed, 1);
  rows.reserve(ids.size() * static_cast<size_t>(width));
  for (const int64_t id : ids) {
    const auto row = table.begin() + id * width;
    rows.insert(rows.end(), row, row + width);
  }
  return rows;
}

}  // namespace

Encoding EncodeWords(std::string_view text) {
  CheckUtf8(text, "text");
  BertNormalizer normalizer;
  normalizer.strip_accents = false;
  const std::vector<Character> characters = Normalize(normalizer, text, 0, static_cast<int64_t>(text.size()));
  Encoding encoding;
  std::unordered_map<std::string, int64_t> ids;
  for (const auto& word : SplitWords(characters)) {
    std::string spelling;
    for (const Character& c : word) AppendUtf8(c.value, spelling);
    const auto id = ids.emplace(spelling, static_cast<int64_t>(ids.size())).first->second;
    encoding.ids.push_back(id);
    encoding.tokens.push_back(spelling);
    encoding.span.emplace_back(word.front().first, word.back().last);
  }
  encoding.labels = encoding.tokens;
  encoding.continues.assign(encoding.ids.size(), false);
  encoding.special.assign(encoding.ids.size(), false);
  return encoding;
}

OpenLayer RandomLayer(const Encoding& words, const RandomLayerSizes& sizes, uint64_t seed) {
  CheckSizes(sizes, static_cast<double>(words.ids.size()));
  OpenLayer layer;
  layer.tokens = words.labels;
  layer.seed = seed;
  layer.config.d_in = sizes.d_in;
  layer.config.d_out = sizes.d_out;
  layer.config.num_heads = sizes.heads;
  layer.config.causal = Causal::kTopLeft;
  layer.config.output_bias = false;
  MultiHeadParameters& p = layer.parameters;
  const double variance = 1.0 / static_cast<double>(sizes.d_in);
  for (auto* matrix : {&p.w_q, &p.w_k, &p.w_v}) matrix->resize(static_cast<size_t>(sizes.d_out * sizes.d_in));
  p.w_o.resize(static_cast<size_t>(sizes.d_out * sizes.d_out));
  Fill(p.w_q, Stream::kQuery, seed, variance);
  Fill(p.w_k, Stream::kKey, seed, variance);
  Fill(p.w_v, Stream::kValue, seed, variance);
  Fill(p.w_o, Stream::kOutput, seed, 1.0 / static_cast<double>(sizes.d_out));
  layer.input = WordVectors(words.ids, sizes.d_in, seed);
  return layer;
}

}  // namespace qkv
