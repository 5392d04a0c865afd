// One tokenizer, many threads: it is const, and ThreadSanitizer watches.
#include <gtest/gtest.h>

#include <thread>

#include "text/golden.h"
#include "text/tokenizer_json.h"

namespace qkv::test {
namespace {

TEST(Tokenizer, ManyThreadsShareOne) {
  const auto golden = ReadGolden("tiny/added.json");
  const auto tokenizer = TokenizerFromJson(golden.at("tokenizer").dump(), "tokenizer.json");
  std::vector<std::string> texts;
  std::vector<std::vector<int64_t>> expected;
  for (const auto& entry : golden.at("cases")) {
    texts.push_back(entry.at("text"));
    expected.push_back(entry.at("ids"));
  }
  std::vector<int> wrong(8);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 50 * texts.size(); ++i) {
        const size_t which = (i + t) % texts.size();
        wrong[t] += tokenizer->Encode(texts[which]).ids != expected[which];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : wrong) EXPECT_EQ(count, 0);
}

}  // namespace
}  // namespace qkv::test
