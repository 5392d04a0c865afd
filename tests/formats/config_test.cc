#include "formats/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "formats/support.h"

namespace qkv::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// MiniLM's settings with some members set (or, where null, taken away).
std::string With(const std::string& changes) {
  nlohmann::json config = nlohmann::json::parse(
      R"({"model_type":"bert","vocab_size":30522,"hidden_size":384,"num_hidden_layers":6,)"
      R"("num_attention_heads":12,"intermediate_size":1536,"max_position_embeddings":512,"type_vocab_size":2,)"
      R"("layer_norm_eps":1e-12,"hidden_act":"gelu","position_embedding_type":"absolute","use_cache":true})");
  config.merge_patch(nlohmann::json::parse(changes));
  return config.dump();
}

std::string BertError(const std::string& text) {
  return FileError([&] { ReadBertConfig(ParseConfig(text, "config.json")); });
}

TEST(Config, ReadsBert) {
  const JsonObject config =
      ParseConfig(With(R"({"hidden_act":"gelu_new","layer_norm_eps":1e-5})"), "config.json");
  EXPECT_EQ(ModelType(config), "bert");
  const BertConfig bert = ReadBertConfig(config);
  EXPECT_EQ(bert.vocab_size, 30522);
  EXPECT_EQ(bert.hidden_size, 384);
  EXPECT_EQ(bert.num_hidden_layers, 6);
  EXPECT_EQ(bert.num_attention_heads, 12);
  EXPECT_EQ(bert.intermediate_size, 1536);
  EXPECT_EQ(bert.max_position_embeddings, 512);
  EXPECT_EQ(bert.type_vocab_size, 2);
  EXPECT_EQ(bert.layer_norm_eps, 1e-5);
  EXPECT_EQ(bert.hidden_act, "gelu_new");
}

TEST(Config, DefaultsAreBerts) {
  const std::string text = With(R"({"hidden_act":null,"layer_norm_eps":null,"type_vocab_size":null,)"
                                R"("position_embedding_type":null})");
  const BertConfig bert = ReadBertConfig(ParseConfig(text, "x"));
  EXPECT_EQ(bert.hidden_act, "gelu");
  EXPECT_EQ(bert.layer_norm_eps, 1e-12);
  EXPECT_EQ(bert.type_vocab_size, 2);
}

TEST(Config, EverySupportedActivation) {
  for (const char* name : {"gelu", "gelu_new", "gelu_pytorch_tanh", "relu"}) {
    EXPECT_EQ(BertError(With(std::string(R"({"hidden_act":")") + name + "\"}")), "no error");
  }
}

TEST(Config, RefusesByName) {
  const struct {
    const char* changes;
    const char* message;
  } rows[] = {
      {R"({"vocab_size":null})", "config.json: no vocab_size"},
      {R"({"hidden_size":null})", "config.json: no hidden_size"},
      {R"({"num_hidden_layers":null})", "config.json: no num_hidden_layers"},
      {R"({"num_attention_heads":null})", "config.json: no num_attention_heads"},
      {R"({"intermediate_size":null})", "config.json: no intermediate_size"},
      {R"({"max_position_embeddings":null})", "config.json: no max_position_embeddings"},
      {R"({"vocab_size":0})",
       "config.json: unsupported vocab_size, expected a whole number from 1 to 2147483648, got 0"},
      {R"({"vocab_size":-1})", "unsupported vocab_size"},
      {R"({"vocab_size":2147483649})", "got 2147483649"},
      {R"({"vocab_size":18446744073709551615})", "got 18446744073709551615"},
      {R"({"vocab_size":9223372036854775808})", "got 9223372036854775808"},
      {R"({"vocab_size":30522.0})", "got 30522.0"},
      {R"({"vocab_size":"30522"})", "got '30522'"},
      {R"({"vocab_size":true})", "got true"},
      {R"({"vocab_size":[1]})", "got an array"},
      {R"({"num_hidden_layers":2147483648})", "expected a whole number from 1 to 4096, got 2147483648"},
      {R"({"num_attention_heads":0})", "unsupported num_attention_heads"},
      {R"({"num_attention_heads":7})",
       "config.json: hidden_size is not a multiple of num_attention_heads, expected a multiple of 7, got 384"},
      {R"({"num_attention_heads":768})", "expected a multiple of 768, got 384"},
      {R"({"layer_norm_eps":0})", "unsupported layer_norm_eps, expected a number between 0.0 and 1.0, got 0"},
      {R"({"layer_norm_eps":1})", "unsupported layer_norm_eps"},
      {R"({"layer_norm_eps":-1e-12})", "unsupported layer_norm_eps"},
      {R"({"layer_norm_eps":"1e-12"})", "got '1e-12'"},
      {R"({"hidden_act":"silu"})",
       "config.json: unsupported hidden_act, expected one of gelu, gelu_new, gelu_pytorch_tanh, relu, got "
       "'silu'"},
      {R"({"hidden_act":1})", "unsupported hidden_act, expected a string, got 1"},
      {R"({"position_embedding_type":"relative_key"})",
       "config.json: unsupported position_embedding_type, expected absolute, got 'relative_key'"},
      {R"({"is_decoder":true})", "config.json: unsupported is_decoder, expected false, got true"},
      {R"({"is_decoder":1})", "unsupported is_decoder, expected true or false, got 1"},
      {R"({"add_cross_attention":true})", "unsupported add_cross_attention"},
  };
  for (const auto& row : rows) EXPECT_THAT(BertError(With(row.changes)), HasSubstr(row.message)) << row.changes;
}

TEST(Config, RefusesTextThatIsNoConfig) {
  EXPECT_EQ(BertError("[]"), "config.json: wrong kind of JSON, expected an object, got an array");
  EXPECT_EQ(BertError("null"), "config.json: wrong kind of JSON, expected an object, got null");
  EXPECT_THAT(BertError("{"), StartsWith("config.json: not valid JSON"));
  EXPECT_THAT(BertError(R"({"a":"\ud800"})"), StartsWith("config.json: not valid JSON"));
  EXPECT_EQ(BertError(R"({"vocab_size":1,"vocab_size":2})"), "config.json: duplicate key 'vocab_size'");
  EXPECT_THAT(BertError(R"({"layer_norm_eps":1e999})"), StartsWith("config.json: not valid JSON"));
  EXPECT_THAT(BertError(std::string((16 << 20) + 1, ' ')), StartsWith("config.json: JSON too large"));
}

TEST(Config, ModelTypes) {
  const auto error = [](const char* text) { return FileError([&] { ModelType(ParseConfig(text, "c")); }); };
  EXPECT_EQ(error("{}"), "c: no model_type");
  EXPECT_EQ(error(R"({"model_type":null})"), "c: no model_type");
  EXPECT_EQ(error(R"({"model_type":4})"), "c: unsupported model_type, expected a string, got 4");
  EXPECT_THAT(error(R"({"model_type":""})"), StartsWith("c: empty model_type"));
}

TEST(Config, FilesAreNamed) {
  const TempFolder folder;
  EXPECT_THAT(FileError([&] { ReadConfig(folder.path() / "config.json"); }),
              HasSubstr("config.json: no such file"));
  EXPECT_EQ(ModelType(ReadConfig(folder.Write("config.json", With("{}")))), "bert");
}

}  // namespace
}  // namespace qkv::test
