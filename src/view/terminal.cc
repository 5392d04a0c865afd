#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "qkv/view.h"
#include "view/color.h"
#include "view/rows.h"
#include "view/strip.h"
#include "view/width.h"

namespace qkv {
namespace view {
namespace {

constexpr int kMinWidth = 48;           // columns; narrower ones are treated as this
constexpr size_t kStrips = 2;           // how many heads get a strip of their own, before the mean
constexpr float kWorthAStrip = 0.25f;   // the least peak of the second one
constexpr size_t kKeysOfHead = 4;       // how many keys a head's line lists
constexpr float kLeastListed = 0.005f;  // prints as 0.01
constexpr float kLeastPassedOver = 0.05f;
constexpr float kLeastLit = 0.25f;  // a list's weights under this are text alone
constexpr std::string_view kReset = "\x1b[0m";

std::string Foreground(Rgb c) { return fmt::format("\x1b[38;2;{};{};{}m", c.r, c.g, c.b); }
std::string Background(Rgb c) { return fmt::format("\x1b[48;2;{};{};{}m", c.r, c.g, c.b); }

// What a terminal needs to show text and weights; one form with colour, one without.
class Ink {
 public:
  virtual ~Ink() = default;
  virtual FocusMark focus_mark() const = 0;
  virtual std::string Heading(const std::string& text) const = 0;
  virtual std::string Quiet(const std::string& text) const = 0;
  virtual std::string Weighted(const std::string& text, float weight) const = 0;
  virtual std::string Strip(const std::vector<Line>& lines) const = 0;
};

// Each line of words has a line of bars under it, as high as the weights.
class PlainInk : public Ink {
 public:
  FocusMark focus_mark() const override { return FocusMark::kStars; }
  std::string Heading(const std::string& text) const override { return text; }
  std::string Quiet(const std::string& text) const override { return text; }
  std::string Weighted(const std::string& text, float) const override { return text; }

  std::string Strip(const std::vector<Line>& lines) const override {
    std::string out;
    for (const Line& line : lines) {
      std::string words = "  ", bars = "  ";
      for (size_t i = 0; i < line.size(); ++i) {
        if (i > 0 && !line[i].joined) words += ' ', bars += ' ';
        words += line[i].text;
        for (int column = 0; column < line[i].width; ++column) bars += BarOf(line[i].weight);
      }
      bars.erase(bars.find_last_not_of(' ') + 1);
      out += words + "\n" + bars + (bars.empty() ? "" : "\n");
    }
    return out;
  }

 private:
  static std::string_view BarOf(float weight) {
    static constexpr std::array<std::string_view, 9> kBars = {" ",      "\u2581", "\u2582", "\u2583", "\u2584",
                                                              "\u2585", "\u2586", "\u2587", "\u2588"};
    // A little more than eight steps: the highest bar is reached before 1, and under 0.014 there is none.
    return kBars[std::min<size_t>(8, static_cast<size_t>(Shade(weight) * 8.5f))];
  }
};

// A dark panel whose words light up: it brings its own background, so it reads the same on dark and light
// terminals.
class ColorInk : public Ink {
 public:
  FocusMark focus_mark() const override { return FocusMark::kNone; }
  std::string Heading(const std::string& text) const override { return Wrapped("\x1b[1m", text); }
  std::string Quiet(const std::string& text) const override { return Wrapped("\x1b[2m", text); }
  std::string Weighted(const std::string& text, float weight) const override {
    if (weight < kLeastLit) return text;
    const Rgb back = ColorAt(kNightRamp, Shade(weight));
    return Wrapped(Background(back) + Foreground(IsDark(back) ? kLight : kBlack), text);
  }

  std::string Strip(const std::vector<Line>& lines) const override {
    int panel = 0;
    for (const Line& line : lines) panel = std::max(panel, WidthOf(line));
    std::string out;
    for (const Line& line : lines) {
      out += " " + Space(1);
      for (size_t i = 0; i < line.size(); ++i) {
        if (i > 0 && !line[i].joined) out += Space(1);
        out += Painted(line[i]);
      }
      out += Space(1 + panel - WidthOf(line)) + "\n";
    }
    return out;
  }

 private:
  static constexpr Rgb kLight = {226, 228, 232}, kBlack = {16, 16, 16}, kFaint = {140, 146, 158};

  static std::string Wrapped(const std::string& style, const std::string& text) {
    return style + text + std::string(kReset);
  }
  static std::string Space(int columns) {
    return Wrapped(Background(kNightRamp[0]), std::string(columns, ' '));
  }

