#include "models/truncate.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace qkv {
namespace {

// The special tokens that the tokenizer put behind the text.
size_t ClosingTokens(const Encoding& encoding) {
  size_t count = 0;
  for (size_t token = encoding.ids.size(); token-- > 0; ++count) {
    const auto [first, last] = encoding.span[token];
    if (!encoding.special[token] || first < last) break;
  }
  return count;
}

template <class T>
void KeepEnds(std::vector<T>& values, size_t front, size_t back) {
  values.erase(values.begin() + front, values.end() - back);
}

}  // namespace

void Truncate(Encoding& encoding, size_t limit) {
  const size_t back = std::min(ClosingTokens(encoding), limit);
  const size_t front = limit - back;
  KeepEnds(encoding.ids, front, back);
  KeepEnds(encoding.tokens, front, back);
  KeepEnds(encoding.labels, front, back);
  KeepEnds(encoding.continues, front, back);
  KeepEnds(encoding.special, front, back);
  KeepEnds(encoding.span, front, back);
}

}  // namespace qkv
