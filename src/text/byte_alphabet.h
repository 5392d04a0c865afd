// The alphabet of byte-level vocabularies: each byte is written as one printable character, itself where it is
// a printable one of Latin-1, else the next free one from U+0100 on (Radford et al. 2019, the code of GPT-2).
// The space is U+0120, "Ġ".
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace qkv {

char32_t ByteCharacter(unsigned char byte);

// The bytes that a piece of such a vocabulary stands for; nothing where a character is not of the alphabet.
// The piece is checked UTF-8.
std::optional<std::string> BytesOfPiece(std::string_view piece);

// The other way round.
std::string PieceOfBytes(std::string_view bytes);

}  // namespace qkv
