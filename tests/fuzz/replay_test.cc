// Runs a fuzz target over its corpus, over every beginning of each input and over each input with a byte
// changed.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "fuzz.h"

namespace {

using Bytes = std::vector<uint8_t>;

// A block of just this size, so that AddressSanitizer sees one byte too many.
void RunOn(Bytes input) {
  input.shrink_to_fit();
  ASSERT_EQ(LLVMFuzzerTestOneInput(input.data(), input.size()), 0);
}

std::vector<Bytes> Corpus() {
  std::vector<std::filesystem::path> paths;
  for (const auto& file : std::filesystem::directory_iterator(QKV_CORPUS)) paths.push_back(file.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

TEST(Replay, Corpus) {
  const std::vector<Bytes> corpus = Corpus();
  EXPECT_GE(corpus.size(), 8u);
  for (const Bytes& input : corpus) RunOn(input);
}

TEST(Replay, EveryBeginning) {
  for (const Bytes& input : Corpus()) {
    for (size_t size = 0; size < input.size(); ++size)
      RunOn({input.begin(), input.begin() + static_cast<std::ptrdiff_t>(size)});
  }
}

TEST(Replay, EveryByteChanged) {
  for (const Bytes& input : Corpus()) {
    for (size_t at = 0; at < input.size(); ++at) {
      for (const int byte : {0x00, 0xff, 0x22 /* " */, 0x39 /* 9 */, input[at] ^ 0x01}) {
        Bytes changed = input;
        changed[at] = static_cast<uint8_t>(byte);
        RunOn(changed);
      }
    }
  }
}

}  // namespace
