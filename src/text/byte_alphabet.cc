#include "text/byte_alphabet.h"

#include <array>
#include <cstddef>

#include "text/utf8.h"

namespace qkv {
namespace {

constexpr char32_t kFirstStandIn = 0x100;

constexpr bool IsItself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr auto kCharacters = [] {
  std::array<char32_t, 256> characters{};
  char32_t stand_in = kFirstStandIn;
  for (int byte = 0; byte < 256; ++byte)
    characters[static_cast<size_t>(byte)] = IsItself(byte) ? static_cast<char32_t>(byte) : stand_in++;
  return characters;
}();

constexpr char32_t kEnd = 0x144;  // after the last stand-in

constexpr auto kBytes = [] {
  std::array<int16_t, kEnd> bytes{};
  for (int16_t& byte : bytes) byte = -1;
  for (size_t byte = 0; byte < kCharacters.size(); ++byte)
    bytes[kCharacters[byte]] = static_cast<int16_t>(byte);
  return bytes;
}();

}  // namespace

char32_t ByteCharacter(unsigned char byte) { return kCharacters[byte]; }

std::optional<std::string> BytesOfPiece(std::string_view piece) {
  std::string bytes;
  for (size_t at = 0; at < piece.size();) {
    const char32_t c = NextCharacter(piece, at);
    if (c >= kEnd || kBytes[c] < 0) return {};
    bytes += static_cast<char>(kBytes[c]);
  }
  return bytes;
}

std::string PieceOfBytes(std::string_view bytes) {
  std::string piece;
  for (const char byte : bytes) AppendUtf8(ByteCharacter(static_cast<unsigned char>(byte)), piece);
  return piece;
}

}  // namespace qkv
