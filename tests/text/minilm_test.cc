// The default model's tokenizer against the reference. It fails where the model is absent: `make look` gets it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "support/model_folder.h"
#include "text/golden.h"

namespace qkv::test {
namespace {

using testing::ElementsAre;

const Tokenizer& MiniLm() {
  static const auto tokenizer = LoadTokenizer(ModelFolder("minilm"));
  return *tokenizer;
}

TEST(MiniLm, TextbookAndHardTexts) {
  const auto cases = ReadGolden("minilm.json");
  EXPECT_GE(cases.size(), 40u);
  for (const auto& expected : cases) ExpectCase(MiniLm(), expected);
}

TEST(MiniLm, RandomTexts) {
  const auto rows = ReadGolden("minilm_random.json");
  EXPECT_GE(rows.size(), 5000u);
  for (const auto& row : rows) {
    const std::string text = row[0];
    std::vector<int64_t> ids = {101}, spans = {0, 0};
    for (const auto& id : row[1]) ids.push_back(id);
    int64_t last = 0;  // the row holds bytes skipped, bytes taken for each token
    for (size_t i = 0; i < row[2].size(); i += 2) {
      const int64_t first = last + row[2][i].get<int64_t>();
      last = first + row[2][i + 1].get<int64_t>();
      spans.insert(spans.end(), {first, last});
    }
    ids.push_back(102);
    spans.insert(spans.end(), {0, 0});
    const Encoding encoding = MiniLm().Encode(text);
    ASSERT_EQ(encoding.ids, ids) << row;
    ASSERT_EQ(FlatSpans(encoding), spans) << row;
  }
}

TEST(MiniLm, LabelsJoinReadably) {
  const Encoding encoding = MiniLm().Encode("Unaffable [SEP] \u00e7a, [UNK] #\U0001F999");
  EXPECT_THAT(encoding.tokens, ElementsAre("[CLS]", "una", "##ffa", "##ble", "[SEP]", "ca", ",", "[UNK]", "#",
                                           "[UNK]", "[SEP]"));
  EXPECT_THAT(encoding.labels,
              ElementsAre("[CLS]", "una", "ffa", "ble", "[SEP]", "ca", ",", "[UNK]", "#", "[UNK]", "[SEP]"));
  EXPECT_THAT(encoding.continues,
              ElementsAre(false, false, true, true, false, false, false, false, false, false, false));
  // The written [UNK] is a special token, the unknown llama is a word.
  EXPECT_THAT(encoding.special,
              ElementsAre(true, false, false, false, true, false, false, true, false, false, true));
}

TEST(MiniLm, VocabularySizeAndDecode) {
  EXPECT_EQ(MiniLm().vocab_size(), 30522);
  EXPECT_EQ(MiniLm().Decode({}), "");
  EXPECT_EQ(MiniLm().Decode({101, 2023, 1012, 100, 2183, 1005, 1056, 102, 999, 103, 5}),
            "this. going ' t! [unused4]");
}

TEST(MiniLm, VocabTxtGivesTheSameTokenizer) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "minilm_vocab_only";
  std::filesystem::create_directories(folder);
  for (const char* name : {"vocab.txt", "tokenizer_config.json", "sentence_bert_config.json"}) {
    copy_file(ModelFolder("minilm") / name, folder / name, std::filesystem::copy_options::overwrite_existing);
  }
  const auto tokenizer = LoadTokenizer(folder);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(tokenizer->vocab_size(), MiniLm().vocab_size());
  for (const auto& expected : ReadGolden("minilm.json")) ExpectCase(*tokenizer, expected);
}

// Linear in the text: each of these would take minutes if it were quadratic. Sanitizers slow it down a little.
TEST(MiniLm, MegabytesTakeLittleTime) {
  std::string sentences, marks = "a";
  while (sentences.size() < 1'000'000)
    sentences += "The chicken didn't cross the road because it was too tired. ";
  while (marks.size() < 1'000'000) marks += marks.size() % 4 == 1 ? "\u0301" : "\u0323";
  const std::pair<std::string, size_t> texts[] = {{sentences, 233'340},
                                                  {std::string(1'000'000, 'a'), 3},
                                                  {std::string(1'000'000, ' '), 2},
                                                  {std::string(1'000'000, '['), 1'000'002},
                                                  {marks, 3}};
  for (const auto& [text, tokens] : texts) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(MiniLm().Encode(text).ids.size(), tokens) << text.substr(0, 20);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_LT(seconds.count(), 10);
  }
}

}  // namespace
}  // namespace qkv::test
