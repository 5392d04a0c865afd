#include "support/oracle.h"

#include "qkv/error.h"
#include "runtime/threads.h"
#include "support/expected.h"
#include "support/oracle_case.h"

namespace qkv::test {
namespace {

std::string Check(const OptionSet& set) {
  OracleCase call(set);
  const Expected expected(call.plain(), set.q_dtype());
  const Outputs got = call.RunLibrary(Planting::kZeros);
  std::string wrong = expected.Compare(got);
  if (wrong.empty() && got.capture) wrong = expected.CompareCapture(call.request(), *got.capture);
  if (!wrong.empty() || set.planted() == Planted::kNothing) return wrong;
  Outputs planted = call.RunLibrary(Planting::kAsTheSetSays);
  wrong = call.ComparePlanted(got, planted);
  return !wrong.empty() || planted.out == got.out ? wrong : expected.Compare(planted);
}

}  // namespace

std::string CheckOptionSet(const OptionSet& set) {
  std::string wrong;
  try {
    wrong = Check(set);
  } catch (const Error& error) {
    wrong = error.what();
  }
  if (wrong.empty()) return {};
  return wrong + "\n  QKV_ORACLE_SET=" + set.Text() +
         " build/tests/attention/test_attention --gtest_filter=Oracle.OneSet\n  " + set.Description();
}

}  // namespace qkv::test
