// Formulas as a terminal shows them, in one line of text, and as a page sets them, in MathML: both from one
// source.
#pragma once

#include <string>
#include <string_view>

namespace qkv::view {

// A line of text needs parentheses where MathML has a fraction's bar or a root's roof.
enum class Extent { kOne, kSeveral };  // one symbol, call or root; several signs side by side

struct Formula {
  std::string text, mathml;
  Extent extent = Extent::kOne;
};

Formula operator+(const Formula& a, const Formula& b);  // side by side

Formula Letter(std::string_view letters);  // a variable, or a function's name
Formula Sign(std::string_view sign);       // with space around it: = + →
Formula Tight(std::string_view sign);      // without: ( ) , ·
Formula Times();                           // a product, where a fraction stands before it
Formula Words(std::string_view words);     // plain text inside a formula
Formula Sub(const Formula& base, std::string_view index);
Formula SquareOf(std::string_view letter, std::string_view index);  // of the letter with that index
Formula Primed(const Formula& base);
Formula Transpose(const Formula& base);
Formula Root(const Formula& inner);
Formula Fraction(const Formula& above, const Formula& below);
Formula SumOver(std::string_view index, const Formula& terms);
Formula Call(std::string_view function, const Formula& argument);

// A tensor's symbol in an explanation: "W_Q", "S'".
Formula Symbol(std::string_view symbol);

// In a line of its own, and inside a line.
std::string BlockMath(const Formula& formula);
std::string InlineMath(const Formula& formula);

}  // namespace qkv::view
