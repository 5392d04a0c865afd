// Byte-pair encoding: a word starts as its bytes or characters, and neighbours are merged, the lowest rank
// first and the leftmost of equal ones, until no merge fits.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/merge_table.h"
#include "text/token_list.h"

namespace qkv {

enum class BpeAlphabet {
  kBytes,       // pieces are written in the alphabet of bytes (byte_alphabet.h)
  kCharacters,  // pieces are plain text
};

enum class Unknowns { kEach, kFused };  // whether neighbouring unknown characters become one token

struct BpeRules {
  MergeTable merges;
  BpeAlphabet alphabet = BpeAlphabet::kBytes;
  bool byte_fallback =
      false;  // of characters: what is not in the vocabulary becomes its bytes, <0x00> to <0xFF>
  bool ignore_merges = false;      // a word of the vocabulary is its own token
  std::optional<int32_t> unknown;  // else what is not in the vocabulary is dropped
  Unknowns unknowns = Unknowns::kEach;
};

// A token and the bytes of the word that it stands for.
struct BpePiece {
  int32_t id;
  uint32_t first, last;
};

// Rules and a vocabulary made ready to cut words; const from many threads.
class Bpe {
 public:
  // `tokens` must outlive it; ids fit 31 bits.
  Bpe(BpeRules rules, const TokenList& tokens);

  BpeAlphabet alphabet() const { return rules_.alphabet; }

 private:
  friend class BpeCutter;

  std::optional<int32_t> WholeWord(std::string_view word) const;
  void AppendUnits(std::string_view word, std::vector<BpePiece>& units) const;
  void AppendCharacter(std::string_view word, uint32_t first, uint32_t last,
                       std::vector<BpePiece>& units) const;
  void AppendUnknown(uint32_t first, uint32_t last, std::vector<BpePiece>& units) const;

  BpeRules rules_;
  const PieceTable& vocabulary_;
  std::array<int32_t, 256> byte_ids_;  // of each byte's token, -1 for none
  PieceTable words_;                   // where merges are ignored: whole words as they stand in a text
};

// Cuts the words of one text and remembers them, since most words come again.
class BpeCutter {
 public:
  explicit BpeCutter(const Bpe& bpe) : bpe_(bpe) {}

  // The tokens of a word of checked UTF-8; valid until the next call.
  std::span<const BpePiece> Cut(std::string_view word);

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
  };

  void CutAnew(std::string_view word);
  void Merge();
  void PushMerge(size_t left);

  const Bpe& bpe_;
  std::unordered_map<std::string, std::vector<BpePiece>, Hash, std::equal_to<>> known_;

  std::vector<BpePiece> units_;           // of the word at hand
  std::vector<uint32_t> before_, after_;  // each unit's neighbours while it is merged
  std::vector<MergeTable::Merge> next_;   // each unit's merge with the unit after it; rank -1: none
  std::vector<uint64_t> queue_;           // a heap of rank and unit, the least on top
};

}  // namespace qkv
