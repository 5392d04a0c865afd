#include <fmt/format.h>

#include "qkv/error.h"
#include "qkv/view.h"
#include "view/color.h"
#include "view/excerpt.h"
#include "view/explain_words.h"
#include "view/page_assets.h"
#include "view/template.h"
#include "view/width.h"

namespace qkv {
namespace view {
namespace {

constexpr TableLimits kLimits{24, 32, 6, 12, 24};
constexpr float kStrong = 0.62f;  // shades over which text is light

// Text as HTML shows it.
std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

std::string Cell(const Table& table, float value) {
  const std::string number = Number(value, table.largest);
  if (!table.shaded) return fmt::format("<td>{}</td>", number);
  const float shade = Shade(value);
  return fmt::format("<td class=\"shade{}\" style=\"--w:{:.2f}\">{}</td>", shade > kStrong ? " strong" : "",
                     shade, number);
}

std::string RowHtml(const Table& table, const Table::Row& row) {
  std::string html = fmt::format("<tr{}><th scope=\"row\"{}>{}</th>", row.marked ? " class=\"marked\"" : "",
                                 row.gap ? " class=\"gap\"" : "", row.gap ? "\u22ee" : Escaped(row.name));
  size_t value = 0;
  for (const bool gap : table.column_gaps) {
    if (row.gap || gap) {
      html += fmt::format("<td class=\"gap\">{}</td>", row.gap ? "" : "\u2026");
    } else {
      html += Cell(table, row.values[value++]);
    }
  }
  return html + "</tr>\n";
}

std::string TableHtml(const Table& table) {
  std::string caption = table.symbol.empty() ? "" : InlineMath(Symbol(table.symbol));
  if (!table.about.empty()) caption += fmt::format("{}{}", caption.empty() ? "" : ", ", Escaped(table.about));
  // A table that scrolls can be reached and scrolled with the keyboard.
  std::string html = fmt::format(
      "<div class=\"table\" tabindex=\"0\"><table><caption>{}</caption>\n<thead><tr><td></td>", caption);
  for (size_t column = 0; column < table.column_names.size(); ++column) {
    html += table.column_gaps[column]
                ? "<th class=\"gap\">\u2026</th>"
                : fmt::format("<th scope=\"col\">{}</th>", Escaped(table.column_names[column]));
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const Table::Row& row : table.rows) html += RowHtml(table, row);
  return html + "</tbody></table></div>\n";
}

std::string StepHtml(const Explanation& explanation, const ExplainedStep& step, const std::string& number) {
  const StepWords words = WordsOf(explanation, step);
  std::string html = fmt::format("<section{}>\n<h2>", IsAside(step.kind) ? " class=\"aside\"" : "");
  if (!number.empty()) html += fmt::format("<span class=\"number\">{}</span>", number);
  html += fmt::format("{}</h2>\n<div class=\"formulas\">", Escaped(words.title));
  for (const Formula& formula : words.formulas) html += fmt::format("<div>{}</div>\n", BlockMath(formula));
  html += fmt::format("</div>\n<p class=\"quiet shapes\">{}</p>\n<p>{}</p>\n", Escaped(words.shapes),
                      Escaped(words.why));
  if (!words.worked.empty()) {
    html += "<ul class=\"worked\">\n";
    for (const std::string& line : words.worked) html += fmt::format("<li>{}</li>\n", Escaped(line));
    html += "</ul>\n";
  }
  html += "<div class=\"tables\">\n";
  for (const Table& table : TablesOf(explanation, step, kLimits)) html += TableHtml(table);
  return html + "</div>\n</section>\n";
}

std::string TokensHtml(const Explanation& explanation) {
  constexpr int kCharacters = 24;
  std::string html;
  for (size_t token = 0; token < explanation.tokens.size(); ++token) {
    const bool marked = static_cast<int64_t>(token) == explanation.token;
    html += fmt::format("<span{}>{}</span> ", marked ? " class=\"marked\"" : "",
                        Escaped(Clipped(Visible(explanation.tokens[token]), kCharacters)));
  }
  return html;
}

}  // namespace
}  // namespace view

std::string ExplanationPage(const Explanation& explanation, const std::string& text) {
  constexpr int kTitleCharacters = 300;
  const std::string title = view::Escaped(view::Clipped(view::Visible(text), kTitleCharacters));
  const std::string subject = view::Escaped(view::Subject(explanation)), tokens = view::TokensHtml(explanation);
  std::string steps;
  int number = 0;
  for (const ExplainedStep& step : explanation.steps) {
    steps += view::StepHtml(explanation, step, view::IsAside(step.kind) ? "" : fmt::to_string(++number));
  }
  return view::FillTemplate(view::kExplainHtml, [&](std::string_view name) -> std::string_view {
    if (name == "style") return view::kExplainStyle;
    if (name == "title") return title;
    if (name == "subject") return subject;
    if (name == "tokens") return tokens;
    if (name == "steps") return steps;
    throw Error(ErrorCode::kInternal, "the page's text names an unknown part", std::string(name));
  });
}

}  // namespace qkv
