// The operator against plain attention in double, over random sets of options.
#include "support/oracle.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "qkv/error.h"
#include "support/option_set.h"

namespace qkv::test {
namespace {

constexpr int64_t kSets = 20000;
constexpr uint64_t kSeed = 20260101;
constexpr int64_t kSmall = 600'000, kLarge = 12'000'000;  // multiplications of a set

void CheckAll(const std::vector<OptionSet>& sets) {
  int failures = 0;
  for (const OptionSet& set : sets) {
    const std::string wrong = CheckOptionSet(set);
    if (wrong.empty()) continue;
    ADD_FAILURE() << wrong;
    if (++failures == 20) FAIL() << "and maybe more";
  }
}

TEST(OptionSet, ComesBackFromItsText) {
  Rng rng(1);
  for (int n = 0; n < 100; ++n) {
    const OptionSet set = DrawOptionSet(rng, kSmall);
    const OptionSet back = ParseOptionSet(set.Text());
    EXPECT_EQ(back.seed, set.seed);
    EXPECT_EQ(back.level, set.level);
  }
  EXPECT_THROW(ParseOptionSet("12/1,2,3"), Error);
  EXPECT_THROW(ParseOptionSet(""), Error);
}

TEST(Oracle, MeetsEveryPairOfOptions) {
  const std::vector<OptionSet> sets = DrawOptionSets(kSeed, kSets, kSmall);
  EXPECT_GE(sets.size(), static_cast<size_t>(kSets));
  PairCoverage coverage;
  EXPECT_GT(coverage.Possible(), 20000);
  for (const OptionSet& set : sets) {
    EXPECT_LE(set.cost(), kSmall);
    coverage.Add(set);
  }
  EXPECT_TRUE(coverage.Missing().empty()) << coverage.Missing().size();
}

TEST(Oracle, AgreesOverRandomSets) { CheckAll(DrawOptionSets(kSeed, kSets, kSmall)); }

// Larger ones, each on every instruction set.
TEST(Oracle, AgreesOverLargeSetsOnEveryInstructionSet) {
  Rng rng(kSeed + 1);
  std::vector<OptionSet> sets;
  for (int n = 0; n < 100; ++n) {
    OptionSet set = DrawOptionSet(rng, kLarge);
    while (set.cost() < kLarge / 8) set = DrawOptionSet(rng, kLarge);
    for (int isa = 0; isa < LevelsOf(Factor::kIsa); ++isa) {
      set[Factor::kIsa] = isa;
      sets.push_back(set);
    }
  }
  CheckAll(sets);
}

// The set that QKV_ORACLE_SET names; what a failure's line runs.
TEST(Oracle, OneSet) {
  const char* text = std::getenv("QKV_ORACLE_SET");
  if (text == nullptr) GTEST_SKIP() << "QKV_ORACLE_SET names no set";
  const OptionSet set = ParseOptionSet(text);
  EXPECT_EQ(CheckOptionSet(set), "") << set.Description();
}

}  // namespace
}  // namespace qkv::test
