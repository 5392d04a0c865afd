// Training a vocabulary: the reference's trainer agrees, and the same text always gives the same one.
#include "text/bpe_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "qkv/error.h"
#include "text/golden.h"
#include "text/tokenizer_json.h"
#include "text/word_splitter.h"

namespace qkv::test {
namespace {

using testing::HasSubstr;

TrainedBpe Train(const std::string& text, int64_t size, const Progress& progress = nullptr) {
  WordCounts counts;
  counts.Add(text, "text");
  BpeTrainerOptions options;
  options.vocabulary_size = size;
  return TrainBpe(counts, options, progress);
}

std::vector<std::string> Tokens(const TrainedBpe& trained) {
  std::vector<std::string> tokens = trained.special;
  tokens.insert(tokens.end(), trained.tokens.begin(), trained.tokens.end());
  return tokens;
}

TEST(BpeTrainer, EqualsTheReference) {
  const auto golden = ReadGolden("trained.json");
  const TrainedBpe trained = Train(golden.at("text"), 700);
  const std::vector<std::string> tokens = Tokens(trained);
  EXPECT_EQ(tokens, golden.at("tokens").get<std::vector<std::string>>());
  ASSERT_EQ(trained.merges.size(), golden.at("merges").size());
  for (size_t i = 0; i < trained.merges.size(); ++i) {
    const auto [left, right] = trained.merges[i];
    EXPECT_EQ(golden.at("merges")[i],
              (std::vector{tokens[static_cast<size_t>(left)], tokens[static_cast<size_t>(right)]}))
        << i;
  }
}

TEST(BpeTrainer, TheFileLoadsAndCoversTheText) {
  const std::string text = ReadGolden("trained.json").at("text");
  const TrainedBpe trained = Train(text, 500);
  const auto tokenizer = TokenizerFromJson(ToTokenizerJson(trained), "tokenizer.json");
  EXPECT_EQ(tokenizer->vocab_size(), 500);
  EXPECT_EQ(tokenizer->IdOf("<|endoftext|>"), 0);
  const Encoding encoding = tokenizer->Encode(text.substr(0, text.find("<|")));
  EXPECT_EQ(tokenizer->Decode(encoding.ids), text.substr(0, text.find("<|")));
  EXPECT_EQ(trained.text_bytes, static_cast<int64_t>(text.size()));
  EXPECT_LT(trained.text_tokens, trained.text_bytes * 2 / 3);
}

TEST(BpeTrainer, OrderOfTextsDoesNotMatter) {
  const auto texts = ReadGolden("bpe_texts.json");
  WordCounts forward, backward;
  for (const std::string text : texts) forward.Add(text, "text");
  for (auto text = texts.rbegin(); text != texts.rend(); ++text) backward.Add(text->get<std::string>(), "text");
  BpeTrainerOptions options;
  options.vocabulary_size = 500;
  EXPECT_EQ(ToTokenizerJson(TrainBpe(forward, options, nullptr)),
            ToTokenizerJson(TrainBpe(backward, options, nullptr)));
}

// Long texts are split a megabyte at a time; where, must not show.
TEST(BpeTrainer, ChunksCutNoWords) {
  const std::string line = "In the beginning  \n\n  it was\u2026 3 o'clock,\r\n\tand so\n on.\n \n";
  std::string text;
  while (text.size() < 3'000'000) text += line;
  WordCounts counts;
  counts.Add(text, "text");
  std::vector<TextRange> ranges;
  SplitGpt2Words(text, {0, text.size()}, ranges);
  std::unordered_map<std::string, int64_t> expected;
  for (const TextRange& range : ranges) ++expected[text.substr(range.first, range.last - range.first)];
  EXPECT_TRUE(counts.words() == expected);
}

TEST(BpeTrainer, TiesGoToLowerIds) {
  const TrainedBpe trained = Train("ab ab cd cd\n", 260);
  const std::vector<std::string> tokens = Tokens(trained);
  // ab twice, " c", "cd" and " a" or " ab" less or as often: "a" comes before all of them but the space, whose
  // character is U+0120.
  ASSERT_EQ(trained.merges.size(), 3u);
  EXPECT_EQ(tokens[257], "ab");
  EXPECT_EQ(tokens[258], "cd");
  EXPECT_EQ(tokens[259], "\u0120cd");
}

TEST(BpeTrainer, StopsWhereNothingOccursTwice) {
  const TrainedBpe trained = Train("abc", 1000);
  EXPECT_EQ(Tokens(trained).size(), 257u);
  EXPECT_TRUE(trained.merges.empty());
}

TEST(BpeTrainer, ATokenSpelledLikeASpecialOneIsTheSpecialOne) {
  std::string text;
  for (int i = 0; i < 9; ++i) text += "<|<|";
  WordCounts counts;
  counts.Add(text, "text");
  BpeTrainerOptions options;
  options.vocabulary_size = 300;
  options.special = {"<|"};
  const TrainedBpe trained = TrainBpe(counts, options, nullptr);
  EXPECT_NO_THROW(TokenizerFromJson(ToTokenizerJson(trained), "tokenizer.json"));
  EXPECT_EQ(std::count(trained.tokens.begin(), trained.tokens.end(), "<|"), 0);
}

TEST(BpeTrainer, BytesAreTheirOwnIds) {
  const auto tokenizer = TokenizerFromJson(ToTokenizerJson(ByteVocabulary()), "tokenizer.json");
  EXPECT_EQ(tokenizer->vocab_size(), 256);
  EXPECT_EQ(tokenizer->Encode("A\n\u00e9 <|endoftext|>").ids.size(), 18u);
  EXPECT_EQ(tokenizer->Encode("A\n\u00e9").ids, (std::vector<int64_t>{0x41, 0x0A, 0xC3, 0xA9}));
  EXPECT_EQ(tokenizer->Decode({0xC3}), "\uFFFD");
}

TEST(BpeTrainer, ReportsAndCanBeStopped) {
  const std::string text = ReadGolden("trained.json").at("text");
  int64_t last = 0;
  Train(text, 500, [&](int64_t done, int64_t total) {
    EXPECT_GE(done, last);
    EXPECT_EQ(total, 500);
    last = done;
    return true;
  });
  EXPECT_EQ(last, 500);
  try {
    Train(text, 500, [](int64_t, int64_t) { return false; });
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCancelled);
  }
}

std::string Message(const std::string& text, int64_t size, const std::vector<std::string>& special) {
  try {
    WordCounts counts;
    counts.Add(text, "book.txt");
    BpeTrainerOptions options;
    options.vocabulary_size = size;
    options.special = special;
    TrainBpe(counts, options, nullptr);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(BpeTrainer, RefusesBadInput) {
  EXPECT_EQ(Message("ab\xff", 300, {}), "book.txt: invalid UTF-8 at byte 2");
  EXPECT_THAT(Message("ab", 256, {"<s>"}), HasSubstr("vocabulary_size: out of range, expected 257"));
  EXPECT_THAT(Message("ab", int64_t{1} << 40, {}), HasSubstr("vocabulary_size: out of range"));
  EXPECT_EQ(Message("ab", 300, {"x", "x"}), "special: empty or twice, got 'x'");
  EXPECT_EQ(Message("ab", 300, {""}), "special: empty or twice, got ''");
  EXPECT_EQ(Message("", 256, {}), "no error");
}

}  // namespace
}  // namespace qkv::test
