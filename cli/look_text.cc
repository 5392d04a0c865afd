#include "cli/look_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/terminal.h"
#include "models/truncate.h"
#include "qkv/error.h"
#include "qkv/generate.h"

namespace qkv::cli {
namespace {

bool HasTextToken(const Encoding& encoding) {
  for (size_t token = 0; token < encoding.ids.size(); ++token) {
    if (!encoding.special[token] || encoding.span[token].first < encoding.span[token].second) return true;
  }
  return false;
}

[[noreturn]] void RefuseLength(const ModelInfo& model, size_t count, TooLong asked) {
  const char* way = model.positions == Positions::kRotary ? "--truncate cuts it, --allow-long goes beyond"
                    : asked == TooLong::kAllow            ? "it has no more positions; --truncate cuts it"
                                                          : "--truncate cuts it";
  throw Error(ErrorCode::kInvalidArgument, fmt::format("the text is too long for the model ({})", way), "",
              fmt::format("at most {} tokens", model.max_tokens), std::to_string(count));
}

// The text's tokens, `room` fewer than the model can have at most.
Encoding Encode(const Model& model, const std::string& text, TooLong too_long, size_t room, Notes& notes) {
  Encoding encoding = model.tokenizer().Encode(text);
  if (!HasTextToken(encoding)) {
    throw Error(ErrorCode::kInvalidArgument, "the text is empty: it has no tokens to look at");
  }
  const size_t count = encoding.ids.size(), limit = static_cast<size_t>(model.info().max_tokens);
  const bool goes_on = too_long == TooLong::kAllow && model.info().positions == Positions::kRotary;
  if (count + room <= limit || goes_on) return encoding;
  if (too_long != TooLong::kTruncate || room >= limit) RefuseLength(model.info(), count + room, too_long);
  Truncate(encoding, limit - room);
  notes.push_back(fmt::format("the text was cut from {} tokens to {}", count, limit - room));
  return encoding;
}

void Append(const Tokenizer& tokenizer, int64_t id, const std::string& piece, LookText& to) {
  const size_t word = piece.find_first_not_of(" \t\r\n");
  const auto begin = static_cast<int64_t>(to.text.size());
  to.generated.push_back(static_cast<int64_t>(to.encoding.ids.size()));
  to.encoding.ids.push_back(id);
  to.encoding.tokens.push_back(tokenizer.TokenOf(id));
  to.encoding.labels.push_back(word == std::string::npos ? "·" : piece.substr(word));
  to.encoding.continues.push_back(word == 0);
  to.encoding.special.push_back(tokenizer.IsSpecial(id));
  to.encoding.span.emplace_back(begin, begin + static_cast<int64_t>(piece.size()));
  to.text += piece;
}

// Adds the tokens that the model writes, `most` or until it ends.
void Continue(const Model& model, int64_t most, LookText& text) {
  ProgressLine line("generating");
  GenerateOptions options;
  options.max_tokens = most;
  options.progress = line.Callback();
  options.session.most_tokens =
      std::max(model.info().max_tokens, static_cast<int64_t>(text.encoding.ids.size()) + most);
  const std::vector<int64_t> ids = Generate(model, text.encoding.ids, options).ids;
  StreamingDecoder decoder(model.tokenizer());
  for (int64_t id : text.encoding.ids) decoder.Add(id);
  for (int64_t id : ids) Append(model.tokenizer(), id, decoder.Add(id), text);
}

}  // namespace

LookText MakeLookText(const Model& model, const std::string& text, const LookTextOptions& options, Notes& notes) {
  const auto room = static_cast<size_t>(options.generate.value_or(0));
  LookText result{text, Encode(model, text, options.too_long, room, notes), {}};
  if (options.generate) Continue(model, *options.generate, result);
  return result;
}

}  // namespace qkv::cli
