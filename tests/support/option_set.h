// A set of everything that a call of the attention operator can vary in, drawn from a seed. Each thing that
// varies is a factor with a few named levels; a set is one level of each and a seed for what is random within
// them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "qkv/tensor.h"
#include "runtime/cpu.h"
#include "support/rng.h"

namespace qkv::test {

enum class Factor {
  kBatch,
  kKvHeads,
  kGroup,
  kTq,
  kTk,
  kD,
  kDv,  // sizes
  kTypes,
  kSize,  // element types, how large the scores are
  kCausal,
  kLeft,
  kRight,
  kScale,
  kSoftcap,
  kMaskShape,
  kMaskFill,
  kBiasShape,
  kBiasFill,
  kBiasType,
  kMaskLayout,
  kAlibi,
  kSink,
  kQLengths,
  kKvLengths,
  kPacking,
  kOffset,
  kDropout,
  kQLayout,
  kKLayout,
  kVLayout,
  kOutLayout,
  kLse,  // strides
  kPlanted,
  kCapture,
  kThreads,
  kIsa,
  kCount,
};
inline constexpr size_t kFactors = static_cast<size_t>(Factor::kCount);

// Levels that have code of their own; the order is that of the table in option_set.cc.
enum class Types { kF32, kBF16, kF16, kF32WithBF16, kF32WithF16, kF64 };
enum class Fill { kMost, kFew, kRows, kAll, kNothing };  // of masks; of biases: what is -inf
enum class Planted { kNothing, kNanKey, kNanValue, kNanBoth, kInfKey, kInfValue };
enum class Captured { kNothing, kTop, kAll, kRawRows, kSoftcappedRows, kBiasedRows, kWeightRows };

class OptionSet {
 public:
  uint64_t seed = 0;
  std::array<int, kFactors> level{};

  int operator[](Factor factor) const { return level[static_cast<size_t>(factor)]; }
  int& operator[](Factor factor) { return level[static_cast<size_t>(factor)]; }
  int64_t Number(Factor factor) const;  // the level's name as a number
  const std::string& Name(Factor factor) const;

  int64_t batch() const { return Number(Factor::kBatch); }
  int64_t kv_heads() const { return Number(Factor::kKvHeads); }
  int64_t q_heads() const { return kv_heads() * Number(Factor::kGroup); }
  int64_t tq() const { return Number(Factor::kTq); }
  int64_t tk() const { return Number(Factor::kTk); }
  int64_t d() const { return Number(Factor::kD); }
  int64_t dv() const { return (*this)[Factor::kDv] == 0 ? d() : Number(Factor::kDv); }
  bool packed() const { return (*this)[Factor::kPacking] == 1; }
  bool has_mask() const { return (*this)[Factor::kMaskShape] != 0; }
  bool has_bias() const { return (*this)[Factor::kBiasShape] != 0; }
  Types types() const { return static_cast<Types>((*this)[Factor::kTypes]); }
  DType q_dtype() const;
  DType kv_dtype() const;
  Planted planted() const { return static_cast<Planted>((*this)[Factor::kPlanted]); }
  Captured captured() const { return static_cast<Captured>((*this)[Factor::kCapture]); }
  Isa isa() const;  // the level modulo what this machine has
  int64_t cost() const { return batch() * q_heads() * tq() * tk() * (d() + dv()); }

  // Whether the factor has a meaning here: the fill of a mask needs a mask.
  bool IsActive(Factor factor) const;

  std::string Text() const;         // "seed/level,level,...": what Parse takes back
  std::string Description() const;  // for people
};

// Error{kInvalidArgument} for what is no set.
OptionSet ParseOptionSet(const std::string& text);

int LevelsOf(Factor factor);

// A random set whose cost is at most `budget`. Factors in `fixed` (>= 0) keep that level.
using FixedLevels = std::array<int, kFactors>;
FixedLevels NothingFixed();
OptionSet DrawOptionSet(Rng& rng, int64_t budget, const FixedLevels& fixed = NothingFixed());

// Which pairs of levels of two factors some set of a collection has.
class PairCoverage {
 public:
  PairCoverage();
  void Add(const OptionSet& set);
  struct Pair {
    Factor a, b;
    int level_a, level_b;
  };
  std::vector<Pair> Missing() const;  // pairs that can be met and are not
  int64_t Possible() const;

 private:
  size_t Index(Factor a, int level_a, Factor b, int level_b) const;
  std::vector<int> first_level_;
  int levels_ = 0;
  std::vector<char> met_;
};

// `count` random sets, and as many more as it takes to meet every pair.
std::vector<OptionSet> DrawOptionSets(uint64_t seed, int64_t count, int64_t budget);

}  // namespace qkv::test
