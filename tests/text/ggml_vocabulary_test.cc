// Tokenizers from the metadata of GGUF files: the same ids as from the tokenizer.json of the same model, and
// what is wrong with a file in one line.
#include "text/ggml_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "qkv/error.h"
#include "text/golden.h"
#include "text/tokenizer_json.h"

namespace qkv::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// What a converter writes for a tokenizer.json.
class Converted {
 public:
  Converted(const std::string& family, const std::string& model, const std::string& pre)
      : golden_(ReadGolden("bpe/" + family + ".json")) {
    const json& tokenizer = golden_.at("tokenizer");
    const json& pieces = tokenizer.at("model").at("vocab");
    tokens_.resize(pieces.size());
    types_.assign(pieces.size(), 1);
    for (const auto& [piece, id] : pieces.items()) tokens_[id.get<size_t>()] = piece;
    for (size_t id = 0; id < tokens_.size(); ++id)
      if (model == "llama" && tokens_[id].starts_with("<0x")) types_[id] = 6;
    for (const json& added : tokenizer.at("added_tokens")) {
      const auto id = added.at("id").get<size_t>();
      tokens_.resize(std::max(tokens_.size(), id + 1));
      types_.resize(tokens_.size());
      tokens_[id] = added.at("content");
      types_[id] = tokens_[id] == "<unk>" ? 2 : 3;
    }
    for (const json& merge : tokenizer.at("model").at("merges")) {
      merges_.push_back(merge.is_string() ? merge.get<std::string>()
                                          : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    }
    vocabulary_.where = "m.gguf";
    vocabulary_.model = model;
    vocabulary_.pre = pre;
  }

  GgmlVocabulary Get() const {
    GgmlVocabulary vocabulary = vocabulary_;
    vocabulary.tokens.assign(tokens_.begin(), tokens_.end());
    vocabulary.types = types_;
    if (vocabulary.model == "gpt2") vocabulary.merges.assign(merges_.begin(), merges_.end());
    for (size_t id = 0; vocabulary.model == "llama" && id < tokens_.size(); ++id)
      vocabulary.scores.push_back(-static_cast<float>(id));
    return vocabulary;
  }

  const json& golden() const { return golden_; }

 private:
  json golden_;
  std::vector<std::string> tokens_, merges_;
  std::vector<int64_t> types_;
  GgmlVocabulary vocabulary_;
};

void ExpectSame(const std::string& family, const GgmlVocabulary& vocabulary, const json& golden) {
  const auto expected = TokenizerFromJson(golden.at("tokenizer").dump(), family);
  const auto tokenizer = TokenizerFromGgml(vocabulary);
  EXPECT_EQ(tokenizer->vocab_size(), expected->vocab_size());
  for (const json& test : golden.at("cases")) {
    const std::string text = test.at("text");
    const Encoding encoding = tokenizer->Encode(text);
    EXPECT_EQ(encoding.ids, test.at("ids").get<std::vector<int64_t>>()) << family << ": " << text;
    EXPECT_EQ(tokenizer->Decode(encoding.ids), test.at("decoded").get<std::string>()) << family << ": " << text;
  }
  for (const std::string text : ReadGolden("bpe_texts.json"))
    ASSERT_EQ(tokenizer->Encode(text).ids, expected->Encode(text).ids) << family << ": " << text;
}

TEST(GgmlVocabulary, ByteLevelEqualsTokenizerJson) {
  for (const auto& [family, pre] : {std::pair("gpt2", "gpt-2"), std::pair("smollm", "smollm")}) {
    const Converted converted(family, "gpt2", pre);
    ExpectSame(family, converted.Get(), converted.golden());
  }
}

TEST(GgmlVocabulary, Llama3TakesWholeWordsAndAStart) {
  const Converted converted("llama3", "gpt2", "llama-bpe");
  GgmlVocabulary vocabulary = converted.Get();
  const auto start = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), "<|endoftext|>");
  vocabulary.start = start - vocabulary.tokens.begin();
  ExpectSame("llama3", vocabulary, converted.golden());
  vocabulary.adds_start = false;
  EXPECT_EQ(TokenizerFromGgml(vocabulary)->Encode("").ids.size(), 0u);
}

TEST(GgmlVocabulary, Qwen2ComposesCharacters) {
  const auto tokenizer = TokenizerFromGgml(Converted("gpt2", "gpt2", "qwen2").Get());
  EXPECT_EQ(tokenizer->Encode("e\u0301 12").ids, tokenizer->Encode("\u00e9 12").ids);
  EXPECT_EQ(tokenizer->Encode("12").ids.size(), 2u);
}

TEST(GgmlVocabulary, SentencePieceEqualsTokenizerJson) {
  const Converted converted("llama2", "llama", "");
  GgmlVocabulary vocabulary = converted.Get();
  vocabulary.unknown = 0;
  vocabulary.start = 1;
  vocabulary.end = 2;
  ExpectSame("llama2", vocabulary, converted.golden());

  vocabulary.adds_space_prefix = false;
  const Converted plain("llama2_no_prefix", "llama", "");
  ExpectSame("llama2_no_prefix", vocabulary, plain.golden());

  vocabulary.adds_end = true;
  EXPECT_EQ(TokenizerFromGgml(vocabulary)->Encode("").ids, (std::vector<int64_t>{1, 2}));
}

