// Reading a ModelCapture: its rows whether kept whole or as the strongest keys, its tokens' names, and which
// heads say most about a token.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "qkv/capture.h"
#include "qkv/view.h"

namespace qkv::view {

// Positions in the capture's layer_ids, head_ids and query_ids.
struct Place {
  int64_t layer = 0, head = 0, query = 0;
};

// A row's strongest key that is not passed over (see Rows::PassedOver); key is -1 where there is none.
struct Peak {
  Place place;
  int64_t key = -1;
  float weight = 0;
  float habit = 0;  // what the head gives on average at the same distance from its other queries
};

// A head that looks at the word before, or after, whatever it is, says little about the words.
inline bool IsPositional(const Peak& peak) { return peak.habit >= 0.5f; }

class Rows {
 public:
  // Keeps a reference to the capture. Error{kInvalidArgument} where its arrays do not fit together or a focus
  // was not captured.
  Rows(const ModelCapture& capture, const ViewOptions& options);

  const ModelCapture& capture() const { return capture_; }
  int64_t tokens() const { return static_cast<int64_t>(capture_.tokens.size()); }
  int64_t layers() const { return static_cast<int64_t>(capture_.layer_ids.size()); }
  int64_t heads() const { return static_cast<int64_t>(capture_.head_ids.size()); }
  int64_t queries() const { return static_cast<int64_t>(capture_.query_ids.size()); }
  bool whole() const { return capture_.top_k == 0; }
  int64_t QuerySlot(int64_t token) const;  // -1: not captured

  // Calls visit(key, weight) for the row's keys, in no promised order; NaN counts as 0. What is left out of
  // the row (the first token, on request) is scaled away.
  template <class F>
  void Visit(const Place& place, F&& visit) const;
  std::vector<float> Read(const Place& place) const;  // one weight a token
  std::vector<float> Mean(int64_t query) const;       // over all captured heads

  // Keys that gather what a head does not use say little about the query: special tokens, the first token of
  // a causal model, and the query itself. They are shown, but do not decide which head is the strongest.
  bool PassedOver(int64_t token, int64_t key) const;
  Peak PeakOf(const Place& place) const;

 private:
  struct Kept {
    int64_t begin = 0, count = 0;
    float scale = 1;
  };
  Kept KeptOf(const Place& place) const;
  int64_t KeyAt(const Kept& kept, int64_t i) const { return whole() ? i : capture_.top_keys[kept.begin + i]; }
  float WeightAt(const Kept& kept, int64_t i) const;

  const ModelCapture& capture_;
  bool skip_first_;
};

// The peak of each captured head over the given queries' rows, strongest first; of weights that print alike the
// deeper layer first, then the lower head. Positional ones come after all others.
std::vector<Peak> StrongestHeads(const Rows& rows, const std::vector<int64_t>& query_slots);
std::vector<int64_t> WordQueries(const Rows& rows);  // slots of the queries that are not special tokens

// What a token is called in a picture: `label` in running text; `name` in lists, where a piece inside a word is
// marked and a word that occurs several times is numbered: it#1, it#2. No space stands before a joined one.
struct TokenText {
  std::string label, name;
  bool joined = false;
};
std::vector<TokenText> TokenTexts(const ModelCapture& capture);

// The text that is looked at, or its beginning.
std::string TitleOf(const ViewOptions& options);

// At most `limit` tokens, ascending: the focus (if any), the heaviest of `weight`, and their neighbours.
std::vector<int64_t> TokensToShow(const std::vector<float>& weight, int64_t focus, int64_t limit);

std::string HeadName(const ModelCapture& capture, const Place& place);  // "layer 5 head 11"

template <class F>
void Rows::Visit(const Place& place, F&& visit) const {
  const Kept kept = KeptOf(place);
  for (int64_t i = 0; i < kept.count; ++i) {
    const int64_t key = KeyAt(kept, i);
    if (key < 0 || (skip_first_ && key == 0)) continue;
    visit(key, std::min(1.0f, WeightAt(kept, i) * kept.scale));
  }
}

}  // namespace qkv::view
