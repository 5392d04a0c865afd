#include "view/payload.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "qkv/error.h"
#include "view/color.h"
#include "view/width.h"

namespace qkv::view {
namespace {

constexpr int64_t kFewestKeys = 8;    // a row with fewer says too little: leave out heads instead
constexpr uint16_t kNoKey = 0xFFFF;   // pads a row; keys are 16-bit, so it is never one of them
constexpr float kFullWeight = 65535;  // weights are 16-bit fractions

// What of the capture goes onto the page.
struct Plan {
  int64_t keys_a_row = 0;                          // 0: all of them, in order
  std::vector<std::pair<int64_t, int64_t>> cells;  // (layer, head) positions in layer_ids and head_ids
  std::string notice;
};

// Base64 takes 4 characters for 3 bytes; weights and keys take 2 bytes each.
int64_t BytesOfWhole(const Rows& rows, int64_t cells) { return cells * rows.queries() * rows.tokens() * 8 / 3; }
int64_t BytesOfTop(const Rows& rows, int64_t cells, int64_t keys) {
  return cells * rows.queries() * keys * 16 / 3;
}

std::vector<std::pair<int64_t, int64_t>> CellsToShow(const Rows& rows, int64_t limit) {
  std::vector<std::pair<int64_t, int64_t>> cells;
  if (limit >= rows.layers() * rows.heads()) {
    for (int64_t layer = 0; layer < rows.layers(); ++layer)
      for (int64_t head = 0; head < rows.heads(); ++head) cells.emplace_back(layer, head);
    return cells;
  }
  for (const Peak& peak : StrongestHeads(rows, WordQueries(rows)))
    if (static_cast<int64_t>(cells.size()) < limit) cells.emplace_back(peak.place.layer, peak.place.head);
  std::sort(cells.begin(), cells.end());
  return cells;
}

Plan PlanFor(const Rows& rows) {
  const int64_t all = rows.layers() * rows.heads();
  const int64_t available = rows.whole() ? rows.tokens() : rows.capture().top_k;
  Plan plan;
  if (rows.whole() && BytesOfWhole(rows, all) <= kPayloadBytes) {
    plan.cells = CellsToShow(rows, all);
    return plan;
  }
  if (rows.tokens() > kNoKey)
    throw Error(ErrorCode::kInvalidArgument, "the text is too long for a page", "tokens",
                fmt::format("at most {}", kNoKey), std::to_string(rows.tokens()));
  const int64_t one_key = std::max<int64_t>(1, BytesOfTop(rows, all, 1));
  plan.keys_a_row = std::min(available, std::max(kFewestKeys, kPayloadBytes / one_key));
  const int64_t one_cell = std::max<int64_t>(1, BytesOfTop(rows, 1, plan.keys_a_row));
  plan.cells = CellsToShow(rows, std::max<int64_t>(1, kPayloadBytes / one_cell));
  if (plan.keys_a_row < rows.tokens())
    plan.notice = fmt::format("Only the {} strongest keys of each row are shown; the others look empty.",
                              plan.keys_a_row);
  if (const auto kept = static_cast<int64_t>(plan.cells.size()); kept < all)
    plan.notice += fmt::format(" Only the {} strongest of {} heads are shown: the text is long.", kept, all);
  return plan;
}

std::string Base64(const std::string& bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t j = i; j < i + 3; ++j)
      group = group << 8 | (j < bytes.size() ? static_cast<uint8_t>(bytes[j]) : 0);
    for (int shift = 18; shift >= 0; shift -= 6) out += kDigits[group >> shift & 63];
  }
  for (size_t pad = 0; pad < (3 - bytes.size() % 3) % 3; ++pad) out[out.size() - 1 - pad] = '=';
  return out;
}

// Little-endian, whatever this machine is.
template <class T>
void Append(std::string& bytes, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
}

uint16_t Quantised(float weight) { return static_cast<uint16_t>(std::lround(weight * kFullWeight)); }

