#include "runtime/printable.h"

#include <cstdint>
#include <cstdio>

namespace qkv {
namespace {

struct Character {
  uint32_t code;
  size_t bytes;  // 0: not UTF-8
};

// The first character of text, which is not empty.
Character Decode(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (bytes == 0 || bytes > text.size()) return {0, 0};
  uint32_t code = lead & (0x7f >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {0, 0};
    code = (code << 6) | (byte(i) & 0x3f);
  }
  const bool overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return overlong || surrogate || code > 0x10ffff ? Character{0, 0} : Character{code, bytes};
}

bool ChangesLayout(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 ||
         (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

std::string Escape(uint32_t code) {
  if (code == '\n') return "\\n";
  if (code == '\t') return "\\t";
  if (code == '\r') return "\\r";
  char text[8];
  std::snprintf(text, sizeof text, code < 0x100 ? "\\x%02x" : "\\u%04x", static_cast<unsigned>(code));
  return text;
}

}  // namespace

std::string Printable(std::string_view text, size_t limit) {
  std::string out;
  while (!text.empty()) {
    const Character character = Decode(text);
    std::string piece;
    if (character.bytes == 0) {
      piece = Escape(static_cast<unsigned char>(text[0]));
    } else if (ChangesLayout(character.code)) {
      piece = Escape(character.code);
    } else {
      piece = character.code == '\\' ? "\\\\" : std::string(text.substr(0, character.bytes));
    }
    if (out.size() + piece.size() > limit) return out + "…";
    out += piece;
    text.remove_prefix(character.bytes == 0 ? 1 : character.bytes);
  }
  return out;
}

}  // namespace qkv
