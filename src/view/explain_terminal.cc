#include <fmt/format.h>

#include <algorithm>

#include "qkv/view.h"
#include "view/excerpt.h"
#include "view/explain_words.h"
#include "view/width.h"

namespace qkv {
namespace view {
namespace {

constexpr int kMinWidth = 48, kIndent = 3, kCellWidth = 8, kGapWidth = 3, kNameWidth = 15;
constexpr std::string_view kBold = "\x1b[1m", kDim = "\x1b[2m", kReset = "\x1b[0m";

class Writer {
 public:
  Writer(const Explanation& explanation, const TerminalOptions& options)
      : explanation_(explanation), options_(options), width_(std::max(kMinWidth, options.width)) {}

  std::string Write() {
    out_ += Styled(kBold, FitWidth(Visible(options_.text), width_)) + "\n";
    out_ += Wrapped(Subject(explanation_), 0);
    out_ += Wrapped(fmt::format("\u25b8 marks the row of {}, token {}",
                                Quoted(explanation_, explanation_.token), explanation_.token),
                    0);
    int number = 0;
    for (const ExplainedStep& step : explanation_.steps) Step(step, number);
    return out_;
  }

 private:
  std::string Styled(std::string_view style, const std::string& text) const {
    return options_.color ? fmt::format("{}{}{}", style, text, kReset) : text;
  }

  // Broken between words; lines after the first stand two columns further in.
  std::string Wrapped(const std::string& text, int indent) const {
    std::string out, line(static_cast<size_t>(indent), ' ');
    bool empty = true;
    for (size_t first = 0; first < text.size();) {
      const size_t last = std::min(text.find(' ', first), text.size());
      const std::string word = text.substr(first, last - first);
      if (!empty && DisplayWidth(line) + 1 + DisplayWidth(word) > width_) {
        out += line + "\n";
        line.assign(static_cast<size_t>(indent) + 2, ' ');
        empty = true;
      }
      line += (empty ? "" : " ") + word;
      empty = false;
      first = last + 1;
    }
    return out + line + "\n";
  }

  void Step(const ExplainedStep& step, int& number) {
    const StepWords words = WordsOf(explanation_, step);
    out_ += "\n" +
            Styled(kBold, IsAside(step.kind) ? "\u00b7  " + words.title
                                             : fmt::format("{:<3}{}", ++number, words.title)) +
            "\n";
    std::string formulas;
    for (const Formula& formula : words.formulas) formulas += (formulas.empty() ? "" : "   ") + formula.text;
    out_ += Wrapped(formulas, kIndent);
    out_ += Wrapped(words.shapes, kIndent);
    out_ += Wrapped(words.why, kIndent);
    for (const std::string& line : words.worked) out_ += Wrapped(line, kIndent);
    const int64_t columns = (width_ - kIndent - kNameWidth - 2 * kGapWidth) / kCellWidth;
    for (const Table& table : TablesOf(explanation_, step, {6, 12, 3, columns, columns})) Draw(table);
  }

  static std::string Right(const std::string& text, int width) {
    const std::string fitted = FitWidth(text, width - 1);
    return std::string(static_cast<size_t>(std::max(0, width - DisplayWidth(fitted))), ' ') + fitted;
  }

  static std::string Left(const std::string& text, int width) {
    const std::string fitted = FitWidth(text, width);
    return fitted + std::string(static_cast<size_t>(std::max(0, width - DisplayWidth(fitted))), ' ');
  }

  void Draw(const Table& table) {
    if (!table.about.empty()) {
      out_ +=
          std::string(kIndent, ' ') +
          Styled(kDim, table.symbol.empty() ? table.about : Symbol(table.symbol).text + ", " + table.about) +
          "\n";
    }
    std::string header =
        std::string(kIndent, ' ') + Left(table.about.empty() ? Symbol(table.symbol).text : "", kNameWidth);
    for (size_t column = 0; column < table.column_names.size(); ++column) {
      header += table.column_gaps[column] ? Right("\u2026", kGapWidth)
                                          : Right(table.column_names[column], kCellWidth);
    }
    out_ += Styled(kDim, header) + "\n";
    for (const Table::Row& row : table.rows) Draw(table, row);
  }

  void Draw(const Table& table, const Table::Row& row) {
    if (row.gap) {
      out_ += std::string(kIndent, ' ') + "\u22ee\n";
      return;
    }
    std::string line = (row.marked ? " \u25b8 " : std::string(kIndent, ' ')) + Left(row.name, kNameWidth);
    size_t value = 0;
    for (const bool gap : table.column_gaps) {
      line += gap ? Right("\u2026", kGapWidth) : Right(Number(row.values[value++], table.largest), kCellWidth);
    }
    out_ += (row.marked ? Styled(kBold, line) : line) + "\n";
  }

  const Explanation& explanation_;
  const TerminalOptions& options_;
  const int width_;
  std::string out_;
};

}  // namespace
}  // namespace view

std::string TerminalExplanation(const Explanation& explanation, const TerminalOptions& options) {
  return view::Writer(explanation, options).Write();
}

}  // namespace qkv
