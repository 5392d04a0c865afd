// Sessions and continuations, on tiny models with random parameters.
#include "qkv/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "models/golden.h"
#include "qkv/error.h"

namespace qkv {
namespace {

const Model& Tiny() {
  static const auto model = LoadModel(test::TinyFolder("causal/gguf-llama.gguf"), {DType::kF32});
  return *model;
}

std::vector<int64_t> Prompt() { return Tiny().tokenizer().Encode("the road is wide").ids; }

Generated Continue(const GenerateOptions& options) { return Generate(Tiny(), Prompt(), options); }

GenerateOptions AtMost(int64_t tokens) {
  GenerateOptions options;
  options.max_tokens = tokens;
  return options;
}

ErrorCode CodeOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::kInternal;
}

TEST(Session, PiecesReadAsTheWholeDoes) {
  const std::vector<int64_t> ids = Prompt();
  const std::vector<float> whole = StartSession(Tiny())->ReadAll(ids);
  const auto pieces = StartSession(Tiny());
  std::vector<float> last;
  for (size_t first = 0; first < ids.size(); first += 5) {
    const auto logits = pieces->Read(std::span(ids).subspan(first, std::min<size_t>(5, ids.size() - first)));
    last.assign(logits.begin(), logits.end());
  }
  EXPECT_EQ(pieces->length(), static_cast<int64_t>(ids.size()));
  const std::vector<float> expected(whole.end() - Tiny().info().vocab, whole.end());
  EXPECT_THAT(last, testing::Pointwise(testing::FloatNear(1e-5f), expected));
}

TEST(Session, ATrimmedSessionReadsOnAsIfItHadNeverReadMore) {
  const std::vector<int64_t> ids = Prompt(), other{7, 8, 9};
  const auto session = StartSession(Tiny()), fresh = StartSession(Tiny());
  session->Read(ids);
  session->Read(other);
  session->Trim(static_cast<int64_t>(ids.size()));
  fresh->Read(ids);
  const auto got = session->Read(other), expected = fresh->Read(other);
  EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin(), expected.end()));
}

TEST(Session, RefusesWhatItCannotRead) {
  const auto session = StartSession(Tiny(), {.most_tokens = 4});
  EXPECT_EQ(CodeOf([&] { session->Read(std::vector<int64_t>{}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([&] { session->Read(std::vector<int64_t>{1, 2, 3, 4, 5}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([&] { session->Read(std::vector<int64_t>{Tiny().info().vocab}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([&] { session->Read(std::vector<int64_t>{-1}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(session->length(), 0);
  session->Read(std::vector<int64_t>{1, 2, 3, 4});
  EXPECT_EQ(CodeOf([&] { session->Read(std::vector<int64_t>{1}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([&] { session->Trim(5); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([] { StartSession(Tiny(), {.most_tokens = 0}); }), ErrorCode::kInvalidArgument);
}

TEST(Session, ACancelledReadLeavesTheSessionAsItWas) {
  const auto session = StartSession(Tiny()), fresh = StartSession(Tiny());
  const std::vector<int64_t> ids = Prompt();
  session->Read(ids);
  fresh->Read(ids);
  const auto cancel = [](int64_t done, int64_t) { return done < 2; };
  EXPECT_EQ(CodeOf([&] { session->Read(ids, cancel); }), ErrorCode::kCancelled);
  EXPECT_EQ(session->length(), static_cast<int64_t>(ids.size()));
  const auto got = session->Read(ids), expected = fresh->Read(ids);
  EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin(), expected.end()));
}

TEST(Generate, ShowsWhatItReturns) {
  GenerateOptions options = AtMost(40);
  std::string shown;
  options.on_text = [&](std::string_view piece) {
    shown += piece;
    return true;
  };
  const Generated answer = Continue(options);
  EXPECT_EQ(shown, answer.text);
  EXPECT_EQ(answer.text, Tiny().tokenizer().Decode(answer.ids));
  EXPECT_EQ(answer.reason, StopReason::kMaxTokens);
  EXPECT_EQ(answer.ids.size(), 40u);
}

TEST(Generate, NothingOfAStopStringIsEverShown) {
  const std::string whole = Continue(AtMost(40)).text;
  for (size_t begin = 1; begin + 4 < whole.size(); begin += 3) {
    const std::string stop = whole.substr(begin, 4);
    if ((static_cast<unsigned char>(stop[0]) & 0xc0) == 0x80) continue;  // no character starts here
    GenerateOptions options = AtMost(40);
    options.stop = {"never written", stop};
    std::string shown;
    options.on_text = [&](std::string_view piece) {
      shown += piece;
      EXPECT_EQ(shown, whole.substr(0, shown.size()));
      EXPECT_LE(shown.size(), whole.find(stop));
      return true;
    };
    const Generated answer = Continue(options);
    EXPECT_EQ(answer.text, whole.substr(0, whole.find(stop)));
    EXPECT_EQ(answer.reason, StopReason::kStopString);
    EXPECT_EQ(shown, answer.text);
  }
}

TEST(Generate, EndsAtEndTokensAndWhereTheSessionIsFull) {
  const Generated plain = Continue(AtMost(8));
  GenerateOptions options = AtMost(8);
  options.end_ids = {plain.ids[3]};
  const Generated ended = Continue(options);
  EXPECT_EQ(ended.reason, StopReason::kEndToken);
  EXPECT_LE(ended.ids.size(), 3u);
  options = AtMost(8);
  options.session.most_tokens = static_cast<int64_t>(Prompt().size()) + 2;
  const Generated full = Continue(options);
  EXPECT_EQ(full.reason, StopReason::kSessionFull);
  EXPECT_EQ(full.ids, std::vector<int64_t>(plain.ids.begin(), plain.ids.begin() + 3));
}

TEST(Generate, ACallbackCanStopIt) {
  GenerateOptions options = AtMost(40);
  options.on_text = [](std::string_view) { return false; };
  EXPECT_EQ(CodeOf([&] { Continue(options); }), ErrorCode::kCancelled);
}

TEST(Chat, TemplatesAreKnownByTheirMarks) {
  ModelInfo model;
  model.name = "m";
  EXPECT_EQ(CodeOf([&] { MakeChatPrompt(model, "why?"); }), ErrorCode::kInvalidArgument);
  model.chat_template = "{{ '<|im_start|>' + message['role'] }} ... {{ '<|im_end|>' }}";
  EXPECT_EQ(MakeChatPrompt(model, "why?").text, "<|im_start|>user\nwhy?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(MakeChatPrompt(model, "why?").end_token, "<|im_end|>");
  model.chat_template = "<|start_header_id|> <|eot_id|>";
  EXPECT_EQ(MakeChatPrompt(model, "why?").text,
            "<|start_header_id|>user<|end_header_id|>\n\nwhy?<|eot_id|><|start_header_id|>assistant<|end_header_id|>"
            "\n\n");
  model.chat_template = "[INST] {{ m }} [/INST]";
  EXPECT_EQ(MakeChatPrompt(model, "why?").text, "[INST] why? [/INST]");
  model.chat_template = "### Human:";
  EXPECT_EQ(CodeOf([&] { MakeChatPrompt(model, "why?"); }), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace qkv
