#include "text/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <queue>
#include <set>

#include "qkv/error.h"
#include "runtime/printable.h"
#include "text/byte_alphabet.h"
#include "text/unicode.h"
#include "text/utf8.h"
#include "text/word_splitter.h"

namespace qkv {
namespace {

constexpr size_t kBytes = 256;
constexpr size_t kChunk = size_t{1} << 20;    // bytes of text that are split at a time
constexpr size_t kMergesBetweenReports = 16;  // one takes well below a millisecond

// Where the first chunk of a text ends: at a line end after something that is no whitespace. No word reaches
// across such a place, and none depends on what is behind it.
size_t EndOfChunk(std::string_view text) {
  for (size_t at = kChunk; at < text.size(); ++at) {
    size_t before = at;
    if (text[at] == '\n' && !IsWhitespace(PreviousCharacter(text, before))) return at;
  }
  return text.size();
}

// Bytes in the order of their characters, as the reference numbers them.
std::array<unsigned char, kBytes> BytesByCharacter() {
  std::array<unsigned char, kBytes> bytes;
  for (size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<unsigned char>(i);
  std::sort(bytes.begin(), bytes.end(), [](auto a, auto b) { return ByteCharacter(a) < ByteCharacter(b); });
  return bytes;
}

void Validate(const BpeTrainerOptions& options) {
  const auto least = static_cast<int64_t>(kBytes + options.special.size());
  if (options.vocabulary_size < least || options.vocabulary_size > INT32_MAX) {
    throw Error(ErrorCode::kInvalidArgument, "out of range", "vocabulary_size",
                std::to_string(least) + " (the bytes and special tokens) to " + std::to_string(INT32_MAX),
                std::to_string(options.vocabulary_size));
  }
  std::set<std::string_view> seen;
  for (const std::string& token : options.special) {
    if (token.empty() || !seen.insert(token).second)
      throw Error(ErrorCode::kInvalidArgument, "empty or twice", "special", "", "'" + Printable(token) + "'");
    CheckUtf8(token, "special");
  }
}

using Pair = std::pair<int32_t, int32_t>;

uint64_t KeyOf(Pair pair) {
  return static_cast<uint64_t>(pair.first) << 32 | static_cast<uint32_t>(pair.second);
}

class Trainer {
 public:
  Trainer(const WordCounts& counts, const BpeTrainerOptions& options) : options_(options) {
    trained_.special = options.special;
    for (size_t id = 0; id < options.special.size(); ++id)
      ids_.emplace(options.special[id], static_cast<int32_t>(id));
    for (const unsigned char byte : BytesByCharacter()) {
      byte_ids_[byte] = AddToken(PieceOfBytes({reinterpret_cast<const char*>(&byte), 1}));
    }
    for (const auto& [word, count] : counts.words()) AddWord(word, count);
    for (const auto& [key, sites] : sites_) Enqueue(key, sites.count);
  }

  TrainedBpe Run(const Progress& progress) {
    const int64_t total = options_.vocabulary_size;
    for (size_t step = 0; size() < total; ++step) {
      if (step % kMergesBetweenReports == 0 && progress && !progress(size(), total))
        throw Error(ErrorCode::kCancelled, "cancelled", "training a tokenizer");
      const auto best = TakeBest();
      if (!best) break;
      Merge(*best);
    }
    if (progress) progress(total, total);
    for (const Word& word : words_) {
      trained_.text_tokens += word.count * static_cast<int64_t>(word.symbols.size());
      trained_.text_bytes += word.count * word.bytes;
    }
    return std::move(trained_);
  }

 private:
  struct Word {
    std::vector<int32_t> symbols;
    int64_t bytes, count;
  };

  // Where two neighbours stand, and how often in all.
  struct Sites {
    int64_t count = 0;
    std::vector<uint32_t> words;  // may name words that hold them no more
  };

  struct Candidate {
    int64_t count;
    uint64_t key;
    bool operator<(const Candidate& other) const {  // what is merged later
      return count != other.count ? count < other.count : key > other.key;
    }
  };

  int64_t size() const { return static_cast<int64_t>(trained_.special.size() + trained_.tokens.size()); }

  int32_t AddToken(const std::string& token) {
    const auto [place, added] = ids_.try_emplace(token, static_cast<int32_t>(size()));
    if (added) trained_.tokens.push_back(token);
    return place->second;
  }

  const std::string& TokenOf(int32_t id) const {
    const auto place = static_cast<size_t>(id), special = trained_.special.size();
    return place < special ? trained_.special[place] : trained_.tokens[place - special];
  }

  void AddWord(const std::string& word, int64_t count) {
    Word entry{{}, static_cast<int64_t>(word.size()), count};
    for (const char byte : word) entry.symbols.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
    const auto index = static_cast<uint32_t>(words_.size());
    for (size_t i = 1; i < entry.symbols.size(); ++i)
      Change({entry.symbols[i - 1], entry.symbols[i]}, count, index);
    words_.push_back(std::move(entry));
  }

  void Change(Pair pair, int64_t by, uint32_t word) {
    Sites& sites = sites_[KeyOf(pair)];
    sites.count += by;
    if (by > 0 && (sites.words.empty() || sites.words.back() != word)) sites.words.push_back(word);
  }

  void Enqueue(uint64_t key, int64_t count) {
    if (count >= options_.least_count) queue_.push({count, key});
  }

  // Counts in the queue may have fallen since; such a candidate goes back with the true one.
  std::optional<Pair> TakeBest() {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      const auto sites = sites_.find(top.key);
      if (sites == sites_.end()) continue;
      if (sites->second.count == top.count)
        return Pair{static_cast<int32_t>(top.key >> 32), static_cast<int32_t>(top.key & UINT32_MAX)};
      if (sites->second.count < top.count) Enqueue(top.key, sites->second.count);
    }
    return {};
  }

  void Merge(Pair pair) {
    const int32_t merged = AddToken(TokenOf(pair.first) + TokenOf(pair.second));
    trained_.merges.emplace_back(pair.first, pair.second);
    const std::vector<uint32_t> words = std::move(sites_[KeyOf(pair)].words);
    grown_.clear();
    for (const uint32_t word : words) MergeIn(word, pair, merged);
    sites_.erase(KeyOf(pair));
    std::sort(grown_.begin(), grown_.end());
    grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
    for (const uint64_t key : grown_)
      if (const auto sites = sites_.find(key); sites != sites_.end()) Enqueue(key, sites->second.count);
  }

  void MergeIn(uint32_t index, Pair pair, int32_t merged) {
    Word& word = words_[index];
    std::vector<int32_t>& symbols = word.symbols;
    const auto grow = [&](Pair grown) {
      Change(grown, word.count, index);
      grown_.push_back(KeyOf(grown));
    };
    size_t kept = 0;
    for (size_t i = 0; i < symbols.size(); ++i) {
      const bool matches = i + 1 < symbols.size() && symbols[i] == pair.first && symbols[i + 1] == pair.second;
      if (!matches) {
        symbols[kept++] = symbols[i];
        continue;
      }
      if (kept > 0) {
        Change({symbols[kept - 1], pair.first}, -word.count, index);
        grow({symbols[kept - 1], merged});
      }
      if (i + 2 < symbols.size()) {
        Change({pair.second, symbols[i + 2]}, -word.count, index);
        grow({merged, symbols[i + 2]});
      }
      symbols[kept++] = merged;
      ++i;
    }
    symbols.resize(kept);
  }

  const BpeTrainerOptions& options_;
  TrainedBpe trained_;
  std::unordered_map<std::string, int32_t> ids_;
  std::array<int32_t, kBytes> byte_ids_{};
  std::vector<Word> words_;
  std::unordered_map<uint64_t, Sites> sites_;  // by the pair
  std::priority_queue<Candidate> queue_;
  std::vector<uint64_t> grown_;  // pairs that the merge at hand has made
};

}  // namespace

void WordCounts::Add(std::string_view text, const std::string& where) {
  CheckUtf8(text, where);
  while (!text.empty()) {
    const size_t end = EndOfChunk(text);
    AddChunk(text.substr(0, end));
    text.remove_prefix(end);
  }
}

void WordCounts::AddChunk(std::string_view text) {
  std::vector<TextRange> words;
  SplitGpt2Words(text, {0, text.size()}, words);
  for (const TextRange& word : words) ++words_[std::string(text.substr(word.first, word.last - word.first))];
}

TrainedBpe TrainBpe(const WordCounts& counts, const BpeTrainerOptions& options, const Progress& progress) {
  Validate(options);
  return Trainer(counts, options).Run(progress);
}

TrainedBpe ByteVocabulary() {
  TrainedBpe trained;
  for (size_t value = 0; value < kBytes; ++value) {
    const auto byte = static_cast<char>(value);
    trained.tokens.push_back(PieceOfBytes({&byte, 1}));
  }
  return trained;
}

namespace {

using nlohmann::ordered_json;

ordered_json AddedTokens(const std::vector<std::string>& special) {
  ordered_json added = ordered_json::array();
  for (size_t id = 0; id < special.size(); ++id) {
    added.push_back({{"id", id},
                     {"content", special[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  return added;
}

ordered_json Model(const TrainedBpe& trained) {
  std::vector<std::string_view> by_id(trained.special.begin(), trained.special.end());
  by_id.insert(by_id.end(), trained.tokens.begin(), trained.tokens.end());
  // Its members are appended as they are: setting them by name would look each one up among all before it.
  ordered_json vocabulary = ordered_json::object();
  ordered_json::object_t::Container& members = vocabulary.get_ref<ordered_json::object_t&>();
  for (const std::string_view token : by_id) members.emplace_back(token, members.size());
  ordered_json merges = ordered_json::array();
  for (const auto& [left, right] : trained.merges)
    merges.push_back({by_id[static_cast<size_t>(left)], by_id[static_cast<size_t>(right)]});
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", std::move(vocabulary)},
          {"merges", std::move(merges)}};
}

}  // namespace

std::string ToTokenizerJson(const TrainedBpe& trained) {
  const ordered_json bytes = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const ordered_json json = {{"version", "1.0"},          {"truncation", nullptr},
                             {"padding", nullptr},        {"added_tokens", AddedTokens(trained.special)},
                             {"normalizer", nullptr},     {"pre_tokenizer", bytes},
                             {"post_processor", nullptr}, {"decoder", bytes},
                             {"model", Model(trained)}};
  return json.dump(1) + "\n";
}

}  // namespace qkv
