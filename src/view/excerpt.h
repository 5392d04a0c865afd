// Parts of an explanation's tensors as tables that fit where they are shown.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkv/explanation.h"

namespace qkv::view {

// One number of a tensor (B, H, rows, columns), with as many leading axes as it has.
float At(const ExplainedTensor& tensor, int64_t head, int64_t row, int64_t column);

// What the projections get; and what scores are products of: the last step that made q or k ("Q", "K", "V").
const ExplainedTensor& InputOf(const Explanation& explanation);
const ExplainedTensor& VectorsOf(const Explanation& explanation, const std::string& symbol);

// Keys that the marked token may see; and the one that gets most of its weight in that head.
int64_t VisibleKeys(const Explanation& explanation);
int64_t StrongestKey(const Explanation& explanation, int64_t head);
int64_t StrongestHead(const Explanation& explanation);  // for the marked token; 0 where one head is explained

// As many decimals as tell numbers of this size apart; "−∞" for what is blocked.
std::string Number(float value);
std::string Number(float value, float largest);  // with as many as the largest one gets

struct TableLimits {
  int64_t tokens, heads, parameters;  // rows of each kind
  int64_t columns, token_columns;
};

// Rows and columns that were left out are one gap each.
struct Table {
  struct Row {
    std::string name;           // empty for a gap
    std::vector<float> values;  // of the columns that are no gaps
    bool gap = false, marked = false;
  };

  std::string symbol;                     // the tensor's, or empty where rows of several are compared
  std::string about;                      // what the table shows of it, if not all
  std::vector<std::string> column_names;  // empty for a gap
  std::vector<bool> column_gaps;
  std::vector<Row> rows;
  bool shaded = false;  // weights
  float largest = 0;    // magnitude, of what is shown and finite
};

// The tables of a step: its tensors, or the marked token's rows of them under those of the weights.
std::vector<Table> TablesOf(const Explanation& explanation, const ExplainedStep& step,
                            const TableLimits& limits);

}  // namespace qkv::view
