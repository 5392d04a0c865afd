// Which tokens `--token` means.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkv/tokenizer.h"

namespace qkv::cli {

// The places, in order, that the user's word names; each is a run of tokens [first, last).
//   12      the token with that index
//   =12     the word 12
//   word    words of the text, or several in a row, as it spells them; else in any case; else a raw piece
//   ("##ing")
// Error{kInvalidArgument} of the option where nothing fits, with the words that there are.
struct TokenRun {
  int64_t first = 0, last = 0;
};
std::vector<TokenRun> ChooseTokens(const Encoding& encoding, const std::string& text,
                                   const std::string& wanted, const std::string& option = "--token");

}  // namespace qkv::cli
