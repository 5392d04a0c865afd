#include "view/excerpt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "view/width.h"

namespace qkv::view {
namespace {

constexpr int64_t kGap = -1;
constexpr int kNameCharacters = 16;

int64_t TokensOf(const Explanation& explanation) { return static_cast<int64_t>(explanation.tokens.size()); }

// At most `limit` of [0, size), in order, `kept` among them, with gaps where some are left out.
std::vector<int64_t> Choose(int64_t size, int64_t limit, int64_t kept) {
  std::vector<int64_t> chosen;
  const bool keeps_itself = kept < limit - 1 || kept == size - 1;
  const int64_t beginning = size <= limit ? size : std::max<int64_t>(1, keeps_itself ? limit - 1 : limit - 2);
  for (int64_t i = 0; i < beginning; ++i) chosen.push_back(i);
  for (const int64_t later : {kept, size - 1}) {
    if (later <= chosen.back()) continue;
    if (later > chosen.back() + 1) chosen.push_back(kGap);
    chosen.push_back(later);
  }
  return chosen;
}

// The same of rows: where gaps would take as much room as what they hide, all of them.
std::vector<int64_t> ChooseRows(int64_t size, int64_t limit, int64_t kept) {
  return Choose(size, size <= limit + 2 ? size : limit, kept);
}

bool IsWeights(const ExplainedTensor& tensor) {
  for (const char* symbol : {"A", "A'", "U", "F", "R", "P"}) {
    if (tensor.symbol == symbol) return true;
  }
  return false;
}

bool IsParameter(const ExplainedTensor& tensor) {
  return tensor.symbol[0] == 'W' || tensor.symbol[0] == 'b' || tensor.symbol[0] == 'g';
}

class Maker {
 public:
  Maker(const Explanation& explanation, const TableLimits& limits)
      : explanation_(explanation), limits_(limits) {}

  Table Whole(const ExplainedTensor& tensor) const {
    if (tensor.shape.rank == 4) return OfHeads(tensor);
    Table table = Begin(tensor);
    const std::vector<int64_t> columns = Columns(tensor);
    const bool parameter = IsParameter(tensor);
    const int64_t rows = tensor.shape.rank == 1 ? 1 : tensor.shape[tensor.shape.rank - 2];
    for (const int64_t row : ChooseRows(rows, parameter ? limits_.parameters : limits_.tokens,
                                        parameter ? 0 : explanation_.token)) {
      if (row == kGap) {
        table.rows.push_back({"", {}, true, false});
        continue;
      }
      const std::string name = tensor.shape.rank == 1 ? "" : parameter ? fmt::to_string(row) : Name(row);
      AddRow(table, tensor, columns, {name, 0, row}, !parameter && row == explanation_.token);
    }
    return table;
  }

  // The marked token's rows of several tensors, one under the other.
  Table Compare(const std::vector<std::pair<std::string, const ExplainedTensor*>>& tensors) const {
    Table table = Begin(*tensors.front().second);
    table.symbol.clear();
    table.about = fmt::format("the row of {}", Name(explanation_.token));
    const std::vector<int64_t> columns = Columns(*tensors.front().second);
    const int64_t head = StrongestHead(explanation_);
    for (const auto& [name, tensor] : tensors) {
      AddRow(table, *tensor, columns, {name, head, explanation_.token}, tensors.front().second == tensor);
    }
    return table;
  }

 private:
  struct Source {
    std::string name;
    int64_t head, row;
  };

  std::string Name(int64_t token) const {
    return Clipped(Visible(explanation_.tokens[static_cast<size_t>(token)]), kNameCharacters);
  }

  std::vector<int64_t> Columns(const ExplainedTensor& tensor) const {
    const int64_t size = tensor.shape[tensor.shape.rank - 1];
    const bool tokens = tensor.columns == Axis::kTokens;
    return Choose(size, tokens ? limits_.token_columns : limits_.columns,
                  tokens ? StrongestKey(explanation_, StrongestHead(explanation_)) : 0);
  }

  Table Begin(const ExplainedTensor& tensor) const {
    Table table;
    table.symbol = tensor.symbol;
    table.shaded = IsWeights(tensor);
    for (const int64_t column : Columns(tensor)) {
      table.column_gaps.push_back(column == kGap);
      table.column_names.push_back(column == kGap                    ? ""
                                   : tensor.columns == Axis::kTokens ? Name(column)
                                                                     : fmt::to_string(column));
    }
    return table;
  }

  // The marked token's row in every head.
  Table OfHeads(const ExplainedTensor& tensor) const {
    Table table = Begin(tensor);
    table.about = fmt::format("the row of {} in every head", Name(explanation_.token));
    const std::vector<int64_t> columns = Columns(tensor);
    for (const int64_t head : ChooseRows(tensor.shape[1], limits_.heads, 0)) {
      if (head == kGap) {
        table.rows.push_back({"", {}, true, false});
      } else {
        AddRow(table, tensor, columns, {fmt::format("head {}", head), head, explanation_.token}, false);
      }
    }
    return table;
  }

