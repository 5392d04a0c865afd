// How close the faster ways of running a causal model are to float32, on any text: the mean Kullback-Leibler
// divergence of the next token's distribution, how often its likeliest token is the same, and the perplexity.
//
// usage: closeness MODEL FILE [TOKENS]     default: 20,000 tokens, read in windows of 1,024
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "qkv/error.h"
#include "qkv/generate.h"
#include "qkv/model.h"
#include "runtime/threads.h"

namespace {

using qkv::Model;

constexpr int64_t kWindow = 1024;     // tokens that share a text; each is predicted from those before it in its window
constexpr int64_t kFew = 8;           // tokens at once where a quantised model multiplies with its blocks
constexpr int64_t kFewTokens = 2048;  // of the text, which is as much as that way is given

struct Way {
  const char* name;
  const Model* model;
  int64_t at_once, tokens;  // tokens read at once, tokens of the text
};

struct Sums {
  double surprise = 0, divergence = 0;  // in nats
  int64_t tokens = 0, predicted = 0, same = 0;
};

double LogSum(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - most);
  return most + std::log(sum);
}

double Divergence(std::span<const float> exact, double exact_sum, std::span<const float> other, double other_sum) {
  double divergence = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double log_p = static_cast<double>(exact[i]) - exact_sum;
    divergence += std::exp(log_p) * (log_p - (static_cast<double>(other[i]) - other_sum));
  }
  return divergence;
}

auto Likeliest(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

std::vector<float> Logits(const Model& model, std::span<const int64_t> ids, int64_t at_once) {
  const auto session = qkv::StartSession(model);
  std::vector<float> all;
  for (size_t first = 0; first < ids.size(); first += static_cast<size_t>(at_once)) {
    const auto part = session->ReadAll(ids.subspan(first, std::min(ids.size() - first, static_cast<size_t>(at_once))));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// The logits of a window's tokens, (tokens, vocabulary), and the logarithm of each row's sum of exponentials.
struct Window {
  std::span<const int64_t> ids;
  std::vector<float> logits;
  std::vector<double> log_sums;

  Window(const Model& model, std::span<const int64_t> tokens, int64_t at_once)
      : ids(tokens), logits(Logits(model, tokens, at_once)), log_sums(tokens.size()) {
    qkv::ParallelFor(static_cast<int64_t>(ids.size()), [&](int64_t t, int) {
      log_sums[static_cast<size_t>(t)] = LogSum(Row(static_cast<size_t>(t)));
    });
  }
  std::span<const float> Row(size_t t) const {
    const size_t vocab = logits.size() / ids.size();
    return std::span(logits).subspan(t * vocab, vocab);
  }
};

// Adds one window to the sums of a way.
void Compare(const Window& exact, const Window& other, Sums& sums) {
  std::vector<double> divergence(exact.ids.size());
  qkv::ParallelFor(static_cast<int64_t>(exact.ids.size()), [&](int64_t at, int) {
    const auto t = static_cast<size_t>(at);
    divergence[t] = Divergence(exact.Row(t), exact.log_sums[t], other.Row(t), other.log_sums[t]);
  });
  for (size_t t = 0; t < exact.ids.size(); ++t) {
    sums.divergence += divergence[t], ++sums.tokens;
    sums.same += Likeliest(exact.Row(t)) == Likeliest(other.Row(t));
    if (t + 1 == exact.ids.size()) continue;
    sums.surprise += other.log_sums[t] - static_cast<double>(other.Row(t)[static_cast<size_t>(exact.ids[t + 1])]);
    ++sums.predicted;
  }
}

void Print(const Way& way, const Sums& sums, const Sums& exact) {
  const auto perplexity = [](const Sums& s) { return std::exp(s.surprise / static_cast<double>(s.predicted)); };
  const auto tokens = static_cast<double>(sums.tokens);
  fmt::print("{:<26}{:>7}{:>12.3f}{:>+10.3f} %{:>12.2g}{:>12.2f} %\n", way.name, sums.tokens, perplexity(sums),
             100 * (perplexity(sums) / perplexity(exact) - 1), sums.divergence / tokens,
             100 * static_cast<double>(sums.same) / tokens);
}

void Run(const std::string& name, const std::string& file, int64_t most) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw qkv::Error(qkv::ErrorCode::kFile, "cannot be read", file);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const auto exact = qkv::LoadModel(name, {qkv::DType::kF32}), rounded = qkv::LoadModel(name, {qkv::DType::kBF16}),
             usual = qkv::LoadModel(name);
  std::vector<int64_t> ids = exact->tokenizer().Encode(text).ids;
  ids.resize(std::min(ids.size(), static_cast<size_t>(most)));
  const std::vector<Way> ways = {{"bfloat16", rounded.get(), kWindow, most},
                                 {"default, a prompt", usual.get(), kWindow, most},
                                 {"default, token by token", usual.get(), kFew, kFewTokens}};
  std::vector<Sums> sums(ways.size()), references(ways.size());
  for (int64_t first = 0; first < static_cast<int64_t>(ids.size()); first += kWindow) {
    const auto window = std::span(ids).subspan(static_cast<size_t>(first));
    const auto tokens = window.first(std::min(window.size(), static_cast<size_t>(kWindow)));
    const Window reference(*exact, tokens, kWindow);
    for (size_t i = 0; i < ways.size(); ++i) {
      if (first >= ways[i].tokens) continue;
      Compare(reference, reference, references[i]);
      Compare(reference, Window(*ways[i].model, tokens, ways[i].at_once), sums[i]);
    }
  }
  fmt::print("{:<26}{:>7}{:>12}{:>12}{:>12}{:>14}\n", "", "tokens", "perplexity", "of float32", "mean KL",
             "same choice");
  Print({"float32", nullptr, kWindow, most}, references.front(), references.front());
  for (size_t i = 0; i < ways.size(); ++i) Print(ways[i], sums[i], references[i]);
}

}  // namespace

int main(int count, char** arguments) try {
  if (count < 3) {
    fmt::print(stderr, "usage: closeness MODEL FILE [TOKENS]\n");
    return 2;
  }
  Run(arguments[1], arguments[2], count > 3 ? std::atoll(arguments[3]) : 20000);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "closeness: {}\n", error.what());
  return 1;
}
