#include "cli/look_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

namespace qkv::cli {
namespace {

std::string Quoted(const std::string& text) {
  using nlohmann::json;
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string ToText(int64_t number) { return fmt::to_string(number); }

// Calls item(index) for [0, size) between brackets and commas.
template <class Item>
void WriteList(StandardOutput& output, size_t size, const Item& item) {
  output.Write("[");
  for (size_t index = 0; index < size; ++index) {
    if (index > 0) output.Write(", ");
    item(index);
  }
  output.Write("]");
}

template <class T, class Format>
void WriteValues(StandardOutput& output, const std::vector<T>& values, const Format& format) {
  WriteList(output, values.size(), [&](size_t index) { output.Write(format(values[index])); });
}

// A float's shortest digits that read back as the same float.
void AppendWeight(std::string& text, float weight) { fmt::format_to(std::back_inserter(text), "{}", weight); }

std::string FullRow(const ModelCapture& capture, size_t row) {
  const size_t keys = capture.tokens.size();
  std::string text = "[";
  for (size_t key = 0; key < keys; ++key) {
    if (key > 0) text += ", ";
    AppendWeight(text, capture.weights[row * keys + key]);
  }
  return text + "]";
}

std::string TopRow(const ModelCapture& capture, size_t row) {
  std::string text = "[";
  for (size_t place = row * capture.top_k; place < (row + 1) * capture.top_k; ++place) {
    if (capture.top_keys[place] < 0) break;  // padding
    if (text.size() > 1) text += ", ";
    fmt::format_to(std::back_inserter(text), "[{}, ", capture.top_keys[place]);
    AppendWeight(text, capture.top_weights[place]);
    text += "]";
  }
  return text + "]";
}

// Where the chosen queries are among the captured ones.
std::vector<size_t> Places(const ModelCapture& capture, const std::vector<int64_t>& queries) {
  std::vector<size_t> places;
  for (size_t place = 0; place < capture.query_ids.size(); ++place) {
    const bool chosen = std::find(queries.begin(), queries.end(), capture.query_ids[place]) != queries.end();
    if (queries.empty() || chosen) places.push_back(place);
  }
  return places;
}

void WriteRows(const ModelCapture& capture, const std::vector<size_t>& places, StandardOutput& output) {
  const size_t heads = capture.head_ids.size(), queries = capture.query_ids.size();
  WriteList(output, capture.layer_ids.size(), [&](size_t layer) {
    WriteList(output, heads, [&](size_t head) {
      WriteList(output, places.size(), [&](size_t index) {
        const size_t row = (layer * heads + head) * queries + places[index];
        output.Write(capture.top_k > 0 ? TopRow(capture, row) : FullRow(capture, row));
      });
    });
  });
}

}  // namespace

void WriteJson(const ModelCapture& capture, const std::vector<int64_t>& queries, StandardOutput& output) {
  const std::vector<size_t> places = Places(capture, queries);
  const auto field = [&](const char* name) { output.Write(fmt::format(", \"{}\": ", name)); };
  output.Write("{\"model\": " + Quoted(capture.model));
  field("tokens"), WriteValues(output, capture.tokens, Quoted);
  field("ids"), WriteValues(output, capture.ids, ToText);
  field("layers"), output.Write(ToText(capture.layers));
  field("heads"), output.Write(ToText(capture.heads));
  field("layer_ids"), WriteValues(output, capture.layer_ids, ToText);
  field("head_ids"), WriteValues(output, capture.head_ids, ToText);
  field("query_ids"),
      WriteValues(output, places, [&](size_t place) { return ToText(capture.query_ids[place]); });
  field(capture.top_k > 0 ? "top" : "weights");
  WriteRows(capture, places, output);
  output.Write("}\n");
}

}  // namespace qkv::cli
