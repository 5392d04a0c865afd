#include "support/option_set.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "qkv/error.h"

namespace qkv::test {
namespace {

struct FactorInfo {
  const char* name;
  std::vector<std::string> levels;
  std::vector<int> weights;  // of the levels when drawn; empty: all alike
};

// Shapes of a mask or bias: the rank, and which of its axes are not broadcast ("B H Q K" where they are there).
std::vector<std::string> BroadcastShapes() {
  std::vector<std::string> shapes{"none"};
  for (int rank = 0; rank <= 4; ++rank) {
    for (int kept = 0; kept < 1 << rank; ++kept) {
      std::string shape = "(";
      for (int axis = 0; axis < rank; ++axis) shape += (kept >> axis) & 1 ? "BHQK"[4 - rank + axis] : '1';
      shapes.push_back(shape + ")");
    }
  }
  return shapes;
}

std::vector<int> WithNone(int weight) {
  std::vector<int> weights(32, 1);
  weights[0] = weight;
  return weights;
}

// Sizes stand around the edges of vectors (4, 8, 16), panels (8, 16, 64), row groups (6), blocks (96), tiles of
// keys (256), strips of channels (64, 128) and splits (1024).
std::vector<FactorInfo> MakeTable() {
  std::vector<std::string> isas;
  for (Isa isa : SupportedIsas()) isas.push_back(NameOf(isa));
  const std::vector<std::string> inputs{"contiguous", "BTHD",     "transposed", "reversed",
                                        "gaps",       "row gaps", "shared"};
  const std::vector<std::string> outputs(inputs.begin(), inputs.end() - 1);
  return {
      {"batch", {"0", "1", "2", "3"}, {1, 8, 8, 4}},
      {"kv_heads", {"1", "2", "3"}, {}},
      {"group", {"1", "2", "3", "7"}, {}},
      {"tq",
       {"0", "1", "2", "3", "5", "6", "7", "11", "12", "13", "17", "31", "47", "95", "96", "97", "100", "191",
        "193"},
       {}},
      {"tk",
       {"0",   "1",   "2",   "3",   "4",   "5",   "7",   "8",    "9",    "15",  "16",
        "17",  "31",  "32",  "33",  "63",  "64",  "65",  "100",  "127",  "128", "129",
        "255", "256", "257", "300", "511", "512", "513", "1023", "1024", "1025"},
       {}},
      {"d",
       {"1",  "2",  "3",  "5",  "7",  "8",  "9",   "15",  "16",  "17", "31",
        "32", "33", "63", "64", "65", "80", "127", "128", "129", "130"},
       {}},
      {"dv", {"as d", "1", "3", "8", "15", "16", "17", "33", "63", "64", "65", "129"}, {11}},
      {"types", {"f32", "bf16", "f16", "f32+bf16", "f32+f16", "f64"}, {4, 2, 2, 1, 1, 1}},
      {"size", {"1", "8", "0"}, {4, 4, 1}},
      {"causal", {"none", "top_left", "bottom_right"}, {}},
      {"left", {"open", "0", "1", "3", "20", "255", "256", "1000000"}, {8}},
      {"right", {"open", "0", "1", "5", "100", "9223372036854775807"}, {6}},
      {"scale", {"default", "1", "0.05", "-0.3", "0"}, {6}},
      {"softcap", {"none", "0.5", "5", "30"}, {4}},
      {"mask", BroadcastShapes(), WithNone(6)},
      {"mask fill", {"most", "few", "rows", "all", "nothing"}, {4, 4, 4, 1, 1}},
      {"bias", BroadcastShapes(), WithNone(6)},
      {"bias fill", {"finite", "some -inf", "rows of -inf", "some lowest", "rows of lowest"}, {4}},
      {"bias type", {"f32", "as q"}, {}},
      {"mask layout", {"contiguous", "transposed", "reversed", "gaps"}, {}},
      {"alibi", {"none", "(Hq)", "(B,Hq)"}, {}},
      {"sink", {"none", "usual", "100", "-inf"}, {3}},
      {"q_lengths", {"none", "random"}, {}},
      {"kv_lengths", {"none", "random"}, {}},
      {"packing", {"batched", "packed"}, {6, 1}},
      {"offset", {"none", "one 0", "one positive", "one negative", "per sequence"}, {4}},
      {"dropout", {"0", "0.1", "0.5", "0.9"}, {4}},
      {"q layout", inputs, {4}},
      {"k layout", inputs, {4}},
      {"v layout", inputs, {4}},
      {"out layout", outputs, {4}},
      {"lse", {"none", "contiguous", "transposed", "gaps"}, {1, 4}},
      {"planted", {"nothing", "NaN key", "NaN value", "NaN both", "inf key", "inf value"}, {5}},
      {"capture", {"nothing", "top", "all", "raw rows", "softcapped rows", "biased rows", "weight rows"}, {8}},
      {"threads", {"1", "2", "3", "8"}, {}},
      {"isa", isas, {}},
  };
}

const std::vector<FactorInfo>& Table() {
  static const std::vector<FactorInfo> table = MakeTable();
  return table;
}

const FactorInfo& Info(Factor factor) { return Table()[static_cast<size_t>(factor)]; }

int WeightOf(const FactorInfo& info, size_t level) {
  return level < info.weights.size() ? info.weights[level] : 1;
}

int DrawLevel(Rng& rng, const FactorInfo& info) {
  int total = 0;
  for (size_t l = 0; l < info.levels.size(); ++l) total += WeightOf(info, l);
  int64_t at = rng.Below(total);
  size_t level = 0;
  while (at >= WeightOf(info, level)) at -= WeightOf(info, level++);
  return static_cast<int>(level);
}

bool IsPackedPair(Factor a, int level_a, Factor b, int level_b) {
  if (a != Factor::kPacking || level_a != 1) return false;
  switch (b) {
    case Factor::kMaskShape:
    case Factor::kBiasShape: return level_b != 0;
    case Factor::kMaskFill:
    case Factor::kBiasFill:
    case Factor::kBiasType:
    case Factor::kMaskLayout: return true;
    default: return false;
  }
}

// Pairs that no call can have: packed batches take no mask or bias, and what is absent has no kind.
bool IsImpossible(Factor a, int level_a, Factor b, int level_b) {
  if (IsPackedPair(a, level_a, b, level_b)) return true;
  if (a == Factor::kMaskShape && level_a == 0) return b == Factor::kMaskFill;
  if (a == Factor::kBiasShape && level_a == 0) return b == Factor::kBiasFill || b == Factor::kBiasType;
  return false;
}

bool IsPossible(Factor a, int level_a, Factor b, int level_b) {
  return !IsImpossible(a, level_a, b, level_b) && !IsImpossible(b, level_b, a, level_a);
}

}  // namespace

int LevelsOf(Factor factor) { return static_cast<int>(Info(factor).levels.size()); }

const std::string& OptionSet::Name(Factor factor) const {
  return Info(factor).levels[static_cast<size_t>((*this)[factor])];
}

int64_t OptionSet::Number(Factor factor) const { return std::strtoll(Name(factor).c_str(), nullptr, 10); }

DType OptionSet::q_dtype() const {
  switch (types()) {
    case Types::kBF16: return DType::kBF16;
    case Types::kF16: return DType::kF16;
    case Types::kF64: return DType::kF64;
    default: return DType::kF32;
  }
}

DType OptionSet::kv_dtype() const {
  switch (types()) {
    case Types::kF32WithBF16: return DType::kBF16;
    case Types::kF32WithF16: return DType::kF16;
    default: return q_dtype();
  }
}

Isa OptionSet::isa() const {
  const std::vector<Isa> isas = SupportedIsas();
  return isas[static_cast<size_t>((*this)[Factor::kIsa])];
}

bool OptionSet::IsActive(Factor factor) const {
  switch (factor) {
    case Factor::kMaskFill: return has_mask();
    case Factor::kBiasFill:
    case Factor::kBiasType: return has_bias();
    case Factor::kMaskLayout: return has_mask() || has_bias();
    default: return true;
  }
}

std::string OptionSet::Text() const {
  std::string text = std::to_string(seed) + "/";
  for (size_t f = 0; f < kFactors; ++f) text += (f == 0 ? "" : ",") + std::to_string(level[f]);
  return text;
}

std::string OptionSet::Description() const {
  std::string text;
  for (size_t f = 0; f < kFactors; ++f) {
    const Factor factor = static_cast<Factor>(f);
    if (IsActive(factor)) text += (f == 0 ? "" : ", ") + std::string(Info(factor).name) + " " + Name(factor);
  }
  return text;
}

OptionSet ParseOptionSet(const std::string& text) {
  OptionSet set;
  std::istringstream stream(text);
  char separator = 0;
  stream >> set.seed >> separator;
  bool good = separator == '/';
  for (size_t f = 0; f < kFactors && good; ++f) {
    if (f > 0) stream >> separator;
    stream >> set.level[f];
    good = !stream.fail() && set.level[f] >= 0 && set.level[f] < LevelsOf(static_cast<Factor>(f));
  }
  if (!good) throw Error(ErrorCode::kInvalidArgument, "no option set", "text", "seed/level,level,...", text);
  return set;
}

FixedLevels NothingFixed() {
  FixedLevels fixed;
  fixed.fill(-1);
  return fixed;
}

OptionSet DrawOptionSet(Rng& rng, int64_t budget, const FixedLevels& fixed) {
  OptionSet set;
  set.seed = rng.Bits();
  do {
    for (size_t f = 0; f < kFactors; ++f) {
      set.level[f] = fixed[f] >= 0 ? fixed[f] : DrawLevel(rng, Table()[f]);
    }
  } while (set.cost() > budget);
  if (set.packed()) set[Factor::kMaskShape] = set[Factor::kBiasShape] = 0;
  return set;
}

PairCoverage::PairCoverage() {
  for (size_t f = 0; f < kFactors; ++f) {
    first_level_.push_back(levels_);
    levels_ += LevelsOf(static_cast<Factor>(f));
  }
  met_.assign(static_cast<size_t>(levels_) * static_cast<size_t>(levels_), 0);
}

size_t PairCoverage::Index(Factor a, int level_a, Factor b, int level_b) const {
  const int row = first_level_[static_cast<size_t>(a)] + level_a,
            column = first_level_[static_cast<size_t>(b)] + level_b;
  return static_cast<size_t>(row) * static_cast<size_t>(levels_) + static_cast<size_t>(column);
}

void PairCoverage::Add(const OptionSet& set) {
  for (size_t a = 0; a < kFactors; ++a) {
    for (size_t b = a + 1; b < kFactors; ++b) {
      const Factor fa = static_cast<Factor>(a), fb = static_cast<Factor>(b);
      if (set.IsActive(fa) && set.IsActive(fb)) met_[Index(fa, set[fa], fb, set[fb])] = 1;
    }
  }
}

std::vector<PairCoverage::Pair> PairCoverage::Missing() const {
  std::vector<Pair> missing;
  for (size_t a = 0; a < kFactors; ++a) {
    for (size_t b = a + 1; b < kFactors; ++b) {
      const Factor fa = static_cast<Factor>(a), fb = static_cast<Factor>(b);
      for (int la = 0; la < LevelsOf(fa); ++la) {
        for (int lb = 0; lb < LevelsOf(fb); ++lb) {
          if (met_[Index(fa, la, fb, lb)] == 0 && IsPossible(fa, la, fb, lb))
            missing.push_back({fa, fb, la, lb});
        }
      }
    }
  }
  return missing;
}

int64_t PairCoverage::Possible() const { return static_cast<int64_t>(PairCoverage().Missing().size()); }

std::vector<OptionSet> DrawOptionSets(uint64_t seed, int64_t count, int64_t budget) {
  Rng rng(seed);
  std::vector<OptionSet> sets;
  PairCoverage coverage;
  for (int64_t n = 0; n < count; ++n) {
    sets.push_back(DrawOptionSet(rng, budget));
    coverage.Add(sets.back());
  }
  for (const PairCoverage::Pair& pair : coverage.Missing()) {
    FixedLevels fixed = NothingFixed();
    fixed[static_cast<size_t>(pair.a)] = pair.level_a;
    fixed[static_cast<size_t>(pair.b)] = pair.level_b;
    OptionSet set;
    const auto meets = [&] {
      return set[pair.a] == pair.level_a && set[pair.b] == pair.level_b && set.IsActive(pair.a) &&
             set.IsActive(pair.b);
    };
    do set = DrawOptionSet(rng, budget, fixed);
    while (!meets());
    sets.push_back(set);
  }
  return sets;
}

}  // namespace qkv::test
