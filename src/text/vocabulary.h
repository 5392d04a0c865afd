// The pieces of a vocabulary by id, and their ids.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "text/piece_table.h"

namespace qkv {

// No two pieces are equal.
struct Vocabulary {
  std::vector<std::string> pieces;
  PieceTable ids;

  // Gives the piece the next id. False, and nothing changed, where it is there already.
  bool Add(std::string piece) {
    if (!ids.Add(piece, static_cast<int64_t>(pieces.size()))) return false;
    pieces.push_back(std::move(piece));
    return true;
  }
};

}  // namespace qkv