// Equal scores: the leftmost first, as in SentencePiece.
TEST(GgmlVocabulary, EqualScoresMergeFromTheLeft) {
  GgmlVocabulary vocabulary;
  vocabulary.where = "m.gguf";
  vocabulary.model = "llama";
  vocabulary.tokens = {"\u2581", "a", "b", "aa", "ab", "<s>"};
  vocabulary.types = {1, 1, 1, 1, 1, 3};
  vocabulary.scores = {0, 0, 0, -1, -1, 0};
  vocabulary.adds_start = false;
  vocabulary.adds_space_prefix = false;
  EXPECT_EQ(TokenizerFromGgml(vocabulary)->Encode("aab").ids, (std::vector<int64_t>{3, 2}));
}

// Leading spaces, tabs, text after a special token, digits, emoji.
TEST(GgmlVocabulary, SpacesAroundSpecialTokens) {
  Converted converted("llama2", "llama", "");
  GgmlVocabulary vocabulary = converted.Get();
  vocabulary.unknown = 0;
  vocabulary.start = 1;
  const auto tokenizer = TokenizerFromGgml(vocabulary);
  const auto mark = tokenizer->IdOf("\u2581").value();
  std::vector<int64_t> hello = tokenizer->Encode("Hello world").ids;
  hello.insert(hello.begin() + 1, mark);
  EXPECT_EQ(tokenizer->Encode(" Hello world").ids, hello);
  for (const char* text :
       {"Hello world", " Hello world", "\t\t\t\t\t\ttest", "3333", " this is \U0001F999.cpp"}) {
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text).ids), text);
  }
  const Encoding after = tokenizer->Encode("text</s> b");
  EXPECT_EQ(after.ids[after.ids.size() - 2], mark);  // of the space; the piece has one of its own before it
}

std::string Message(const std::function<void(GgmlVocabulary&)>& change) {
  const Converted converted("gpt2", "gpt2", "gpt-2");
  GgmlVocabulary vocabulary = converted.Get();
  change(vocabulary);
  try {
    TokenizerFromGgml(vocabulary);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFile);
    return error.what();
  }
  return "no error";
}

TEST(GgmlVocabulary, ErrorsNameFileAndKey) {
  using V = GgmlVocabulary;
  EXPECT_EQ(Message([](V&) {}), "no error");
  EXPECT_EQ(Message([](V& v) { v.model = "bert"; }),
            "m.gguf: tokenizer.ggml.model: unsupported, expected gpt2 or llama, got 'bert'");
  EXPECT_EQ(
      Message([](V& v) { v.pre = "viking"; }),
      "m.gguf: tokenizer.ggml.pre: unsupported, expected gpt-2, llama-bpe, smollm or qwen2, got 'viking'");
  EXPECT_THAT(Message([](V& v) { v.pre = ""; }), HasSubstr("tokenizer.ggml.pre: unsupported"));
  EXPECT_THAT(Message([](V& v) { v.tokens.clear(); }), HasSubstr("tokenizer.ggml.tokens: wrong length"));
  EXPECT_EQ(Message([](V& v) { v.tokens[5] = "\xff"; }),
            "m.gguf: tokenizer.ggml.tokens[5]: invalid UTF-8 at byte 0");
  EXPECT_EQ(Message([](V& v) { v.tokens[5] = v.tokens[4]; }),
            "m.gguf: tokenizer.ggml.tokens[5]: duplicate piece, got '%'");
  EXPECT_THAT(Message([](V& v) { v.types.pop_back(); }), HasSubstr("tokenizer.ggml.token_type: wrong length"));
  EXPECT_EQ(Message([](V& v) { v.merges[3] = "ab"; }), "m.gguf: tokenizer.ggml.merges[3]: no merge, got 'ab'");
  EXPECT_EQ(Message([](V& v) { v.merges[3] = "a qqq"; }),
            "m.gguf: tokenizer.ggml.merges[3]: not in the vocabulary, got 'qqq'");
  EXPECT_THAT(Message([](V& v) { v.start = 1 << 20; }), HasSubstr("tokenizer.ggml.bos_token_id: out of range"));
  EXPECT_EQ(Message([](V& v) { v.adds_end = true; }),
            "m.gguf: tokenizer.ggml.eos_token_id: missing, though it is to be added");
  EXPECT_EQ(Message([](V& v) { v.model = "llama"; }), "m.gguf: tokenizer.ggml.scores: missing");
  EXPECT_EQ(Message([](V& v) {
              v.model = "llama";
              v.scores.assign(v.tokens.size(), 0);
              v.scores[7] = std::numeric_limits<float>::quiet_NaN();
            }),
            "m.gguf: tokenizer.ggml.scores[7]: not a number");
}

}  // namespace
}  // namespace qkv::test
