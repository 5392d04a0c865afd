#include "runtime/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "qkv/error.h"

namespace qkv {
namespace {

using std::string_literals::operator""s;
using testing::HasSubstr;
using testing::StartsWith;

// The message of the kFile error that parsing gives.
std::string Message(const std::string& text, const JsonLimits& limits = {}) {
  try {
    ParseJson(text, "config.json", limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFile);
    return error.what();
  }
  return "no error";
}

TEST(Json, KeepsEveryKindOfValue) {
  const std::string text = R"( {"null":null,"yes":true,"minus":-3,"big":18446744073709551615,"real":1.5e-3,)"
                           R"("text":"a\u00e9\ud83d\ude00\"","list":[1,[2,[]],{"deep":{}}],"":0} )";
  EXPECT_EQ(ParseJson(text, "x"), nlohmann::json::parse(text));
  EXPECT_EQ(ParseJson("7", "x"), 7);
  EXPECT_EQ(ParseJson("[]", "x"), nlohmann::json::array());
}

TEST(Json, SameKeyInDifferentObjectsIsFine) {
  EXPECT_EQ(ParseJson(R"({"a":{"a":[{"a":1},{"a":2}]}})", "x")["a"]["a"][1]["a"], 2);
}

TEST(Json, RefusesWhatIsNotJson) {
  const std::string cases[] = {
      "",        " ",        "{",         "{\"a\":1",     "{\"a\":1}x",       "{} {}",       "[1,]",
      "{a:1}",   "{'a':1}",  "nul",       "NaN",          "-Infinity",        "01",          "1e999",
      "// c\n1", "\"a\nb\"", "\"\xff\"",  "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\\ud800\"", "\"\\u12\"",
      "\xff",    "{}\0"s,    "\"a\0b\""s, "{}\0{"s};
  for (const std::string& text : cases) {
    EXPECT_THAT(Message(text), StartsWith("config.json: not valid JSON (")) << text;
  }
}

TEST(Json, SaysWhereTheErrorIs) { EXPECT_THAT(Message("{\n  \"a\": nope\n}"), HasSubstr("line 2, column 9")); }

TEST(Json, MessagesAreOneShortLine) {
  const std::string message = Message("[\"" + std::string(100'000, 'x') + "\n\x1b\"]");
  EXPECT_LT(message.size(), 300u);
  EXPECT_EQ(message.find_first_of("\n\x1b"), std::string::npos);
}

TEST(Json, RefusesDuplicateKeys) {
  EXPECT_EQ(Message(R"({"a":1,"b":2,"a":3})"), "config.json: duplicate key 'a'");
  EXPECT_EQ(Message(R"([{"x":{"\u0061\n":1,"a\n":1}}])"), "config.json: duplicate key 'a\\n'");
  EXPECT_EQ(Message(R"({"a":{"b":1},"a":{"c":1}})"), "config.json: duplicate key 'a'");
}

TEST(Json, LimitsDepth) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(Message(nested(64)), "no error");
  EXPECT_EQ(Message(nested(65)), "config.json: JSON nested too deep, expected at most 64 levels");
  EXPECT_THAT(Message(std::string(1'000'000, '[')), HasSubstr("nested too deep"));
  EXPECT_EQ(Message(R"({"a":[]})", {.max_depth = 2}), "no error");
  EXPECT_THAT(Message(R"({"a":[{}]})", {.max_depth = 2}), HasSubstr("at most 2 levels"));
}

TEST(Json, LimitsValuesAndBytes) {
  EXPECT_EQ(Message("[1,2,3]", {.max_values = 4}), "no error");
  EXPECT_EQ(Message("[1,2,3,4]", {.max_values = 4}),
            "config.json: too many values in JSON, expected at most 4");
  EXPECT_EQ(Message("[1,2]", {.max_bytes = 5}), "no error");
  EXPECT_EQ(Message("[1,2,]", {.max_bytes = 5}),
            "config.json: JSON too large, expected at most 5 bytes, got 6");
}

struct Diverted {
  std::string members, outcome;  // what was handed over; the value that was left, or the error
};

Diverted Divert(const std::string& text, const JsonLimits& limits = {}) {
  Diverted diverted;
  const auto take = [&](std::string& name, int64_t value) {
    diverted.members += name + "=" + std::to_string(value) + ";";
  };
  try {
    diverted.outcome = ParseJson(text, "t.json", JsonVocabulary{"model", "vocab", take}, limits).dump();
  } catch (const Error& error) {
    diverted.outcome = error.what();
  }
  return diverted;
}

TEST(JsonVocabulary, GoesToTheCallerInPlaceOfTheValue) {
  const Diverted diverted = Divert(
      R"({"vocab":{"x":1},"model":{"a":{"vocab":{"y":2}},"vocab":{"b":2,"a":9223372036854775807,"b":0},"z":[{}]}})");
  EXPECT_EQ(diverted.members, "b=2;a=9223372036854775807;b=0;");
  EXPECT_EQ(diverted.outcome, R"({"model":{"a":{"vocab":{"y":2}},"vocab":{},"z":[{}]},"vocab":{"x":1}})");
}

TEST(JsonVocabulary, IsOnlyAnObjectInItsPlace) {
  for (const std::string text : {R"({"model":{"vocab":[{"a":1}]}})", R"({"model":{"vocab":5},"x":{"a":1}})",
                                 R"([{"model":{"vocab":{"a":1}}}])", R"({"model":[{"vocab":{"a":1}}]})", "7"}) {
    EXPECT_EQ(Divert(text).members, "") << text;
    EXPECT_EQ(Divert(text).outcome, nlohmann::json::parse(text).dump());
  }
}

TEST(JsonVocabulary, HoldsIntegersWithinTheLimits) {
  for (const std::string value :
       {"-1", "1.0", "\"1\"", "null", "true", "9223372036854775808", "[1]", "{\"b\":1}"}) {
    const std::string text = R"({"model":{"vocab":{"a":)" + value + "}}}";
    EXPECT_THAT(Divert(text).outcome,
                StartsWith("t.json: model.vocab.a: no valid id, expected an integer from 0, got "))
        << value;
  }
  const std::string text = R"({"model":{"vocab":{"a":0,"b":1}}})";
  EXPECT_EQ(Divert(text, {.max_values = 5}).members, "a=0;b=1;");  // three objects and two members
  EXPECT_EQ(Divert(text, {.max_values = 4}).outcome, "t.json: too many values in JSON, expected at most 4");
}

TEST(Json, ReadsFiles) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "json_test.json";
  std::ofstream(path) << R"({"a":[1]})";
  EXPECT_EQ(ReadJsonFile(path)["a"][0], 1);
  std::ofstream(path) << R"({"a":)";
  EXPECT_THROW(
      {
        try {
          ReadJsonFile(path);
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), HasSubstr("json_test.json: not valid JSON"));
          throw;
        }
      },
      Error);
  std::filesystem::remove(path);
  EXPECT_THROW(ReadJsonFile(path), Error);
}

}  // namespace
}  // namespace qkv
