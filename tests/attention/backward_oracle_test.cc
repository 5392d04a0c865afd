// Gradients against plain ones in double, over random sets of options.
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/backward_oracle.h"
#include "support/option_set.h"

namespace qkv::test {
namespace {

constexpr uint64_t kSeed = 20260303;

void CheckAll(const std::vector<OptionSet>& sets) {
  int failures = 0;
  for (const OptionSet& set : sets) {
    const std::string wrong = CheckBackward(set);
    if (wrong.empty()) continue;
    ADD_FAILURE() << wrong;
    if (++failures == 10) FAIL() << "and maybe more";
  }
}

TEST(BackwardOracle, AgreesOverRandomSets) {
  Rng rng(kSeed);
  std::vector<OptionSet> sets;
  for (int n = 0; n < 2000; ++n) sets.push_back(DrawOptionSet(rng, 200'000));
  CheckAll(sets);
}

// Larger ones, each on every instruction set: several tiles of keys and blocks of rows.
TEST(BackwardOracle, AgreesOverLargeSetsOnEveryInstructionSet) {
  Rng rng(kSeed + 1);
  std::vector<OptionSet> sets;
  for (int n = 0; n < 12; ++n) {
    OptionSet set = DrawOptionSet(rng, 6'000'000);
    while (set.cost() < 1'000'000) set = DrawOptionSet(rng, 6'000'000);
    for (int isa = 0; isa < LevelsOf(Factor::kIsa); ++isa) {
      set[Factor::kIsa] = isa;
      sets.push_back(set);
    }
  }
  CheckAll(sets);
}

// The set that QKV_ORACLE_SET names; what a failure's line runs.
TEST(BackwardOracle, OneSet) {
  const char* text = std::getenv("QKV_ORACLE_SET");
  if (text == nullptr) GTEST_SKIP() << "QKV_ORACLE_SET names no set";
  const OptionSet set = ParseOptionSet(text);
  EXPECT_EQ(CheckBackward(set), "") << set.Description();
}

}  // namespace
}  // namespace qkv::test
