#include "text/bpe.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace qkv {
namespace {

constexpr size_t kLongestRemembered = 64;  // bytes of a word
constexpr size_t kMostRemembered = 1 << 17;

constexpr MergeTable::Merge kNoMerge{-1, -1};
constexpr uint32_t kGone = UINT32_MAX;

// The name of a byte's token in vocabularies of characters.
std::string ByteName(unsigned char byte) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte / 16], kDigits[byte % 16], '>'};
}

}  // namespace

Bpe::Bpe(BpeRules rules, const TokenList& tokens) : rules_(std::move(rules)), vocabulary_(tokens.vocabulary()) {
  byte_ids_.fill(-1);
  const bool bytes = rules_.alphabet == BpeAlphabet::kBytes;
  for (int value = 0; (bytes || rules_.byte_fallback) && value < 256; ++value) {
    const auto byte = static_cast<char>(value);
    const std::string name = bytes ? PieceOfBytes({&byte, 1}) : ByteName(static_cast<unsigned char>(byte));
    if (const auto id = vocabulary_.Find(name))
      byte_ids_[static_cast<size_t>(value)] = static_cast<int32_t>(*id);
  }
  if (!rules_.ignore_merges || !bytes) return;
  words_.Reserve(vocabulary_.size());
  for (int64_t id = 0; id < static_cast<int64_t>(vocabulary_.size()); ++id)
    if (const auto word = BytesOfPiece(tokens[id])) words_.Add(*word, id);
}

std::optional<int32_t> Bpe::WholeWord(std::string_view word) const {
  if (!rules_.ignore_merges) return {};
  const auto id = rules_.alphabet == BpeAlphabet::kBytes ? words_.Find(word) : vocabulary_.Find(word);
  return id ? std::optional(static_cast<int32_t>(*id)) : std::nullopt;
}

void Bpe::AppendUnits(std::string_view word, std::vector<BpePiece>& units) const {
  units.reserve(word.size());
  const auto size = static_cast<uint32_t>(word.size());
  if (rules_.alphabet == BpeAlphabet::kBytes) {
    for (uint32_t at = 0; at < size; ++at) {
      const int32_t id = byte_ids_[static_cast<unsigned char>(word[at])];
      if (id >= 0) {
        units.push_back({id, at, at + 1});
      } else {
        AppendUnknown(at, at + 1, units);
      }
    }
    return;
  }
  for (size_t at = 0; at < word.size();) {
    const auto first = static_cast<uint32_t>(at);
    NextCharacter(word, at);
    AppendCharacter(word, first, static_cast<uint32_t>(at), units);
  }
}

void Bpe::AppendCharacter(std::string_view word, uint32_t first, uint32_t last,
                          std::vector<BpePiece>& units) const {
  const std::string_view character = word.substr(first, last - first);
  if (const auto id = vocabulary_.Find(character)) {
    units.push_back({static_cast<int32_t>(*id), first, last});
    return;
  }
  const auto byte_id = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  const bool falls_back =
      std::all_of(character.begin(), character.end(), [&](char b) { return byte_id(b) >= 0; });
  if (!falls_back) return AppendUnknown(first, last, units);
  for (uint32_t at = first; at < last; ++at) units.push_back({byte_id(word[at]), at, at + 1});
}

void Bpe::AppendUnknown(uint32_t first, uint32_t last, std::vector<BpePiece>& units) const {
  if (!rules_.unknown) return;
  const bool joins = rules_.unknowns == Unknowns::kFused && !units.empty() &&
                     units.back().id == *rules_.unknown && units.back().last == first;
  if (joins) {
    units.back().last = last;
  } else {
    units.push_back({*rules_.unknown, first, last});
  }
}

std::span<const BpePiece> BpeCutter::Cut(std::string_view word) {
  if (word.size() > kLongestRemembered) {
    CutAnew(word);
    return units_;
  }
  if (const auto known = known_.find(word); known != known_.end()) return known->second;
  CutAnew(word);
  if (known_.size() < kMostRemembered) known_.emplace(word, units_);
  return units_;
}

void BpeCutter::CutAnew(std::string_view word) {
  units_.clear();
  if (const auto id = bpe_.WholeWord(word)) {
    units_.push_back({*id, 0, static_cast<uint32_t>(word.size())});
    return;
  }
  bpe_.AppendUnits(word, units_);
  Merge();
}

// Enters the merge of a unit and the one after it, if there is one.
void BpeCutter::PushMerge(size_t left) {
  next_[left] = kNoMerge;
  if (after_[left] == units_.size()) return;
  const auto* merge = bpe_.rules_.merges.Find(units_[left].id, units_[after_[left]].id);
  if (merge == nullptr) return;
  next_[left] = *merge;
  queue_.push_back(static_cast<uint64_t>(merge->rank) << 32 | left);
  std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
}

// Units are a list linked by their numbers. The queue may name merges that a neighbour's merge has made
// impossible: those are told by their rank, which is no longer the unit's.
void BpeCutter::Merge() {
  const size_t count = units_.size();
  before_.resize(count);
  after_.resize(count);
  next_.assign(count, kNoMerge);
  queue_.clear();
  for (size_t i = 0; i < count; ++i) {
    before_[i] = i == 0 ? kGone : static_cast<uint32_t>(i - 1);
    after_[i] = static_cast<uint32_t>(i + 1);
    PushMerge(i);
  }
  while (!queue_.empty()) {
    const uint64_t top = queue_.front();
    std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
    queue_.pop_back();
    const auto left = static_cast<uint32_t>(top);
    if (next_[left].rank != static_cast<int32_t>(top >> 32)) continue;
    const uint32_t right = after_[left];
    units_[left] = {next_[left].result, units_[left].first, units_[right].last};
    units_[right].id = -1;
    next_[right] = kNoMerge;
    after_[left] = after_[right];
    if (after_[left] < count) before_[after_[left]] = left;
    PushMerge(left);
    if (before_[left] != kGone) PushMerge(before_[left]);
  }
  std::erase_if(units_, [](const BpePiece& unit) { return unit.id < 0; });
}

}  // namespace qkv
