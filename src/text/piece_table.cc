#include "text/piece_table.h"

#include <algorithm>
#include <bit>

namespace qkv {
namespace {

// FNV-1a, which can be carried on byte by byte.
constexpr uint64_t kSeed = 0xcbf29ce484222325;
constexpr uint64_t Extend(uint64_t hash, char byte) {
  return (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
}

uint64_t Hash(std::string_view piece) {
  uint64_t hash = kSeed;
  for (const char byte : piece) hash = Extend(hash, byte);
  return hash;
}

constexpr size_t kFewestSlots = 64;

bool IsContinuationByte(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

// The slot that holds the piece, or the free one where it belongs. At most half of the slots are taken.
size_t PieceTable::SlotOf(std::string_view piece, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = static_cast<size_t>(hash ^ (hash >> 32)) & mask;
  while (slots_[slot] != 0) {
    const Entry& entry = entries_[slots_[slot] - 1];
    if (entry.hash == hash && PieceOf(entry) == piece) break;
    slot = (slot + 1) & mask;
  }
  return slot;
}

const PieceTable::Entry* PieceTable::Lookup(std::string_view piece, uint64_t hash) const {
  if (slots_.empty()) return nullptr;
  const uint32_t index = slots_[SlotOf(piece, hash)];
  return index == 0 ? nullptr : &entries_[index - 1];
}

void PieceTable::Resize(size_t slots) {
  slots_.assign(std::bit_ceil(std::max(kFewestSlots, slots)), 0);
  for (size_t i = 0; i < entries_.size(); ++i)
    slots_[SlotOf(PieceOf(entries_[i]), entries_[i].hash)] = static_cast<uint32_t>(i + 1);
}

void PieceTable::Reserve(size_t pieces) {
  entries_.reserve(pieces);
  if (2 * pieces > slots_.size()) Resize(2 * pieces);
}

bool PieceTable::Add(std::string_view piece, int64_t id) {
  if (2 * entries_.size() >= slots_.size()) Resize(4 * entries_.size());
  const uint64_t hash = Hash(piece);
  const size_t slot = SlotOf(piece, hash);
  if (slots_[slot] != 0) return false;
  entries_.push_back({hash, bytes_.size(), piece.size(), id});
  bytes_ += piece;
  slots_[slot] = static_cast<uint32_t>(entries_.size());
  longest_ = std::max(longest_, piece.size());
  return true;
}

std::optional<int64_t> PieceTable::Find(std::string_view piece) const {
  const Entry* entry = Lookup(piece, Hash(piece));
  return entry == nullptr ? std::nullopt : std::optional(entry->id);
}

std::optional<PieceTable::Match> PieceTable::LongestPrefix(std::string_view text) const {
  std::optional<Match> longest;
  uint64_t hash = kSeed;
  const size_t limit = std::min(text.size(), longest_);
  for (size_t length = 1; length <= limit; ++length) {
    hash = Extend(hash, text[length - 1]);
    if (length < text.size() && IsContinuationByte(text[length])) continue;
    if (const Entry* entry = Lookup(text.substr(0, length), hash)) longest = {length, entry->id};
  }
  return longest;
}

}  // namespace qkv
