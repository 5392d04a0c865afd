#include "train/shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "formats/safetensors_writer.h"
#include "qkv/error.h"
#include "runtime/mapped_file.h"
#include "text/utf8.h"
#include "train/checksum.h"

namespace qkv::train {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPieceBytes = size_t{64} << 10;  // encoded at once: an encoding takes some hundred bytes a token

void CheckText(std::string_view text, const fs::path& path) {
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw Error(ErrorCode::kFile, "not a text: it holds a NUL byte", path.string(), "UTF-8",
                "byte 0 at offset " + std::to_string(nul));
  }
  CheckUtf8(text, path.string());
}

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }

// The first line's start at `from` or after it: behind a line end and before what is no white space, where every
// tokenizer cuts, so that tokens are those of the whole text. The text's end where there is none.
size_t LineStart(std::string_view text, size_t from) {
  for (size_t end = text.find('\n', from); end != std::string_view::npos; end = text.find('\n', end + 1)) {
    if (end + 1 < text.size() && !IsSpace(text[end + 1])) return end + 1;
  }
  return text.size();
}

// The last such start up to `to`; 0 where there is none.
size_t LineStartBefore(std::string_view text, size_t to) {
  for (size_t start = to; start > 0; --start) {
    if (text[start - 1] == '\n' && start < text.size() && !IsSpace(text[start])) return start;
  }
  return 0;
}

size_t CharacterStart(std::string_view text, size_t at) {
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

// Lines can be as long as the text: a line's start is taken where at least half and at most twice of what was asked
// for is then held out.
size_t TrainingBytes(std::string_view text, double validation_share) {
  if (validation_share == 0) return text.size();
  const double share = static_cast<double>(text.size()) * (1 - validation_share);
  const auto wanted = static_cast<size_t>(std::floor(share));
  const size_t asked = text.size() - wanted;
  const size_t after = LineStart(text, wanted), before = LineStartBefore(text, wanted);
  if (after < text.size() && 2 * (text.size() - after) >= asked) return after;
  if (before > 0 && text.size() - before <= 2 * asked) return before;
  return CharacterStart(text, wanted);
}

// Encodes a text piece by piece into the end of `tokens`.
class Encoder {
 public:
  Encoder(const Tokenizer& tokenizer, int64_t total_bytes, const Progress& progress)
      : tokenizer_(tokenizer), total_(total_bytes), progress_(progress) {}

  void Append(std::string_view text, std::vector<int32_t>& tokens) {
    while (!text.empty()) {
      const size_t size = text.size() <= kPieceBytes ? text.size() : LineStart(text, kPieceBytes);
      for (const int64_t id : tokenizer_.Encode(text.substr(0, size)).ids) tokens.push_back(static_cast<int32_t>(id));
      text.remove_prefix(size);
      done_ += static_cast<int64_t>(size);
      if (progress_ && !progress_(done_, total_)) throw Error(ErrorCode::kCancelled, "cancelled");
    }
  }

 private:
  const Tokenizer& tokenizer_;
  int64_t total_, done_ = 0;
  const Progress& progress_;
};

void WriteShard(const fs::path& file, const std::vector<int32_t>& tokens, const std::string& source) {
  const TensorToWrite tensor{"tokens", DType::kI32, {static_cast<int64_t>(tokens.size())},
                             std::as_bytes(std::span(tokens))};
  WriteSafetensors(file, {&tensor, 1}, {{"source", source}});
}

}  // namespace

TokenShard::TokenShard(const fs::path& file) : file_(file) {
  const TensorEntry* entry = file_.Find("tokens");
  if (entry == nullptr || entry->type != StoredType::kI32 || entry->shape.size() != 1 ||
      reinterpret_cast<uintptr_t>(entry->bytes.data()) % alignof(int32_t) != 0) {
    throw Error(ErrorCode::kFile, "not a file of tokens", file.string(), "one int32 tensor, tokens");
  }
  tokens_ = {reinterpret_cast<const int32_t*>(entry->bytes.data()), static_cast<size_t>(entry->elements)};
  if (const auto found = file_.metadata().find("source"); found != file_.metadata().end()) source_ = found->second;
}

std::string SourceOf(const std::vector<fs::path>& texts, const std::string& tokenizer_json, double validation_share) {
  if (texts.empty()) throw Error(ErrorCode::kInvalidArgument, "no text to train on", "TEXT");
  std::string source = fmt::format("held out {}; tokenizer {:08x}", validation_share,
                                   Checksum().Add(std::as_bytes(std::span(tokenizer_json))).value());
  size_t bytes = 0;
  for (const fs::path& path : texts) {
    const MappedFile file(path);
    CheckText(file.text(), path);
    bytes += file.bytes().size();
    source += fmt::format("; {} bytes {:08x}", file.bytes().size(), Checksum().Add(file.bytes()).value());
  }
  if (bytes == 0) throw Error(ErrorCode::kInvalidArgument, "the text is empty", texts.front().string());
  return source;
}

EncodedTexts EncodeTexts(const std::vector<fs::path>& texts, const Tokenizer& tokenizer, double validation_share,
                         const Progress& progress) {
  int64_t total = 0;
  for (const fs::path& path : texts) total += static_cast<int64_t>(MappedFile(path).bytes().size());
  Encoder encoder(tokenizer, total, progress);
  EncodedTexts encoded;
  for (const fs::path& path : texts) {
    const MappedFile file(path);
    const std::string_view text = file.text();
    CheckText(text, path);
    const size_t cut = TrainingBytes(text, validation_share);
    encoder.Append(text.substr(0, cut), encoded.train);
    encoder.Append(text.substr(cut), encoded.validation);
  }
  return encoded;
}

void WriteShards(const EncodedTexts& texts, const std::string& source, const fs::path& train,
                 const fs::path& validation) {
  WriteShard(validation, texts.validation, source);
  WriteShard(train, texts.train, source);  // the last: where it is, both are
}

}  // namespace qkv::train
