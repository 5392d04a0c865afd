#include "text/ggml_vocabulary.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "qkv/error.h"
#include "runtime/printable.h"
#include "text/bpe_tokenizer.h"
#include "text/json_node.h"
#include "text/merge_table.h"
#include "text/utf8.h"

namespace qkv {
namespace {

constexpr size_t kLongestMerged =
    1024;  // bytes: bounds the ways to put a piece together; real ones have under 100
constexpr std::string_view kMark = "\u2581";

// As the format numbers them.
enum TokenType : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

class Reader {
 public:
  explicit Reader(const GgmlVocabulary& source) : source_(source) {}

  BpeSettings Read() {
    ReadTokens();
    if (source_.model == "gpt2") {
      ReadByteLevel();
    } else if (source_.model == "llama") {
      ReadSentencePiece();
    } else {
      Fail("model", "unsupported", "gpt2 or llama", Quoted(source_.model));
    }
    return std::move(settings_);
  }

 private:
  [[noreturn]] void Fail(const std::string& key, const std::string& reason, const std::string& expected = {},
                         const std::string& got = {}) const {
    throw Error(ErrorCode::kFile, reason, source_.where + ": tokenizer.ggml." + key, expected, got);
  }

  int64_t TypeOf(size_t id) const { return source_.types.empty() ? int64_t{kNormal} : source_.types[id]; }

  void ExpectOnePerToken(const char* key, size_t count) const {
    if (count != 0 && count != source_.tokens.size())
      Fail(key, "wrong length", std::to_string(source_.tokens.size()), std::to_string(count));
  }

  void ReadTokens() {
    const size_t count = source_.tokens.size();
    if (count == 0 || count > INT32_MAX) Fail("tokens", "wrong length", "1 to 2^31 - 1", std::to_string(count));
    ExpectOnePerToken("token_type", source_.types.size());
    settings_.vocabulary.pieces.reserve(count);
    settings_.vocabulary.ids.Reserve(count);
    for (size_t id = 0; id < count; ++id) {
      const std::string key = "tokens[" + std::to_string(id) + "]";
      CheckUtf8(source_.tokens[id], source_.where + ": tokenizer.ggml." + key);
      if (!settings_.vocabulary.Add(std::string(source_.tokens[id])))
        Fail(key, "duplicate piece", "", Quoted(source_.tokens[id]));
    }
    AddedTokenList list(settings_.vocabulary.ids);
    for (size_t id = 0; id < count; ++id) {
      const int64_t type = TypeOf(id);
      const bool special = type == kControl || type == kUnknown;
      if ((special || type == kUserDefined) && !source_.tokens[id].empty())
        list.Add({.content = std::string(source_.tokens[id]), .special = special});
    }
    settings_.added_tokens = list.tokens();
  }

  // Adds the start and the end token where the file says so, or by default if it says nothing.
  void ReadFrame(const char* key, std::optional<bool> adds, bool by_default, std::optional<int64_t> id,
                 std::vector<int64_t>& side) const {
    if (id && (*id < 0 || static_cast<size_t>(*id) >= source_.tokens.size()))
      Fail(key, "out of range", "0 to " + std::to_string(source_.tokens.size() - 1), std::to_string(*id));
    if (!adds.value_or(by_default)) return;
    if (!id) Fail(key, "missing, though it is to be added");
    side = {*id};
  }

  void ReadFrames(bool start_by_default) {
    ReadFrame("bos_token_id", source_.adds_start, start_by_default, source_.start, settings_.before);
    ReadFrame("eos_token_id", source_.adds_end, false, source_.end, settings_.after);
  }

  void ReadByteLevel() {
    const std::string& pre = source_.pre;
    PreTokenizer& steps = settings_.pre_tokenizer;
    if (pre == "gpt-2") {
      steps = {Gpt2Words{}};
    } else if (pre == "smollm") {
      steps = {DigitWords::kEachDigit, Gpt2Words{}};
    } else if (pre == "llama-bpe") {
      steps = {Gpt4Words{3}};
      settings_.rules.ignore_merges = true;
    } else if (pre == "qwen2") {
      steps = {Gpt4Words{1}};
      settings_.normalizer = {ComposeNfc{}};
    } else {
      Fail("pre", "unsupported", "gpt-2, llama-bpe, smollm or qwen2", Quoted(pre));
    }
    settings_.rules.alphabet = BpeAlphabet::kBytes;
    settings_.rules.merges = ReadMerges();
    ReadFrames(pre == "llama-bpe");
  }

