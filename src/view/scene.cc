#include "view/scene.h"

#include <fmt/format.h>

#include "view/width.h"

namespace qkv::view {
namespace {

Section SectionOf(const Rows& rows, const std::vector<TokenText>& texts, int64_t token) {
  Section section;
  section.token = token;
  section.slot = rows.QuerySlot(token);
  section.peaks = StrongestHeads(rows, {section.slot});
  if (section.peaks.empty()) return section;
  const Peak& peak = section.peaks.front();
  section.place = peak.place;
  section.row = rows.Read(peak.place);
  section.shown = TokensToShow(section.row, token, kFigureTokens);
  const std::string head = HeadName(rows.capture(), peak.place);
  section.heading = peak.key < 0 ? fmt::format("{}   {}", texts[token].name, head)
                                 : fmt::format("{} \u2192 {} {:.2f}   {}", texts[token].name,
                                               texts[peak.key].name, peak.weight, head);
  if (const auto count = static_cast<int64_t>(section.shown.size()); count < rows.tokens())
    section.notice = fmt::format("{} of {} tokens are shown: those around {} and around its strongest keys",
                                 count, rows.tokens(), texts[token].name);
  return section;
}

// Without a focus: the token that the strongest head of all looks from.
std::vector<int64_t> FocusOf(const Rows& rows, const ViewOptions& options) {
  if (!options.focus.empty()) return options.focus;
  const std::vector<Peak> peaks = StrongestHeads(rows, WordQueries(rows));
  if (peaks.empty() || rows.queries() == 0) return {};
  return {rows.capture().query_ids[peaks.front().place.query]};
}

}  // namespace

Scene SceneOf(const Rows& rows, const ViewOptions& options) {
  const ModelCapture& capture = rows.capture();
  Scene scene;
  scene.title = TitleOf(options);
  scene.subtitle = fmt::format("{} \u00B7 {} layers of {} heads \u00B7 {} tokens{}", Visible(capture.model),
                               capture.layers, capture.heads, rows.tokens(),
                               options.skip_first ? " \u00B7 first token left out, the rest scaled to 1" : "");
  scene.texts = TokenTexts(capture);
  std::vector<int64_t> focus = FocusOf(rows, options);
  if (focus.size() > kFigureSections) {
    scene.notice = fmt::format("the first {} of {} places are shown", kFigureSections, focus.size());
    focus.resize(kFigureSections);
  }
  for (const int64_t token : focus) scene.sections.push_back(SectionOf(rows, scene.texts, token));
  return scene;
}

}  // namespace qkv::view
