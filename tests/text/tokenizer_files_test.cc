// What is wrong with a tokenizer's files, said in one line that names file and key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "qkv/error.h"
#include "text/golden.h"
#include "text/tokenizer_json.h"
#include "text/vocab_txt.h"

namespace qkv::test {
namespace {

using nlohmann::json;
using std::string_literals::operator""s;
using testing::HasSubstr;
using testing::StartsWith;

std::string Message(const std::function<void()>& load) {
  try {
    load();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFile);
    return error.what();
  }
  return "no error";
}

// The message for the golden "plain" tokenizer after a change, which may also be a removal.
std::string AfterChange(const std::function<void(json&)>& change) {
  json tokenizer = ReadGolden("tiny/plain.json").at("tokenizer");
  change(tokenizer);
  return Message([&] { TokenizerFromJson(tokenizer.dump(), "t.json"); });
}

std::string AfterSetting(const char* pointer, const json& value) {
  return AfterChange([&](json& t) { t[json::json_pointer(pointer)] = value; });
}

TEST(TokenizerJson, UnsupportedComponentsAreNamed) {
  EXPECT_EQ(AfterSetting("/model/type", "Unigram"),
            "t.json: model.type: unsupported, expected WordPiece or BPE, got Unigram");
  EXPECT_EQ(AfterSetting("/normalizer/type", "Sequence"),
            "t.json: normalizer.type: unsupported, expected BertNormalizer, got Sequence");
  EXPECT_EQ(AfterSetting("/pre_tokenizer/type", "ByteLevel"),
            "t.json: pre_tokenizer.type: unsupported, expected BertPreTokenizer, got ByteLevel");
  EXPECT_EQ(AfterSetting("/post_processor/type", "Template"),
            "t.json: post_processor.type: unsupported, expected TemplateProcessing, BertProcessing, "
            "RobertaProcessing, ByteLevel or Sequence, got Template");
  EXPECT_EQ(AfterSetting("/decoder/type", "Metaspace"),
            "t.json: decoder.type: unsupported, expected WordPiece, got Metaspace");
}

TEST(TokenizerJson, MissingKeysAreNamed) {
  const std::pair<const char*, const char*> keys[] = {
      {"model", ""},
      {"pre_tokenizer", ""},
      {"model", "type"},
      {"model", "vocab"},
      {"model", "unk_token"},
      {"model", "continuing_subword_prefix"},
      {"model", "max_input_chars_per_word"},
      {"normalizer", "type"},
      {"normalizer", "lowercase"},
      {"normalizer", "clean_text"},
      {"post_processor", "single"},
      {"post_processor", "special_tokens"},
      {"decoder", "prefix"},
  };
  for (const auto& [outer, inner] : keys) {
    const std::string name = *inner ? std::string(outer) + "." + inner : outer;
    const auto remove = [&, o = outer, i = inner](json& t) { *i ? t[o].erase(i) : t.erase(o); };
    EXPECT_EQ(AfterChange(remove), "t.json: " + name + ": missing");
  }
}

TEST(TokenizerJson, WrongTypesAreNamed) {
  EXPECT_EQ(AfterSetting("/model", 3), "t.json: model: wrong type, expected object, got number");
  EXPECT_EQ(AfterSetting("/model/vocab", json::array()),
            "t.json: model.vocab: wrong type, expected object, got array");
  EXPECT_EQ(AfterSetting("/normalizer/lowercase", 1),
            "t.json: normalizer.lowercase: wrong type, expected boolean, got number");
  EXPECT_EQ(AfterSetting("/added_tokens/0/content", json::object()),
            "t.json: added_tokens[0].content: wrong type, expected string, got object");
  EXPECT_EQ(AfterSetting("/model/max_input_chars_per_word", 1.5),
            "t.json: model.max_input_chars_per_word: wrong type, expected integer, got number");
  EXPECT_EQ(Message([] { TokenizerFromJson("[]", "t.json"); }),
            "t.json: wrong type, expected object, got array");
  EXPECT_THAT(Message([] { TokenizerFromJson("{", "t.json"); }), StartsWith("t.json: not valid JSON"));
  EXPECT_THAT(Message([] { TokenizerFromJson("", "t.json"); }), StartsWith("t.json: not valid JSON"));
}

TEST(TokenizerJson, VocabularyIdsAreZeroToEnd) {
  const auto count =
      std::to_string(ReadGolden("tiny/plain.json").at("tokenizer").at("model").at("vocab").size());
  EXPECT_EQ(AfterSetting("/model/vocab/the", 1000),
            "t.json: model.vocab.the: id out of range, expected " + count + " ids from 0, each once, got 1000");
  EXPECT_THAT(AfterSetting("/model/vocab/the", 0), HasSubstr(": id of another piece, expected " + count));
  EXPECT_THAT(AfterSetting("/model/vocab/new", int64_t{1} << 62),
              HasSubstr("model.vocab.new: id out of range"));
  for (const json& id : {json(-1), json(1.0), json("1"), json(nullptr), json(true), json(UINT64_MAX),
                         json::array({1}), json::object({{"a", 1}})})
    EXPECT_THAT(AfterSetting("/model/vocab/the", id), StartsWith("t.json: model.vocab.the: no valid id")) << id;
  EXPECT_EQ(AfterSetting("/model/vocab", json::object()),
            "t.json: model.unk_token: not in the vocabulary, got '[UNK]'");
}

TEST(TokenizerJson, EqualPiecesAreRefused) {
  std::string text = ReadGolden("tiny/plain.json").at("tokenizer").dump();
  const std::string_view vocabulary = "\"vocab\":{";
  text.insert(text.find(vocabulary) + vocabulary.size(), "\"the\":46,");
  EXPECT_THAT(Message([&] { TokenizerFromJson(text, "t.json"); }), HasSubstr("t.json: model.vocab"));
}

TEST(TokenizerJson, ContradictionsAreNamed) {
  EXPECT_EQ(AfterSetting("/model/unk_token", "[NONE]"),
            "t.json: model.unk_token: not in the vocabulary, got '[NONE]'");
  EXPECT_EQ(AfterSetting("/model/max_input_chars_per_word", 0),
            "t.json: model.max_input_chars_per_word: out of range, expected 1 to 4096, got 0");
  EXPECT_EQ(AfterSetting("/added_tokens/1/id", 7),
            "t.json: added_tokens[1].id: contradicts the vocabulary, expected 1, got 7");
  EXPECT_EQ(AfterSetting("/added_tokens/1/content", "[PAD]"),
            "t.json: added_tokens[1].content: duplicate, got '[PAD]'");
  EXPECT_EQ(AfterSetting("/added_tokens/1/content", ""), "t.json: added_tokens[1].content: empty");
  EXPECT_EQ(AfterSetting("/post_processor/special_tokens/[CLS]/ids/0", 99999).substr(0, 70),
            "t.json: post_processor.special_tokens.[CLS].ids[0]: out of range, expected"s.substr(0, 70));
  EXPECT_EQ(AfterSetting("/post_processor/single", json::array()),
            "t.json: post_processor.single: without the text, expected Sequence A once");
  EXPECT_EQ(AfterSetting("/post_processor/single/0", json{{"Sequence", {{"id", "A"}}}}),
            "t.json: post_processor.single[2].Sequence: the text twice, expected once");
  EXPECT_EQ(AfterSetting("/post_processor/single/0", json{{"Sequence", {{"id", "B"}}}}),
            "t.json: post_processor.single[0].Sequence.id: unsupported, expected A, got B");
  EXPECT_EQ(AfterSetting("/post_processor/single/0/SpecialToken/id", "[X]"),
            "t.json: post_processor.special_tokens.[X]: missing");
  EXPECT_EQ(
      AfterSetting("/post_processor", json{{"type", "BertProcessing"}, {"cls", {"[CLS]"}}, {"sep", {"a", 1}}}),
      "t.json: post_processor.cls: wrong length, expected a token and its id, got 1");
}

TEST(TokenizerJson, MessagesAreOneShortLine) {
  const std::string message = AfterSetting("/model/type", "evil\n\x1b[31m" + std::string(100'000, 'x'));
  EXPECT_LT(message.size(), 400u);
  EXPECT_EQ(message.find_first_of("\n\x1b"), std::string::npos);
}

const char kVocabulary[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n";

std::string VocabularyMessage(std::string_view vocabulary, std::string_view config = "{}") {
  return Message([&] { TokenizerFromVocabulary({vocabulary, "vocab.txt"}, {config, "config.json"}); });
}

TEST(VocabTxt, ErrorsNameFileAndPlace) {
  EXPECT_EQ(VocabularyMessage(kVocabulary), "no error");
  EXPECT_EQ(VocabularyMessage(""), "vocab.txt: empty");
  EXPECT_EQ(VocabularyMessage(kVocabulary + "a\n"s), "vocab.txt: line 8: duplicate piece, got 'a'");
  EXPECT_EQ(VocabularyMessage(kVocabulary + "\xff"s),
            "vocab.txt: invalid UTF-8 at byte " + std::to_string(sizeof kVocabulary - 1));
  EXPECT_EQ(VocabularyMessage("a\nb\n"), "vocab.txt: holds no unk_token, expected '[UNK]'");
  EXPECT_EQ(VocabularyMessage("[UNK]\n[SEP]\n"), "vocab.txt: holds no cls_token, expected '[CLS]'");
  EXPECT_EQ(VocabularyMessage(kVocabulary, R"({"sep_token":"</s>"})"),
            "vocab.txt: holds no sep_token, expected '</s>'");
  EXPECT_EQ(VocabularyMessage(kVocabulary, R"({"do_lower_case":"yes"})"),
            "config.json: do_lower_case: wrong type, expected boolean, got string");
  EXPECT_EQ(VocabularyMessage(kVocabulary, R"({"tokenizer_class":"BertJapaneseTokenizer"})"),
            "config.json: tokenizer_class: unsupported, expected BertTokenizer or one like it, got "
            "BertJapaneseTokenizer");
  EXPECT_THAT(VocabularyMessage(kVocabulary, "{"), StartsWith("config.json: not valid JSON"));
}

TEST(VocabTxt, LineEndsAsTheReferenceReadsThem) {
  for (const std::string end : {"\n", "\r\n", "\r"}) {
    std::string vocabulary;
    for (const char* piece : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"}) vocabulary += piece + end;
    for (const std::string& text : {vocabulary, vocabulary + "##b"}) {
      const auto tokenizer = TokenizerFromVocabulary({text, "vocab.txt"}, {"{}", "config.json"});
      EXPECT_EQ(tokenizer->Encode("a").ids, (std::vector<int64_t>{2, 5, 3}));
      EXPECT_EQ(tokenizer->vocab_size(), text == vocabulary ? 6 : 7);
    }
  }
}

TEST(VocabTxt, SpecialTokensMayBeObjectsOrNull) {
  const auto tokenizer = TokenizerFromVocabulary(
      {kVocabulary, "vocab.txt"},
      {R"({"mask_token":{"content":"[MASK]","lstrip":true,"__type":"AddedToken"},"pad_token":null})", "c"});
  const Encoding encoding = tokenizer->Encode("a  [MASK] [PAD]");
  EXPECT_EQ(encoding.ids, (std::vector<int64_t>{2, 5, 4, 1, 1, 1, 3}));
  EXPECT_EQ(encoding.span[2], (std::pair<int64_t, int64_t>{1, 9}));
}

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::path(testing::TempDir()) / "qkv_tokenizer_folder";
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void Write(const char* name, std::string_view text) { std::ofstream(path_ / name) << text; }
  std::string LoadMessage() {
    return Message([&] { LoadTokenizer(path_); });
  }

  std::filesystem::path path_;
};

TEST_F(Folder, WithoutTokenizer) {
  EXPECT_EQ(LoadMessage(), path_.string() + ": no tokenizer, expected tokenizer.json or vocab.txt");
  EXPECT_EQ(Message([&] { LoadTokenizer(path_ / "none"); }), (path_ / "none").string() + ": no such folder");
  Write("file", "");
  EXPECT_EQ(Message([&] { LoadTokenizer(path_ / "file"); }), (path_ / "file").string() + ": no such folder");
}

TEST_F(Folder, TokenizerJsonGoesBeforeVocabTxt) {
  Write("vocab.txt", kVocabulary);
  EXPECT_EQ(LoadTokenizer(path_)->vocab_size(), 7);  // without tokenizer_config.json: BERT's settings
  Write("tokenizer_config.json", R"({"do_lower_case":false})");
  EXPECT_EQ(LoadTokenizer(path_)->Encode("A").ids, (std::vector<int64_t>{2, 1, 3}));
  Write("tokenizer.json", ReadGolden("tiny/plain.json").at("tokenizer").dump());
  EXPECT_GT(LoadTokenizer(path_)->vocab_size(), 7);
  Write("tokenizer.json", "{}");
  EXPECT_EQ(LoadMessage(), (path_ / "tokenizer.json").string() + ": model: missing");
}

TEST_F(Folder, MoreTokensBesideVocabTxtAreNotIgnored) {
  Write("vocab.txt", kVocabulary);
  Write("added_tokens.json", R"({"[NEW]": 7})");
  EXPECT_EQ(LoadMessage(), (path_ / "added_tokens.json").string() +
                               ": unsupported beside a vocab.txt, expected tokenizer.json");
}

TEST_F(Folder, AFolderInPlaceOfAFile) {
  std::filesystem::create_directory(path_ / "tokenizer.json");
  EXPECT_EQ(LoadMessage(), (path_ / "tokenizer.json").string() + ": is a folder, not a file");
}

TEST(Tokenizer, RefusesInvalidUtf8AndUnknownIds) {
  const auto tokenizer = TokenizerFromVocabulary({kVocabulary, "vocab.txt"}, {"{}", "c"});
  EXPECT_EQ(Message([&] { tokenizer->Encode("abc\xff"); }), "text: invalid UTF-8 at byte 3");
  for (const int64_t id : {int64_t{-1}, int64_t{7}, INT64_MAX, INT64_MIN}) {
    try {
      tokenizer->Decode({5, id});
      ADD_FAILURE() << id;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_EQ(std::string(error.what()), "ids[1]: no such token, expected 0 to 6, got " + std::to_string(id));
    }
  }
}

}  // namespace
}  // namespace qkv::test
