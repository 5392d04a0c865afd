#include "view/formula.h"

#include <fmt/format.h>

namespace qkv::view {
namespace {

// Letter by letter: several in one element would stand upright, as the name of one thing.
std::string IndexMath(std::string_view index) {
  std::string mathml;
  for (const char letter : index) {
    if (letter >= 'a' && letter <= 'z') {
      mathml += fmt::format("<mi>{}</mi>", letter);
    } else {
      return fmt::format("<mi>{}</mi>", index);
    }
  }
  return mathml;
}

std::string Enclosed(const Formula& formula) {
  return formula.extent == Extent::kOne ? formula.text : "(" + formula.text + ")";
}

}  // namespace

Formula operator+(const Formula& a, const Formula& b) {
  return {a.text + b.text, a.mathml + b.mathml, Extent::kSeveral};
}

Formula Letter(std::string_view letters) { return {std::string(letters), fmt::format("<mi>{}</mi>", letters)}; }

Formula Sign(std::string_view sign) { return {fmt::format(" {} ", sign), fmt::format("<mo>{}</mo>", sign)}; }

Formula Tight(std::string_view sign) {
  return {std::string(sign), fmt::format("<mo stretchy=\"false\" lspace=\"0\" rspace=\"0\">{}</mo>", sign)};
}

Formula Times() { return {" \u00b7 ", Tight("\u2009").mathml}; }

Formula Words(std::string_view words) {
  return {fmt::format(" {} ", words), fmt::format("<mtext>&nbsp;{}&nbsp;</mtext>", words)};
}

Formula Sub(const Formula& base, std::string_view index) {
  return {fmt::format("{}_{}", base.text, index),
          fmt::format("<msub><mrow>{}</mrow><mrow>{}</mrow></msub>", base.mathml, IndexMath(index))};
}

Formula SquareOf(std::string_view letter, std::string_view index) {
  return {fmt::format("{}\u00b2_{}", letter, index),
          fmt::format("<msubsup><mi>{}</mi><mrow>{}</mrow><mn>2</mn></msubsup>", letter, IndexMath(index))};
}

// The sign stands high by itself.
Formula Primed(const Formula& base) {
  const Formula mark = Tight("\u2032");
  return {base.text + mark.text, base.mathml + mark.mathml};
}

Formula Transpose(const Formula& base) {
  return {base.text + "\u1d40", fmt::format("<msup><mrow>{}</mrow><mi>T</mi></msup>", base.mathml)};
}

Formula Root(const Formula& inner) {
  return {"\u221a" + Enclosed(inner), fmt::format("<msqrt>{}</msqrt>", inner.mathml)};
}

Formula Fraction(const Formula& above, const Formula& below) {
  return {fmt::format("{} / {}", Enclosed(above), Enclosed(below)),
          fmt::format("<mfrac><mrow>{}</mrow><mrow>{}</mrow></mfrac>", above.mathml, below.mathml), Extent::kSeveral};
}

Formula SumOver(std::string_view index, const Formula& terms) {
  return {fmt::format("\u03a3_{} {}", index, terms.text),
          fmt::format("<munder><mo>\u2211</mo><mi>{}</mi></munder>{}", index, terms.mathml)};
}

Formula Call(std::string_view function, const Formula& argument) {
  Formula call = Letter(function) + Tight("(") + argument + Tight(")");
  call.extent = Extent::kOne;
  return call;
}

Formula Symbol(std::string_view symbol) {
  if (symbol.ends_with('\'')) return Primed(Symbol(symbol.substr(0, symbol.size() - 1)));
  const size_t bar = symbol.find('_');
  if (bar == symbol.npos) return Letter(symbol);
  return Sub(Letter(symbol.substr(0, bar)), symbol.substr(bar + 1));
}

std::string BlockMath(const Formula& formula) {
  return fmt::format("<math display=\"block\"><mrow>{}</mrow></math>", formula.mathml);
}

std::string InlineMath(const Formula& formula) {
  return fmt::format("<math><mrow>{}</mrow></math>", formula.mathml);
}

}  // namespace qkv::view
