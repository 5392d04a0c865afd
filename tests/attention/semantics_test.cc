// The pictures and known answers of docs/semantics.md are what the library does. A fenced block tagged `mask`
// or `kept` begins with a line of settings, KEY=VALUE; its rows show which keys each query sees, or which
// weights dropout keeps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "qkv/attention.h"

namespace qkv {
namespace {

struct Picture {
  int line = 0;
  std::string tag;
  std::map<std::string, std::string> settings;
  std::vector<std::vector<int>> rows;

  int64_t Whole(const std::string& name, int64_t otherwise) const {
    return settings.contains(name) ? std::stoll(settings.at(name)) : otherwise;
  }
};

std::vector<int64_t> List(const std::string& text) {
  std::vector<int64_t> numbers;
  std::istringstream stream(text);
  for (std::string number; std::getline(stream, number, ',');) numbers.push_back(std::stoll(number));
  return numbers;
}

void AddRow(const std::string& text, Picture& picture) {
  std::istringstream words(text);
  std::vector<int> row;
  for (int cell; words >> cell;) row.push_back(cell);
  picture.rows.push_back(row);
}

void SetSettings(const std::string& text, Picture& picture) {
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    picture.settings[word.substr(0, equals)] = word.substr(equals + 1);
  }
}

std::vector<Picture> Pictures(const std::string& tag) {
  std::ifstream file(QKV_GOLDEN "/../../docs/semantics.md");
  std::vector<Picture> pictures;
  bool inside = false;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line == "```" + tag) {
      inside = true;
      pictures.push_back({number, tag, {}, {}});
    } else if (line == "```") {
      inside = false;
    } else if (inside && pictures.back().settings.empty()) {
      SetSettings(line, pictures.back());
    } else if (inside) {
      AddRow(line, pictures.back());
    }
  }
  return pictures;
}

AttentionOptions OptionsOf(const Picture& picture) {
  static const std::map<std::string, Causal> alignments = {
      {"none", Causal::kNone}, {"top_left", Causal::kTopLeft}, {"bottom_right", Causal::kBottomRight}};
  AttentionOptions options;
  for (const auto& [name, value] : picture.settings) {
    if (name == "causal")
      options.causal = alignments.at(value);
    else if (name == "left")
      options.window.left = std::stoll(value);
    else if (name == "right")
      options.window.right = std::stoll(value);
    else if (name == "offset")
      options.offset = List(value);
    else if (name == "q_lengths")
      options.q_lengths = List(value);
    else if (name == "kv_lengths")
      options.kv_lengths = List(value);
    else if (name == "cu_q")
      options.cu_q = List(value);
    else if (name == "cu_kv")
      options.cu_kv = List(value);
    else if (name == "seed")
      options.seed = std::stoull(value);
    else if (name == "p")
      options.dropout_p = std::stof(value);
    else if (name != "Tq" && name != "Tk" && name != "b" && name != "h")
      ADD_FAILURE() << "unknown setting " << name;
  }
  return options;
}

// Keys that reach a row: values are one-hot, so its output is its weights. Batches of one sequence, or packed.
void ExpectAsDrawn(const Picture& picture) {
  SCOPED_TRACE("docs/semantics.md:" + std::to_string(picture.line));
  const AttentionOptions options = OptionsOf(picture);
  const int64_t b = picture.Whole("b", 0), h = picture.Whole("h", 0);
  const int64_t queries = picture.Whole("Tq", options.cu_q ? options.cu_q->back() : 0);
  const int64_t keys = picture.Whole("Tk", options.cu_kv ? options.cu_kv->back() : 0);
  std::vector<float> q(static_cast<size_t>((b + 1) * (h + 1) * queries)),
      k(static_cast<size_t>((b + 1) * keys));
  std::vector<float> v(static_cast<size_t>(keys * keys)), out(q.size() * static_cast<size_t>(keys));
  for (int64_t j = 0; j < keys; ++j) v[static_cast<size_t>(j * keys + j)] = 1;
  if (options.cu_q) {
    Attention({q.data(), {queries, 1, 1}}, {k.data(), {keys, 1, 1}}, {v.data(), {keys, 1, keys}}, options,
              {out.data(), {queries, 1, keys}});
  } else {
    const ConstTensor values(v.data(), DType::kF32, {b + 1, 1, keys, keys}, {0, 0, keys, 1});
    Attention({q.data(), {b + 1, h + 1, queries, 1}}, {k.data(), {b + 1, 1, keys, 1}}, values, options,
              {out.data(), {b + 1, h + 1, queries, keys}});
  }
  ASSERT_EQ(picture.rows.size(), static_cast<size_t>(queries));
  for (int64_t i = 0; i < queries; ++i) {
    std::vector<int> seen;
    const int64_t first = ((b * (h + 1) + h) * queries + i) * keys;
    for (int64_t j = 0; j < keys; ++j) seen.push_back(out[static_cast<size_t>(first + j)] > 0 ? 1 : 0);
    EXPECT_EQ(seen, picture.rows[static_cast<size_t>(i)]) << "row " << i;
  }
}