  static std::string Painted(const Cell& cell) {
    const Rgb back = ColorAt(kNightRamp, Shade(cell.weight));
    Rgb front = IsDark(back) ? kLight : kBlack;
    std::string style = Background(back);
    if (cell.kind == Cell::Kind::kFocus) {
      style += "\x1b[1;4m";
      if (IsDark(back)) front = kNightMark;
    } else if (cell.kind != Cell::Kind::kWord) {
      style += "\x1b[3m";
      if (cell.weight < kLeastPassedOver) front = kFaint;
    }
    return Wrapped(style + Foreground(front), cell.text);
  }
};

class Writer {
 public:
  Writer(const Rows& rows, const TerminalOptions& options, const Ink& ink)
      : rows_(rows),
        options_(options),
        ink_(ink),
        texts_(TokenTexts(rows.capture())),
        width_(std::max(kMinWidth, options.width)) {}

  std::string Focus(int64_t token) {
    const int64_t slot = rows_.QuerySlot(token);
    const std::vector<Peak> peaks = StrongestHeads(rows_, {slot});
    const std::string& name = texts_[token].name;
    std::string out;
    for (const Peak& peak : DistinctKeys(peaks)) {
      out += Heading(fmt::format("{} \u2192 {} {:.2f}   {}", name, texts_[peak.key].name, peak.weight,
                                 HeadName(rows_.capture(), peak.place)));
      out += Strip(rows_.Read(peak.place), token);
    }
    if (out.empty() || HeadCount() > 1) {
      out += Heading(fmt::format("{}, mean of {}", name, Count(HeadCount(), "head")));
      out += Strip(rows_.Mean(slot), token);
    }
    return out +
           Heads(peaks, fmt::format("{}, strongest of {}", name, Count(HeadCount(), "head")), Naming::kKeys);
  }

  std::string Whole() {
    std::string out = Heading(fmt::format("What each token receives, mean of {} and {}",
                                          Count(HeadCount(), "head"), Count(rows_.queries(), "token")));
    out += Strip(Received(), -1);
    return out + Heads(StrongestHeads(rows_, WordQueries(rows_)),
                       fmt::format("Strongest of {}", Count(HeadCount(), "head")), Naming::kQueryAndKeys);
  }

 private:
  enum class Naming { kKeys, kQueryAndKeys };
  struct Item {
    int64_t key;
    float weight;
  };

  // The strongest heads that look at different words: each shows something else.
  static std::vector<Peak> DistinctKeys(const std::vector<Peak>& peaks) {
    std::vector<Peak> chosen;
    for (const Peak& peak : peaks) {
      const auto same = [&](const Peak& other) { return other.key == peak.key; };
      const bool worth = peak.key >= 0 && (chosen.empty() || peak.weight >= kWorthAStrip);
      if (worth && std::none_of(chosen.begin(), chosen.end(), same)) chosen.push_back(peak);
      if (chosen.size() == kStrips || (!chosen.empty() && IsPositional(peak))) break;
    }
    return chosen;
  }

  // A list's names, short enough that a line holds at least one key.
  std::string ListName(int64_t token) const { return FitWidth(texts_[token].name, width_ / 5); }

  int64_t HeadCount() const { return rows_.layers() * rows_.heads(); }

  static std::string Count(int64_t count, const char* what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  }

  std::string Heading(const std::string& text) const { return ink_.Heading(FitWidth(text, width_)) + "\n"; }

  std::string Strip(const std::vector<float>& weight, int64_t focus) const {
    const Line cells = StripCells(rows_.capture(), texts_, weight, focus, ink_.focus_mark());
    return ink_.Strip(Wrap(cells, width_ - 3)) + "\n";  // two columns of margin before, one after
  }

  std::vector<float> Received() const {
    std::vector<float> sum(rows_.tokens(), 0.0f);
    for (int64_t query = 0; query < rows_.queries(); ++query) {
      const std::vector<float> mean = rows_.Mean(query);
      for (size_t key = 0; key < sum.size(); ++key) sum[key] += mean[key] / static_cast<float>(rows_.queries());
    }
    return sum;
  }

