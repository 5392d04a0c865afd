// The oracle is right when it finds what is wrong: plain float32 attention passes it, and with one mistake it
// does not.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "support/expected.h"
#include "support/option_set.h"
#include "support/oracle_case.h"
#include "support/plain_attention.h"

namespace qkv::test {
namespace {

constexpr int64_t kSets = 1500;
constexpr int64_t kBudget = 60'000;

struct Judged {
  std::unique_ptr<OracleCase> call;
  std::unique_ptr<Expected> expected;

  std::string Judge(Fault fault) const {
    PlainResult answer = NaiveAttention(call->plain(), DType::kF32, {}, fault);
    return expected->Compare({std::move(answer.out), std::move(answer.lse), {}, true});
  }
};

// The oracle's sets of float32, small ones.
const std::vector<Judged>& Sets() {
  static const std::vector<Judged> sets = [] {
    Rng rng(7);
    std::vector<Judged> result;
    FixedLevels fixed = NothingFixed();
    fixed[static_cast<size_t>(Factor::kTypes)] = static_cast<int>(Types::kF32);
    for (int64_t n = 0; n < kSets; ++n) {
      auto call = std::make_unique<OracleCase>(DrawOptionSet(rng, kBudget, fixed));
      auto expected = std::make_unique<Expected>(call->plain(), DType::kF32);
      result.push_back({std::move(call), std::move(expected)});
    }
    return result;
  }();
  return sets;
}

class SeededFault : public testing::TestWithParam<Fault> {};

TEST_P(SeededFault, IsCaught) {
  int caught = 0;
  for (const Judged& set : Sets()) caught += !set.Judge(GetParam()).empty();
  EXPECT_GT(caught, 0) << NameOf(GetParam());
  RecordProperty("sets that catch it", caught);
}

std::vector<Fault> Faults() {
  std::vector<Fault> faults;
  for (int fault = 1; fault < static_cast<int>(Fault::kCount); ++fault)
    faults.push_back(static_cast<Fault>(fault));
  return faults;
}

std::string TestName(const testing::TestParamInfo<Fault>& info) {
  std::string name;
  for (const char* c = NameOf(info.param); *c != '\0'; ++c)
    name += std::isalnum(static_cast<unsigned char>(*c)) ? *c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Each, SeededFault, testing::ValuesIn(Faults()), TestName);

TEST(SeededFaults, WithoutOneNothingIsCaught) {
  for (const Judged& set : Sets()) EXPECT_EQ(set.Judge(Fault::kNone), "") << set.call->set().Description();
}

}  // namespace
}  // namespace qkv::test