  MergeTable ReadMerges() const {
    MergeTable table;
    table.Reserve(source_.merges.size());
    for (size_t rank = 0; rank < source_.merges.size(); ++rank) {
      const auto fail = [&](const char* reason, std::string_view got) {
        Fail("merges[" + std::to_string(rank) + "]", reason, "", Quoted(got));
      };
      const auto id_of = [&](std::string_view piece) {
        const auto id = settings_.vocabulary.ids.Find(piece);
        if (!id) fail("not in the vocabulary", piece);
        return static_cast<int32_t>(*id);
      };
      const auto sides = SplitMerge(source_.merges[rank]);
      if (!sides) fail("no merge", source_.merges[rank]);
      const auto [left, right] = *sides;
      const int32_t left_id = id_of(left), right_id = id_of(right);
      table.Add(left_id, right_id, {static_cast<int32_t>(rank), id_of(std::string(left).append(right))});
    }
    return table;
  }

  void ReadSentencePiece() {
    ExpectOnePerToken("scores", source_.scores.size());
    if (source_.scores.empty()) Fail("scores", "missing");
    BpeRules& rules = settings_.rules;
    rules.alphabet = BpeAlphabet::kCharacters;
    rules.byte_fallback = true;
    rules.merges = MergesByScore();
    if (source_.unknown) {
      std::vector<int64_t> unknown;
      ReadFrame("unknown_token_id", true, true, source_.unknown, unknown);
      rules.unknown = static_cast<int32_t>(unknown.front());
    }
    const bool prefix = source_.adds_space_prefix.value_or(true);
    if (prefix) settings_.normalizer.emplace_back(PrependText{std::string(kMark)});
    settings_.normalizer.emplace_back(ReplaceText{" ", std::string(kMark)});
    using enum CharacterDecoder::Start;
    settings_.decoder = {
        .space = std::string(kMark), .start = prefix ? kOneSpaceDropped : kKept, .joins_bytes = true};
    CutAtMarks(kMark, settings_);
    ReadFrames(true);
  }

  // Ids by score, the highest first; equal scores have the same rank.
  std::vector<int32_t> RanksByScore() const {
    const std::vector<float>& scores = source_.scores;
    std::vector<size_t> order(scores.size());
    std::iota(order.begin(), order.end(), size_t{0});
    for (size_t id = 0; id < scores.size(); ++id)
      if (std::isnan(scores[id])) Fail("scores[" + std::to_string(id) + "]", "not a number");
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    std::vector<int32_t> ranks(scores.size());
    int32_t rank = -1;
    for (size_t i = 0; i < order.size(); ++i) {
      if (i == 0 || scores[order[i]] != scores[order[i - 1]]) ++rank;
      ranks[order[i]] = rank;
    }
    return ranks;
  }

  // Two neighbours are merged where their text is a piece, so each way to halve a piece is a merge.
  MergeTable MergesByScore() const {
    const std::vector<int32_t> ranks = RanksByScore();
    const PieceTable& ids = settings_.vocabulary.ids;
    MergeTable table;
    table.Reserve(2 * source_.tokens.size());
    for (size_t id = 0; id < source_.tokens.size(); ++id) {
      const std::string_view piece = source_.tokens[id];
      if (piece.size() > kLongestMerged) {
        Fail("tokens[" + std::to_string(id) + "]", "piece too long",
             "at most " + std::to_string(kLongestMerged), std::to_string(piece.size()));
      }
      for (size_t at = 0; at < piece.size();) {
        NextCharacter(piece, at);
        const auto left = ids.Find(piece.substr(0, at)), right = ids.Find(piece.substr(at));
        if (left && right && at < piece.size())
          table.Add(static_cast<int32_t>(*left), static_cast<int32_t>(*right),
                    {ranks[id], static_cast<int32_t>(id)});
      }
    }
    return table;
  }

  const GgmlVocabulary& source_;
  BpeSettings settings_;
};

}  // namespace

std::unique_ptr<const Tokenizer> TokenizerFromGgml(const GgmlVocabulary& vocabulary) {
  return std::make_unique<BpeTokenizer>(Reader(vocabulary).Read());
}

}  // namespace qkv
