#include "view/rows.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "qkv/error.h"
#include "view/width.h"

namespace qkv::view {
namespace {

void Expect(bool holds, const char* where, int64_t expected, int64_t got) {
  if (holds) return;
  throw Error(ErrorCode::kInvalidArgument, "the capture's arrays do not fit together", where,
              std::to_string(expected), std::to_string(got));
}

template <class T>
void ExpectSize(const std::vector<T>& values, const char* where, int64_t expected) {
  const auto got = static_cast<int64_t>(values.size());
  Expect(got == expected, where, expected, got);
}

void Validate(const ModelCapture& capture) {
  const auto tokens = static_cast<int64_t>(capture.tokens.size());
  ExpectSize(capture.labels, "labels", tokens);
  ExpectSize(capture.continues, "continues", tokens);
  ExpectSize(capture.special, "special", tokens);
  if (!capture.spans.empty()) ExpectSize(capture.spans, "spans", tokens);
  const auto rows =
      static_cast<int64_t>(capture.layer_ids.size() * capture.head_ids.size() * capture.query_ids.size());
  for (const int64_t query : capture.query_ids)
    Expect(query >= 0 && query < tokens, "query_ids", tokens, query);
  if (capture.top_k == 0) return ExpectSize(capture.weights, "weights", rows * tokens);
  ExpectSize(capture.top_keys, "top_keys", rows * capture.top_k);
  ExpectSize(capture.top_weights, "top_weights", rows * capture.top_k);
  for (const int64_t key : capture.top_keys) Expect(key >= -1 && key < tokens, "top_keys", tokens, key);
}

constexpr int kLabelCharacters = 120;  // longer ones fit nowhere

bool IsBlank(const std::string& text) { return text.find_first_not_of(' ') == std::string::npos; }

std::string LabelOf(const ModelCapture& capture, int64_t token) {
  const std::string& given = capture.labels[token].empty() ? capture.tokens[token] : capture.labels[token];
  std::string label = Visible(Clipped(given, kLabelCharacters));
  if (!IsBlank(label)) return label;
  std::string marks;
  for (size_t i = 0; i < std::max<size_t>(1, label.size()); ++i) marks += "\u2423";  // an open box for a space
  return marks;
}

bool IsJoined(const ModelCapture& capture, size_t token) {
  if (token == 0 || capture.special[token] || capture.special[token - 1]) return false;
  if (capture.spans.empty()) return capture.continues[token];
  return capture.continues[token] || capture.spans[token].first == capture.spans[token - 1].second;
}

}  // namespace

Rows::Rows(const ModelCapture& capture, const ViewOptions& options)
    : capture_(capture), skip_first_(options.skip_first) {
  Validate(capture);
  for (const int64_t token : options.focus) {
    if (QuerySlot(token) >= 0) continue;
    throw Error(ErrorCode::kInvalidArgument, "the token was not captured", "focus",
                "one of the captured queries' indexes", std::to_string(token));
  }
}

int64_t Rows::QuerySlot(int64_t token) const {
  const auto& ids = capture_.query_ids;
  const auto found = std::find(ids.begin(), ids.end(), token);
  return found == ids.end() ? -1 : found - ids.begin();
}

float Rows::WeightAt(const Kept& kept, int64_t i) const {
  const float weight = (whole() ? capture_.weights : capture_.top_weights)[kept.begin + i];
  return weight > 0 ? weight : 0;  // NaN too
}

Rows::Kept Rows::KeptOf(const Place& place) const {
  Kept kept;
  kept.count = whole() ? tokens() : capture_.top_k;
  kept.begin = ((place.layer * heads() + place.head) * queries() + place.query) * kept.count;
  if (!skip_first_) return kept;
  float first = 0;
  for (int64_t i = 0; i < kept.count && first == 0; ++i)
    if (KeyAt(kept, i) == 0) first = WeightAt(kept, i);
  // A row sums to 1; where only its strongest keys were kept, the others count in this sum as well.
  kept.scale = first < 1 ? 1 / (1 - first) : 0;
  return kept;
}

std::vector<float> Rows::Read(const Place& place) const {
  std::vector<float> row(tokens(), 0.0f);
  Visit(place, [&](int64_t key, float weight) { row[key] = weight; });
  return row;
}

std::vector<float> Rows::Mean(int64_t query) const {
  std::vector<double> sum(tokens(), 0.0);
  for (int64_t layer = 0; layer < layers(); ++layer)
    for (int64_t head = 0; head < heads(); ++head)
      Visit({layer, head, query}, [&](int64_t key, float weight) { sum[key] += weight; });
  std::vector<float> mean(tokens());
  const double count = static_cast<double>(std::max<int64_t>(1, layers() * heads()));
  std::transform(sum.begin(), sum.end(), mean.begin(), [&](double s) { return static_cast<float>(s / count); });
  return mean;
}

bool Rows::PassedOver(int64_t token, int64_t key) const {
  return key == token || capture_.special[key] || (capture_.causal && key == 0);
}

Peak Rows::PeakOf(const Place& place) const {
  const int64_t token = capture_.query_ids[place.query];
  Peak best{place};
  Visit(place, [&](int64_t key, float weight) {
    if (weight <= 0 || PassedOver(token, key)) return;
    if (weight > best.weight || (weight == best.weight && key < best.key)) best.key = key, best.weight = weight;
  });
  return best;
}

std::vector<int64_t> WordQueries(const Rows& rows) {
  std::vector<int64_t> slots;
  for (int64_t slot = 0; slot < rows.queries(); ++slot)
    if (!rows.capture().special[rows.capture().query_ids[slot]]) slots.push_back(slot);
  return slots;
}

namespace {

// For each distance between key and query, what one head gives there over all words of the text.
class Habits {
 public:
  Habits(const Rows& rows, int64_t layer, int64_t head, const std::vector<int64_t>& word_queries)
      : sum_(2 * rows.tokens(), 0.0), count_(2 * rows.tokens(), 0), tokens_(rows.tokens()) {
    for (const int64_t slot : word_queries) {
      const int64_t shift = tokens_ - rows.capture().query_ids[slot];
      for (int64_t key = 0; key < tokens_; ++key) ++count_[key + shift];
      rows.Visit({layer, head, slot}, [&](int64_t key, float weight) { sum_[key + shift] += weight; });
    }
  }

