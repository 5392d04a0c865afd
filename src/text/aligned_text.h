// A stretch of a text that may be rewritten, and for each byte where it came from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/word_splitter.h"

namespace qkv {

class AlignedText {
 public:
  // `original` must outlive it.
  AlignedText(std::string_view original, TextRange part) : original_(original), part_(part) {}

  std::string_view text() const {
    return rewritten_ ? std::string_view(changed_) : original_.substr(part_.first, part_.last - part_.first);
  }
  size_t size() const { return text().size(); }
  // Which bytes of the original these bytes of the text stand for, at least one.
  TextRange Origin(TextRange range) const;

  // These bytes of the text as a text of their own.
  AlignedText Part(TextRange range) const;

 private:
  friend class TextRewriter;

  std::string_view original_;
  TextRange part_;
  bool rewritten_ = false;
  std::string changed_;
  std::vector<TextRange> origins_;  // of each byte of changed_; inserted ones have an empty range
};

// Writes a text anew, from its start to its end.
class TextRewriter {
 public:
  explicit TextRewriter(AlignedText& text);

  void KeepUntil(size_t at);                          // copies the old text from where it is done up to `at`
  void Insert(std::string_view piece);                // stands for nothing in the old text
  void Write(TextRange old, std::string_view piece);  // stands for these bytes, with which the old text is done
  size_t position() const { return changed_.size(); }  // in the new text
  void Finish();                                       // copies the rest and stores the new text

 private:
  AlignedText& text_;
  size_t done_ = 0;  // bytes of the old text
  std::string changed_;
  std::vector<TextRange> origins_;
};

}  // namespace qkv