void AppendTop(const Rows& rows, const Place& place, int64_t count, std::string& weights, std::string& keys) {
  std::vector<std::pair<float, int64_t>> row;
  rows.Visit(place, [&](int64_t key, float weight) {
    if (weight > 0) row.emplace_back(-weight, key);
  });
  const auto kept = std::min(count, static_cast<int64_t>(row.size()));
  std::partial_sort(row.begin(), row.begin() + kept, row.end());
  row.resize(kept);
  for (const auto& [minus_weight, key] : row) {
    Append(weights, Quantised(-minus_weight));
    Append(keys, static_cast<uint16_t>(key));
  }
  for (int64_t i = kept; i < count; ++i) {
    Append(weights, uint16_t{0});
    Append(keys, kNoKey);
  }
}

void AddWeights(const Rows& rows, const Plan& plan, nlohmann::ordered_json& json) {
  std::string weights, keys;
  for (const auto& [layer, head] : plan.cells)
    for (int64_t query = 0; query < rows.queries(); ++query) {
      const Place place{layer, head, query};
      if (plan.keys_a_row > 0)
        AppendTop(rows, place, plan.keys_a_row, weights, keys);
      else
        for (const float weight : rows.Read(place)) Append(weights, Quantised(weight));
    }
  json["weights"] = Base64(weights);
  json["keys"] = Base64(keys);
}

void AddTokens(const ModelCapture& capture, nlohmann::ordered_json& json) {
  for (const char* key : {"labels", "names", "joined", "special"}) json[key] = nlohmann::ordered_json::array();
  for (const TokenText& text : TokenTexts(capture)) {
    json["labels"].push_back(text.label);
    json["names"].push_back(text.name);
    json["joined"].push_back(text.joined ? 1 : 0);
  }
  for (const bool special : capture.special) json["special"].push_back(special ? 1 : 0);
}

nlohmann::ordered_json StopsOf(const Ramp& ramp) {
  auto stops = nlohmann::ordered_json::array();
  for (const Rgb& stop : ramp) stops.push_back({stop.r, stop.g, stop.b});
  return stops;
}

std::string About(const Rows& rows, const ViewOptions& options) {
  const ModelCapture& capture = rows.capture();
  std::string about = fmt::format("{} \u00B7 {} layers of {} heads \u00B7 {} tokens", Visible(capture.model),
                                  capture.layers, capture.heads, rows.tokens());
  if (const int64_t shown = rows.layers() * rows.heads(); shown < capture.layers * capture.heads)
    about += fmt::format(" \u00B7 {} heads captured", shown);
  if (options.skip_first) about += " \u00B7 the first token is left out and the rest scaled to 1";
  return about;
}

// JSON in ASCII, without the characters that could end a script element or start a comment in it.
std::string ForScript(const nlohmann::ordered_json& json) {
  const std::string text = json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size());
  for (const char c : text)
    if (c == '<' || c == '>' || c == '&')
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      out += c;
  return out;
}

}  // namespace

std::string Payload(const Rows& rows, const ViewOptions& options) {
  const ModelCapture& capture = rows.capture();
  const Plan plan = PlanFor(rows);
  nlohmann::ordered_json json;
  json["title"] = TitleOf(options);
  json["about"] = About(rows, options);
  json["notice"] = plan.notice;
  AddTokens(capture, json);
  json["causal"] = capture.causal;
  json["focus"] = options.focus;
  json["layerIds"] = capture.layer_ids;
  json["headIds"] = capture.head_ids;
  json["queries"] = capture.query_ids;
  json["cells"] = plan.cells;
  json["k"] = plan.keys_a_row;
  json["paper"] = StopsOf(kPaperRamp);
  json["night"] = StopsOf(kNightRamp);
  AddWeights(rows, plan, json);
  return ForScript(json);
}

}  // namespace qkv::view
