// How byte-level tokenizers cut a text into words before they merge within each: the two patterns that nearly
// all of them share, and numbers apart. Written out by hand they take linear time and a hundredth of the time
// of a regular expression engine; any other pattern goes to that (regex_splitter.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace qkv {

// Bytes [first, last) of a text.
struct TextRange {
  size_t first, last;
};

// The words of GPT-2.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The words of GPT-4 as Llama 3 took them over, and as Qwen 2 did with one digit at a time.
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Each appends the words of text[range], which cover it; what lies outside of the range is not looked at.
// The text is checked UTF-8 and the range ends where characters do.
void SplitGpt2Words(std::string_view text, TextRange range, std::vector<TextRange>& words);

// `most_digits` is the longest run of \p{N} in one word.
void SplitGpt4Words(std::string_view text, TextRange range, int64_t most_digits, std::vector<TextRange>& words);

enum class DigitWords { kEachDigit, kRuns };
void SplitDigits(std::string_view text, TextRange range, DigitWords digits, std::vector<TextRange>& words);

}  // namespace qkv