  // Without the weight itself; too few other words at this distance tell nothing.
  float At(int64_t query, int64_t key, float weight) const {
    const int64_t at = key - query + tokens_;
    if (count_[at] <= kFewest) return 0;
    return static_cast<float>((sum_[at] - weight) / (count_[at] - 1));
  }

 private:
  static constexpr int kFewest = 3;
  std::vector<double> sum_;
  std::vector<int> count_;
  int64_t tokens_;
};

// Weights that print alike count as equal; the deeper layer, which has read more of the sentence, comes first.
bool Stronger(const Peak& a, const Peak& b) {
  const auto rank = [](const Peak& peak) {
    return std::tuple(!IsPositional(peak), std::lround(peak.weight * 100), peak.place.layer, peak.weight);
  };
  return rank(a) > rank(b);
}

}  // namespace

std::vector<Peak> StrongestHeads(const Rows& rows, const std::vector<int64_t>& query_slots) {
  std::vector<Peak> peaks;
  const std::vector<int64_t> words = WordQueries(rows);
  for (int64_t layer = 0; layer < rows.layers(); ++layer)
    for (int64_t head = 0; head < rows.heads(); ++head) {
      const Habits habits(rows, layer, head, words);
      Peak best{{layer, head, query_slots.empty() ? 0 : query_slots.front()}};
      for (const int64_t slot : query_slots) {
        Peak peak = rows.PeakOf({layer, head, slot});
        if (peak.key < 0) continue;
        peak.habit = habits.At(rows.capture().query_ids[slot], peak.key, peak.weight);
        if (best.key < 0 || Stronger(peak, best)) best = peak;
      }
      peaks.push_back(best);
    }
  std::stable_sort(peaks.begin(), peaks.end(), Stronger);
  return peaks;
}

std::vector<TokenText> TokenTexts(const ModelCapture& capture) {
  std::vector<TokenText> texts;
  std::map<std::string, int> total, seen;
  for (size_t i = 0; i < capture.tokens.size(); ++i) {
    std::string label = LabelOf(capture, static_cast<int64_t>(i));
    std::string name = capture.continues[i] ? "\u2026" + label : label;
    ++total[name];
    texts.push_back({std::move(label), std::move(name), IsJoined(capture, i)});
  }
  for (TokenText& text : texts)
    if (total[text.name] > 1) text.name += fmt::format("#{}", ++seen[text.name]);
  return texts;
}

std::string TitleOf(const ViewOptions& options) {
  constexpr int kCharacters = 1000;  // about ten lines of a figure
  return options.text.empty() ? "Attention" : Visible(Clipped(options.text, kCharacters));
}

std::vector<int64_t> TokensToShow(const std::vector<float>& weight, int64_t focus, int64_t limit) {
  const auto count = static_cast<int64_t>(weight.size());
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  if (count <= limit) return order;
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return weight[a] > weight[b]; });
  if (focus >= 0) order.insert(order.begin(), focus);
  order.resize(std::max<int64_t>(1, limit / 8));  // the rest of the room shows what stands around these
  std::set<int64_t> shown;
  for (int64_t reach = 0; static_cast<int64_t>(shown.size()) < limit; ++reach)
    for (const int64_t center : order)
      for (const int64_t token : {center - reach, center + reach})
        if (token >= 0 && token < count && static_cast<int64_t>(shown.size()) < limit) shown.insert(token);
  return {shown.begin(), shown.end()};
}

std::string HeadName(const ModelCapture& capture, const Place& place) {
  return fmt::format("layer {} head {}", capture.layer_ids[place.layer], capture.head_ids[place.head]);
}

}  // namespace qkv::view