  std::string Heads(const std::vector<Peak>& peaks, const std::string& heading, Naming naming) const {
    const auto positional = std::find_if(peaks.begin(), peaks.end(), IsPositional);
    const auto count = std::min<int64_t>(std::max(0, options_.strongest), positional - peaks.begin());
    std::string out = Heading(heading);
    if (options_.strongest <= 0 || peaks.empty()) return {};
    size_t longest = 0;
    for (auto peak = peaks.begin(); peak < peaks.begin() + count; ++peak)
      longest = std::max(longest, HeadName(rows_.capture(), peak->place).size());
    for (auto peak = peaks.begin(); peak < peaks.begin() + count; ++peak)
      out += HeadLine(*peak, longest, naming) + "\n";
    return out + Positional({positional, peaks.end()});
  }

  std::string Positional(const std::vector<Peak>& peaks) const {
    if (peaks.empty()) return {};
    std::string line = "  fixed distance:";
    for (const Peak& peak : peaks) {
      const std::string more = fmt::format(" {} {} {:.2f}{}", HeadName(rows_.capture(), peak.place),
                                           ListName(peak.key), peak.weight, &peak == &peaks.back() ? "" : ",");
      if (DisplayWidth(line) + DisplayWidth(more) + 2 > width_) return ink_.Quiet(line + " \u2026") + "\n";
      line += more;
    }
    return ink_.Quiet(line) + "\n";
  }

  std::string HeadLine(const Peak& peak, size_t longest, Naming naming) const {
    const std::string head = HeadName(rows_.capture(), peak.place);
    std::string begin = std::string(2 + longest - head.size(), ' ') + head + ": ";
    const int64_t query = rows_.capture().query_ids[peak.place.query];
    if (naming == Naming::kQueryAndKeys) begin += ListName(query) + " \u2192 ";
    int left = width_ - DisplayWidth(begin);
    std::string words = Keys(peak, query, left);
    return ink_.Quiet(begin) + words + PassedOver(peak, query, left);
  }

  std::vector<Item> Items(const Peak& peak, int64_t query, bool passed_over, float least) const {
    std::vector<Item> items;
    rows_.Visit(peak.place, [&](int64_t key, float weight) {
      if (weight >= least && rows_.PassedOver(query, key) == passed_over) items.push_back({key, weight});
    });
    std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
      return a.weight != b.weight ? a.weight > b.weight : a.key < b.key;
    });
    return items;
  }

  // As many keys as fit into the columns left, strongest first; the first one always.
  std::string Keys(const Peak& peak, int64_t query, int& left) const {
    std::vector<Item> items = Items(peak, query, false, kLeastListed);
    items.resize(std::min(items.size(), kKeysOfHead));
    if (items.empty()) {
      left -= DisplayWidth(kNoWord);
      return ink_.Quiet(kNoWord);
    }
    std::string out;
    for (const Item& item : items) {
      const std::string text = fmt::format("{} {:.2f}", ListName(item.key), item.weight);
      const int width = DisplayWidth(text) + (out.empty() ? 0 : 2);
      if (width > left && !out.empty()) break;
      left -= width;
      out += (out.empty() ? "" : "  ") + ink_.Weighted(text, item.weight);
    }
    return out;
  }

  std::string PassedOver(const Peak& peak, int64_t query, int left) const {
    std::string inner;
    for (const Item& item : Items(peak, query, true, kLeastPassedOver)) {
      const std::string name = item.key == query ? kItself : ListName(item.key);
      std::string more = fmt::format("{}{} {:.2f}", inner.empty() ? "" : ", ", name, item.weight);
      if (DisplayWidth(inner) + DisplayWidth(more) + 4 > left) break;
      inner += more;
    }
    return inner.empty() ? inner : ink_.Quiet("  (" + inner + ")");
  }

  static constexpr const char* kItself = "itself";
  static constexpr const char* kNoWord = "no other word";

  const Rows& rows_;
  const TerminalOptions& options_;
  const Ink& ink_;
  const std::vector<TokenText> texts_;
  const int width_;
};

}  // namespace
}  // namespace view

std::string TerminalView(const ModelCapture& capture, const TerminalOptions& options) {
  const view::Rows rows(capture, options);
  if (rows.tokens() == 0) return {};
  const view::PlainInk plain;
  const view::ColorInk color;
  view::Writer writer(rows, options, options.color ? static_cast<const view::Ink&>(color) : plain);
  if (options.focus.empty()) return writer.Whole();
  std::string out;
  for (const int64_t token : options.focus) out += (out.empty() ? "" : "\n") + writer.Focus(token);
  return out;
}

}  // namespace qkv
