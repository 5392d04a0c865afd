#include "text/aligned_text.h"

#include <algorithm>

#include "qkv/error.h"

namespace qkv {
namespace {

// Bounds what a damaged file can do: steps that each double a text. Real ones at most treble it.
constexpr size_t kMostGrowth = 16, kAlwaysAllowed = 4096;  // bytes

}  // namespace

TextRange AlignedText::Origin(TextRange range) const {
  if (!rewritten_) return {part_.first + range.first, part_.first + range.last};
  TextRange origin = origins_[range.first];
  for (size_t at = range.first + 1; at < range.last; ++at)
    origin.last = std::max(origin.last, origins_[at].last);
  return origin;
}

AlignedText AlignedText::Part(TextRange range) const {
  const TextRange origin = Origin(range);
  AlignedText part(original_, origin);
  if (!rewritten_) return part;
  const auto at = [&](size_t place) { return origins_.begin() + static_cast<std::ptrdiff_t>(place); };
  part.rewritten_ = true;
  part.changed_ = changed_.substr(range.first, range.last - range.first);
  part.origins_.assign(at(range.first), at(range.last));
  return part;
}

TextRewriter::TextRewriter(AlignedText& text) : text_(text) {
  changed_.reserve(text.size() + text.size() / 4);
  origins_.reserve(changed_.capacity());
}

void TextRewriter::KeepUntil(size_t at) {
  changed_ += text_.text().substr(done_, at - done_);
  for (; done_ < at; ++done_) origins_.push_back(text_.Origin({done_, done_ + 1}));
}

void TextRewriter::Insert(std::string_view piece) {
  const size_t place = done_ < text_.size() ? text_.Origin({done_, done_ + 1}).first : text_.part_.last;
  changed_ += piece;
  origins_.insert(origins_.end(), piece.size(), {place, place});
}

void TextRewriter::Write(TextRange old, std::string_view piece) {
  changed_ += piece;
  origins_.insert(origins_.end(), piece.size(), text_.Origin(old));
  done_ = std::max(done_, old.last);
}

void TextRewriter::Finish() {
  KeepUntil(text_.size());
  const size_t most = kMostGrowth * (text_.part_.last - text_.part_.first) + kAlwaysAllowed;
  if (changed_.size() > most) throw Error(ErrorCode::kFile, "the tokenizer makes far more of it", "text");
  text_.changed_ = std::move(changed_);
  text_.origins_ = std::move(origins_);
  text_.rewritten_ = true;
}

}  // namespace qkv
