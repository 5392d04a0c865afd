// Pieces of text and their ids, for look-ups by the longest piece that a text starts with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qkv {

class PieceTable {
 public:
  struct Match {
    size_t length;  // bytes
    int64_t id;
  };

  void Reserve(size_t pieces);

  // False, and nothing changed, where the piece is there already.
  bool Add(std::string_view piece, int64_t id);

  std::optional<int64_t> Find(std::string_view piece) const;

  // The longest piece that checked UTF-8 starts with, ending where a character ends; never the empty piece.
  // One hash is carried along the text, so the cost is one look-up for each character of the longest piece.
  std::optional<Match> LongestPrefix(std::string_view text) const;

  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    uint64_t hash;
    size_t offset, length;  // of the piece in bytes_
    int64_t id;
  };

  const Entry* Lookup(std::string_view piece, uint64_t hash) const;
  size_t SlotOf(std::string_view piece, uint64_t hash) const;
  std::string_view PieceOf(const Entry& entry) const { return {bytes_.data() + entry.offset, entry.length}; }
  void Resize(size_t slots);

  std::string bytes_;            // all pieces, end to end
  std::vector<Entry> entries_;   // in the order of Add
  std::vector<uint32_t> slots_;  // open addressing: an index into entries_ plus 1, 0 where free
  size_t longest_ = 0;           // bytes
};

}  // namespace qkv
