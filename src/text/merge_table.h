// Which two neighbours of a text become one, and in which order: the merges of byte-pair encoding.
// Sennrich et al. 2016, https://arxiv.org/abs/1508.07909
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace qkv {

class MergeTable {
 public:
  struct Merge {
    int32_t rank;    // lower ones first
    int32_t result;  // the id that the two become
  };

  void Reserve(size_t merges);

  // A later merge of the same two replaces the earlier one. Ids are at least 0.
  void Add(int32_t left, int32_t right, Merge merge);

  // Null where the two stay apart.
  const Merge* Find(int32_t left, int32_t right) const;

  size_t size() const { return count_; }

 private:
  struct Slot {
    uint64_t key;  // both ids
    Merge merge;
  };

  size_t SlotOf(uint64_t key) const;
  void Resize(size_t slots);

  std::vector<Slot> slots_;  // open addressing, at most half of them taken
  size_t count_ = 0;
};

// The two pieces of a merge as files write it, "a b"; nothing where the text is anything else.
std::optional<std::pair<std::string_view, std::string_view>> SplitMerge(std::string_view text);

}  // namespace qkv
