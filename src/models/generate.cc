// The loop that continues a text.
#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "models/finite.h"
#include "qkv/error.h"
#include "qkv/generate.h"
#include "qkv/tokenizer.h"

namespace qkv {
namespace {

// What was generated so far, as it may be shown: nothing of a stop string, not even its beginning.
class Answer {
 public:
  Answer(const std::vector<std::string>& stop, const std::function<bool(std::string_view)>& show)
      : stop_(stop), show_(show) {
    for (const std::string& text : stop) {
      if (text.empty()) throw Error(ErrorCode::kInvalidArgument, "empty stop string", "stop");
    }
  }

  enum class State { kGoesOn, kStopped };

  State Add(const std::string& piece) {
    if (piece.empty()) return State::kGoesOn;
    text_ += piece;
    for (const std::string& stop : stop_) {
      // A stop string may have begun in what is held back, never before it.
      const size_t place = text_.find(stop, shown_);
      if (place < end_) end_ = place;
    }
    if (end_ != std::string::npos) text_.resize(end_);
    Show(end_ != std::string::npos ? text_.size() : text_.size() - HeldBack());
    return end_ != std::string::npos ? State::kStopped : State::kGoesOn;
  }

  std::string Finish() {
    Show(text_.size());
    return std::move(text_);
  }

 private:
  // Bytes at the end that may be the beginning of a stop string, to the start of a character.
  size_t HeldBack() const {
    size_t most = 0;
    for (const std::string& stop : stop_) {
      for (size_t count = std::min(stop.size() - 1, text_.size() - shown_); count > most; --count) {
        if (text_.ends_with(std::string_view(stop).substr(0, count))) most = count;
      }
    }
    while (most > 0 && (static_cast<unsigned char>(text_[text_.size() - most]) & 0xc0) == 0x80) ++most;
    return most;
  }

  void Show(size_t end) {
    if (end <= shown_) return;
    const std::string_view piece = std::string_view(text_).substr(shown_, end - shown_);
    shown_ = end;
    if (show_ && !show_(piece)) throw Error(ErrorCode::kCancelled, "cancelled");
  }

  const std::vector<std::string>& stop_;
  const std::function<bool(std::string_view)>& show_;
  std::string text_;
  size_t shown_ = 0, end_ = std::string::npos;
};

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

Generated Generate(const Model& model, std::span<const int64_t> prompt, const GenerateOptions& options) {
  if (options.max_tokens < 0) {
    throw Error(ErrorCode::kInvalidArgument, "bad number of tokens", "max_tokens", "0 or more",
                std::to_string(options.max_tokens));
  }
  Answer answer(options.stop, options.on_text);
  const auto session = StartSession(model, options.session);
  const int64_t most = options.session.most_tokens.value_or(model.info().max_tokens);
  std::vector<int64_t> ends = model.info().end_ids;
  ends.insert(ends.end(), options.end_ids.begin(), options.end_ids.end());
  StreamingDecoder decoder(model.tokenizer());
  Generated result;
  std::vector<int64_t> text(prompt.begin(), prompt.end());
  Clock::time_point start = Clock::now();
  std::span<const float> logits = session->Read(prompt, options.progress);
  for (int64_t step = 0; step < options.max_tokens; ++step) {
    CheckFinite(logits, model.info().name);
    const int64_t token = ChooseToken(logits, text, options.sampling, step);
    if (step == 0) {
      result.prompt_seconds = SecondsSince(start);
      start = Clock::now();
    }
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) {
      result.reason = StopReason::kEndToken;
      break;
    }
    result.ids.push_back(token);
    text.push_back(token);
    if (answer.Add(decoder.Add(token)) == Answer::State::kStopped) {
      result.reason = StopReason::kStopString;
      break;
    }
    if (step + 1 == options.max_tokens) break;
    if (session->length() == most) {
      result.reason = StopReason::kSessionFull;
      break;
    }
    logits = session->Read({&text.back(), 1});
  }
  if (result.reason != StopReason::kStopString) answer.Add(decoder.Finish());
  result.text = answer.Finish();
  result.generate_seconds = SecondsSince(start);
  return result;
}

}  // namespace qkv