TEST(Semantics, MasksAreAsDrawn) {
  const std::vector<Picture> pictures = Pictures("mask");
  EXPECT_GE(pictures.size(), 12u);
  for (const Picture& picture : pictures) ExpectAsDrawn(picture);
}

TEST(Semantics, DropoutKeepsTheWeightsOfTheTable) {
  const std::vector<Picture> pictures = Pictures("kept");
  EXPECT_GE(pictures.size(), 3u);
  for (const Picture& picture : pictures) ExpectAsDrawn(picture);
}

// Weights and lse of one query over keys with these scores, which enter as a bias.
struct Row {
  std::vector<float> weights;
  float lse = 0;
};

Row RowOf(std::vector<float> scores, AttentionOptions options) {
  const int64_t keys = static_cast<int64_t>(scores.size());
  const std::vector<float> zeros(scores.size());
  std::vector<float> one_hot(scores.size() * scores.size());
  for (size_t j = 0; j < scores.size(); ++j) one_hot[j * scores.size() + j] = 1;
  Row row{std::vector<float>(scores.size()), 0};
  options.bias = ConstTensor(scores.data(), {keys});
  const Tensor lse(&row.lse, {1, 1, 1});
  Attention({zeros.data(), {1, 1, 1, 1}}, {zeros.data(), {1, 1, keys, 1}}, {one_hot.data(), {1, 1, keys, keys}},
            options, {row.weights.data(), {1, 1, 1, keys}}, &lse);
  return row;
}

testing::Matcher<std::vector<float>> Are(const std::vector<float>& weights) {
  return testing::Pointwise(testing::FloatNear(5e-4f), weights);  // the page's three digits
}

TEST(Semantics, NumbersAreAsWritten) {
  const Row once = RowOf({0, 2}, {});
  EXPECT_THAT(once.weights, Are({0.119f, 0.881f}));
  EXPECT_THAT(RowOf(once.weights, {}).weights, Are({0.318f, 0.682f}));

  AttentionOptions capped;
  capped.softcap = 2.0f;
  EXPECT_THAT(RowOf({0, -HUGE_VALF}, capped).weights, Are({1, 0}));

  const float zero = 0;
  AttentionOptions sink;
  sink.sink = ConstTensor(&zero, {1});
  EXPECT_THAT(RowOf({0, 0}, sink).weights, Are({1.0f / 3, 1.0f / 3}));
  EXPECT_FLOAT_EQ(RowOf({0, 0}, sink).lse, std::log(3.0f));

  const float slope = 0.5f;
  AttentionOptions alibi;
  alibi.alibi_slopes = ConstTensor(&slope, {1});
  EXPECT_FLOAT_EQ(RowOf({0, 0, 0}, alibi).lse, std::log(1 + std::exp(-0.5f) + std::exp(-1.0f)));
}

TEST(Semantics, RowsThatSeeNothing) {
  const float third = 1.0f / 3;
  EXPECT_THAT(RowOf({-3.4e38f, -3.4e38f, -3.4e38f}, {}).weights, Are({third, third, third}));
  EXPECT_THAT(RowOf({-HUGE_VALF, -HUGE_VALF}, {}).weights, testing::ElementsAre(0, 0));
  EXPECT_EQ(RowOf({-HUGE_VALF}, {}).lse, -HUGE_VALF);

  const float two = 2;
  AttentionOptions sink;
  sink.sink = ConstTensor(&two, {1});
  EXPECT_EQ(RowOf({-HUGE_VALF}, sink).lse, 2);
  sink.q_lengths = {0};
  EXPECT_EQ(RowOf({0}, sink).lse, -HUGE_VALF);
}

// Scores of -inf from infinite inputs, not from a mask.
TEST(Semantics, VisibleInfinities) {
  const float q = 1, v[] = {5, 7};
  const auto out_of = [&](std::vector<float> k) {
    float out = -1;
    Attention({&q, {1, 1, 1, 1}}, {k.data(), {1, 1, 2, 1}}, {v, {1, 1, 2, 1}}, {}, {&out, {1, 1, 1, 1}});
    return out;
  };
  EXPECT_EQ(out_of({-HUGE_VALF, 1}), 7);
  EXPECT_EQ(out_of({-HUGE_VALF, -HUGE_VALF}), 0);
  EXPECT_TRUE(std::isnan(out_of({HUGE_VALF, 1})));
}

}  // namespace
}  // namespace qkv
