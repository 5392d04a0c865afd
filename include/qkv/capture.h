// Looking at attention weights at the speed of attention: what to keep of a run, and what was kept.
// The fused pass gives each row's log-sum-exp; a second pass recomputes score tiles, turns them into exact
// weights with it and keeps only what was asked for, so memory is O(T * k), never O(T^2).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace qkv {

// Which numbers a captured row holds: the softmax's weights, or the scores on the way to them.
enum class RowKind { kWeights, kRawScores, kSoftcappedScores, kBiasedScores };

struct CaptureRequest {
  int64_t top_k = 0;                             // keys of largest weight to keep for each row
  bool entropy = false;                          // of each row, in nats, over keys
  bool received = false;                         // the weight that each key received, summed over queries
  std::optional<std::vector<int64_t>> rows;      // query indices whose full rows to keep; blank where past q_len
  RowKind row_kind = RowKind::kWeights;          // blocked keys: 0 as weights, -inf as biased scores
};

// Arrays are contiguous, outermost axis first. Weights are the softmax's, before dropout. Of a packed batch, Tq and Tk
// are the longest sequence's.
struct Capture {
  int64_t batch = 0, heads = 0, queries = 0, keys = 0, top_k = 0;
  std::vector<int32_t> top_keys;     // (B, Hq, Tq, top_k): weight descending, then lower key; padded with -1
  std::vector<float> top_weights;    // (B, Hq, Tq, top_k): padded with 0; keys of weight 0 are not listed
  std::vector<float> entropy;        // (B, Hq, Tq)
  std::vector<float> sink_weight;    // (B, Hq, Tq): the sink's share, where there is a sink and entropy is asked
  std::vector<float> received;       // (B, Hq, Tk)
  std::vector<int64_t> rows;         // the request's
  std::vector<float> row_values;     // (B, Hq, rows, Tk)
};

// What the heads of a model attended to on one text: filled by models, drawn by view, printed by the command.
// All indexes count from 0 and refer to `tokens`.
struct ModelCapture {
  std::string model;                 // its name or path
  std::vector<std::string> tokens;   // the model's raw pieces, special ones included, UTF-8
  std::vector<std::string> labels;   // the same as a reader wants them: "##ing" -> "ing", a word's bytes joined
  std::vector<bool> continues;       // true where a token continues the word of the token before it
  std::vector<bool> special;         // [CLS], [SEP], <s>, ...
  std::vector<std::pair<int64_t, int64_t>> spans;  // bytes [first, last) of the text, as Encoding's; or empty:
                                     // then pictures put a space before every token that does not continue
  std::vector<int64_t> ids;
  int64_t layers = 0, heads = 0;     // the model's totals
  std::vector<int64_t> layer_ids, head_ids, query_ids;  // what was captured, ascending
  bool causal = false;

  std::vector<float> weights;        // (layer_ids, head_ids, query_ids, tokens); empty where top_k > 0
  int64_t top_k = 0;                 // else only the strongest keys of each row:
  std::vector<int64_t> top_keys;     // (layer_ids, head_ids, query_ids, top_k), padded with -1
  std::vector<float> top_weights;    // the same shape, padded with 0
};

}  // namespace qkv