  static void AddRow(Table& table, const ExplainedTensor& tensor, const std::vector<int64_t>& columns,
                     const Source& source, bool marked) {
    Table::Row row{source.name, {}, false, marked};
    for (const int64_t column : columns) {
      if (column == kGap) continue;
      row.values.push_back(At(tensor, source.head, source.row, column));
      if (std::isfinite(row.values.back()))
        table.largest = std::max(table.largest, std::abs(row.values.back()));
    }
    table.rows.push_back(std::move(row));
  }

  const Explanation& explanation_;
  const TableLimits& limits_;
};

}  // namespace

float At(const ExplainedTensor& tensor, int64_t head, int64_t row, int64_t column) {
  const Shape& shape = tensor.shape;
  const int64_t width = shape[shape.rank - 1], rows = shape.rank > 1 ? shape[shape.rank - 2] : 1;
  const int64_t matrix = shape.rank == 4 ? head : 0;
  return tensor.values[static_cast<size_t>((matrix * rows + row) * width + column)];
}

const ExplainedTensor& InputOf(const Explanation& explanation) {
  const ExplainedTensor* normalised = explanation.Find(StepKind::kNorm, "X");
  return normalised != nullptr ? *normalised : *explanation.Find(StepKind::kInput, "X");
}

const ExplainedTensor& VectorsOf(const Explanation& explanation, const std::string& symbol) {
  if (explanation.level == ExplainLevel::kSimplified) return InputOf(explanation);
  const std::pair<StepKind, std::string> makers[] = {{StepKind::kTurn, symbol + "'"},
                                                     {StepKind::kHeadNorm, symbol},
                                                     {StepKind::kSplit, symbol}};
  for (const auto& [kind, name] : makers) {
    if (const ExplainedTensor* tensor = explanation.Find(kind, name)) return *tensor;
  }
  return *explanation.Find(StepKind::kProject, symbol);
}

int64_t VisibleKeys(const Explanation& explanation) {
  const int64_t all = explanation.causal ? explanation.token + 1 : TokensOf(explanation);
  return explanation.window ? std::min(*explanation.window, all) : all;
}

int64_t StrongestKey(const Explanation& explanation, int64_t head) {
  const ExplainedTensor* weights = explanation.Find(StepKind::kSoftmax, "A");
  int64_t strongest = 0;
  for (int64_t key = 1; key < TokensOf(explanation); ++key) {
    if (At(*weights, head, explanation.token, key) > At(*weights, head, explanation.token, strongest))
      strongest = key;
  }
  return strongest;
}

int64_t StrongestHead(const Explanation& explanation) {
  if (explanation.level != ExplainLevel::kMultiHead) return 0;
  const ExplainedTensor* weights = explanation.Find(StepKind::kSoftmax, "A");
  const auto peak = [&](int64_t head) {
    return At(*weights, head, explanation.token, StrongestKey(explanation, head));
  };
  int64_t strongest = 0;
  for (int64_t head = 1; head < explanation.heads; ++head) {
    if (peak(head) > peak(strongest)) strongest = head;
  }
  return strongest;
}

std::string Number(float value) { return Number(value, std::abs(value)); }

std::string Number(float value, float largest) {
  if (std::isinf(value)) return value < 0 ? "\u2212\u221e" : "\u221e";
  const int decimals = largest < 10 ? 3 : largest < 100 ? 2 : largest < 10000 ? 1 : 0;
  std::string text = largest < 1e6f ? fmt::format("{:.{}f}", value, decimals) : fmt::format("{:.1e}", value);
  if (text[0] != '-') return text;
  const bool is_zero = text.find_first_not_of("-0.") == text.npos;  // what rounds to zero has no sign
  return (is_zero ? "" : "\u2212") + text.substr(1);
}

std::vector<Table> TablesOf(const Explanation& explanation, const ExplainedStep& step,
                            const TableLimits& limits) {
  const Maker maker(explanation, limits);
  const ExplainedTensor* weights = explanation.Find(StepKind::kSoftmax, "A");
  const auto& tensors = step.tensors;
  switch (step.kind) {
    case StepKind::kSaturation: return {maker.Compare({{"scaled", weights}, {"not scaled", &tensors[0]}})};
    case StepKind::kOtherOrder:
      return {maker.Compare({{"mask, softmax", weights},
                             {"softmax of all", &tensors[0]},
                             {"masked, \u00f7 sum", &tensors[1]},
                             {"masked, softmax", &tensors[2]}})};
    case StepKind::kDropout: return {maker.Compare({{"evaluation", weights}, {"training", &tensors[0]}})};
    default: break;
  }
  std::vector<Table> tables;
  for (const ExplainedTensor& tensor : tensors) tables.push_back(maker.Whole(tensor));
  return tables;
}

}  // namespace qkv::view
