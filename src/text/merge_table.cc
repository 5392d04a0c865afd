#include "text/merge_table.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace qkv {
namespace {

constexpr uint64_t kFree = UINT64_MAX;  // the key of no two ids
constexpr size_t kFewestSlots = 64;

constexpr uint64_t KeyOf(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

// The slot that holds the key, or the free one where it belongs.
size_t MergeTable::SlotOf(uint64_t key) const {
  const size_t mask = slots_.size() - 1;
  uint64_t hash = key * 0x9E3779B97F4A7C15;  // 2^64 over the golden ratio
  hash ^= hash >> 32;
  size_t slot = static_cast<size_t>(hash) & mask;
  while (slots_[slot].key != key && slots_[slot].key != kFree) slot = (slot + 1) & mask;
  return slot;
}

void MergeTable::Resize(size_t slots) {
  const std::vector<Slot> old =
      std::exchange(slots_, std::vector<Slot>(std::bit_ceil(std::max(kFewestSlots, slots)), Slot{kFree, {}}));
  for (const Slot& slot : old)
    if (slot.key != kFree) slots_[SlotOf(slot.key)] = slot;
}

void MergeTable::Reserve(size_t merges) {
  if (2 * merges > slots_.size()) Resize(2 * merges);
}

void MergeTable::Add(int32_t left, int32_t right, Merge merge) {
  if (2 * count_ >= slots_.size()) Resize(4 * count_);
  Slot& slot = slots_[SlotOf(KeyOf(left, right))];
  if (slot.key == kFree) ++count_;
  slot = {KeyOf(left, right), merge};
}

const MergeTable::Merge* MergeTable::Find(int32_t left, int32_t right) const {
  if (slots_.empty()) return nullptr;
  const Slot& slot = slots_[SlotOf(KeyOf(left, right))];
  return slot.key == kFree ? nullptr : &slot.merge;
}

std::optional<std::pair<std::string_view, std::string_view>> SplitMerge(std::string_view text) {
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) return {};
  return std::pair(text.substr(0, space), text.substr(space + 1));
}

}  // namespace qkv
