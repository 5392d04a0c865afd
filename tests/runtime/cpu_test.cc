#include "runtime/cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <set>
#include <string>

#include "qkv/error.h"

namespace qkv {
namespace {

constexpr Isa kAllIsas[] = {
    Isa::kPortable, Isa::kSse4, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx, Isa::kNeon};

TEST(Cpu, PortableRunsEverywhereAndOrderAscends) {
  const std::vector<Isa> isas = SupportedIsas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), Isa::kPortable);
  EXPECT_TRUE(std::is_sorted(isas.begin(), isas.end()));
}

TEST(Cpu, NamesAreApart) {
  std::set<std::string> names;
  for (Isa isa : kAllIsas) names.insert(NameOf(isa));
  EXPECT_EQ(names.size(), std::size(kAllIsas));
}

TEST(Cpu, ForceChoosesWhatTheMachineHas) {
  const Isa before = ChosenIsa();
  for (Isa isa : SupportedIsas()) {
    ForceIsa(isa);
    EXPECT_EQ(ChosenIsa(), isa);
  }
  ForceIsa(before);
}

TEST(Cpu, ForceRefusesWhatTheMachineLacks) {
  const std::vector<Isa> supported = SupportedIsas();
  const Isa before = ChosenIsa();
  for (Isa isa : kAllIsas) {
    if (std::find(supported.begin(), supported.end(), isa) != supported.end()) continue;
    EXPECT_THROW(ForceIsa(isa), Error) << NameOf(isa);
    EXPECT_EQ(ChosenIsa(), before);
  }
}

TEST(Cpu, PrefersFloat32ToSlowPairs) {
  const std::vector<Isa> pairs{Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16};
  EXPECT_EQ(PreferredIsa(pairs, "GenuineIntel"), Isa::kAvx512);
  EXPECT_EQ(PreferredIsa(pairs, "AuthenticAMD"), Isa::kAvx512Bf16);
  EXPECT_EQ(PreferredIsa({Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}, "GenuineIntel"), Isa::kAmx);
  EXPECT_EQ(PreferredIsa({Isa::kPortable}, ""), Isa::kPortable);
}

// The environment is read once, so each case needs a process of its own.
class CpuDeathTest : public testing::Test {
 protected:
  CpuDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  static void PrintChoice(const char* name) {
    setenv("QKV_ISA", name, 1);
    try {
      std::cerr << "chose " << NameOf(ChosenIsa()) << '\n';
    } catch (const Error& error) {
      std::cerr << error.what() << '\n';
    }
    std::exit(0);
  }
};

TEST_F(CpuDeathTest, TheEnvironmentChooses) {
  for (Isa isa : SupportedIsas()) {
    EXPECT_EXIT(PrintChoice(NameOf(isa)), testing::ExitedWithCode(0),
                std::string("chose ") + NameOf(isa) + "\n");
  }
  EXPECT_EXIT(PrintChoice(""), testing::ExitedWithCode(0),
              std::string("chose ") + NameOf(SupportedIsas().back()));
}

TEST_F(CpuDeathTest, UnknownNamesAreAnError) {
  EXPECT_EXIT(PrintChoice("avx9000"), testing::ExitedWithCode(0),
              "QKV_ISA: unknown or unsupported instruction set, expected one of portable.*, got avx9000");
}

}  // namespace
}  // namespace qkv
