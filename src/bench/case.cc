#include "bench/case.h"

#include <algorithm>
#include <array>

namespace qkv::bench {
namespace {

struct Heads {
  int64_t q, kv, d;
};
constexpr Heads kTwelve{12, 12, 64}, kGrouped{32, 8, 128}, kThirtyTwo{32, 32, 128};

Case Call(std::string name, DType dtype, int64_t batch, Heads heads, int64_t queries, int64_t keys) {
  Case one;
  one.name = std::move(name);
  one.dtype = dtype;
  one.batch = batch;
  one.q_heads = heads.q, one.kv_heads = heads.kv, one.d = heads.d;
  one.queries = queries, one.keys = keys;
  return one;
}

Case Prefill(std::string name, DType dtype, int64_t batch, Heads heads, int64_t length, Causal causal) {
  Case one = Call(std::move(name), dtype, batch, heads, length, length);
  one.causal = causal;
  return one;
}

Case Decode(std::string name, DType dtype, int64_t batch, Heads heads, int64_t keys) {
  return Call(std::move(name), dtype, batch, heads, 1, keys);
}

Case Backward(std::string name, DType dtype, int64_t length) {
  Case one = Prefill(std::move(name), dtype, 1, kTwelve, length, Causal::kBottomRight);
  one.kind = Kind::kBackward;
  return one;
}

Case Layer(std::string name, DType dtype, Heads heads, int64_t length, When when) {
  Case one = Prefill(std::move(name), dtype, 1, heads, length, Causal::kNone);
  one.kind = Kind::kLayer;
  one.when = when;
  return one;
}

Case MiniLm(const std::string& type, DType dtype, int64_t batch, int64_t length) {
  Case one;
  one.name = "minilm-" + type + "-" + std::to_string(batch) + "x" + std::to_string(length);
  one.kind = Kind::kModel;
  one.model = "minilm";
  one.dtype = dtype;
  one.batch = batch;
  one.queries = one.keys = length;
  return one;
}

// Cases of one type; `type` begins their names.
void AddPrefill(const std::string& type, DType dtype, std::vector<Case>& cases) {
  constexpr Causal kNone = Causal::kNone, kCausal = Causal::kBottomRight;
  cases.push_back(Prefill(type + "-full-1k", dtype, 1, kTwelve, 1024, kNone));
  cases.push_back(Prefill(type + "-full-grouped", dtype, 1, kGrouped, 2048, kNone));
  cases.push_back(Prefill(type + "-full-small", dtype, 8, kTwelve, 128, kNone));
  cases.push_back(Prefill(type + "-causal-1k", dtype, 1, kTwelve, 1024, kCausal));
  cases.push_back(Prefill(type + "-causal-4k", dtype, 1, kTwelve, 4096, kCausal));
  cases.push_back(Prefill(type + "-causal-grouped", dtype, 1, kGrouped, 2048, kCausal));
}

void AddDecode(const std::string& type, DType dtype, std::vector<Case>& cases) {
  cases.push_back(Decode(type + "-decode-grouped", dtype, 1, kGrouped, 4096));
  cases.push_back(Decode(type + "-decode-32", dtype, 1, kThirtyTwo, 4096));
  cases.push_back(Decode(type + "-decode-batch", dtype, 16, kGrouped, 2048));
}

// From one token to 16,384: fewer heads where the scores of a program that writes them would not fit.
void AddGrid(std::vector<Case>& cases) {
  for (int64_t length = 1; length <= 16384; length *= 2) {
    const Heads heads = length <= 2048 ? kTwelve : Heads{2, 2, 64};
    cases.push_back(Prefill("grid-" + std::to_string(length), DType::kF32, 1, heads, length, Causal::kNone));
    cases.back().when = When::kNamed;
  }
}

// Pairs of a row and a key that it sees, of one head.
double VisiblePairs(const Case& one) {
  const double rows = static_cast<double>(one.queries), keys = static_cast<double>(one.keys);
  return one.causal == Causal::kNone ? rows * keys : rows * (keys - rows) + rows * (rows + 1) / 2;
}

}  // namespace

std::vector<Case> NamedCases() {
  std::vector<Case> cases;
  const std::array<std::pair<std::string, DType>, 3> types{
      {{"f32", DType::kF32}, {"bf16", DType::kBF16}, {"f16", DType::kF16}}};
  for (const auto& [type, dtype] : types) AddPrefill(type, dtype, cases);
  for (const auto& [type, dtype] : types) AddDecode(type, dtype, cases);
  // Looking, and the plain forward that it is held against.
  const Case forward = Prefill("f32-causal-8k", DType::kF32, 1, {1, 1, 64}, 8192, Causal::kBottomRight);
  cases.push_back(forward);
  cases.push_back(forward);
  cases.back().name = "capture-8k";
  cases.back().kind = Kind::kCapture;
  for (const auto& [type, dtype] : {types[0], types[1]}) {
    cases.push_back(Backward("backward-" + type + "-causal-1k", dtype, 1024));
    cases.push_back(Backward("backward-" + type + "-causal-4k", dtype, 4096));
  }
  for (const auto& [type, dtype] : {types[0], types[1]}) {
    cases.push_back(Layer("layer-" + type + "-768", dtype, kTwelve, 1024, When::kAlways));
    // 2.4 GB of float32 parameters.
    cases.push_back(Layer("layer-" + type + "-gpt3", dtype, {96, 96, 128}, 50, When::kNamed));
    for (const auto& [batch, length] : {std::pair{1, 15}, {32, 15}, {8, 262}, {1, 509}}) {
      cases.push_back(MiniLm(type, dtype, batch, length));
    }
  }
  AddGrid(cases);
  return cases;
}

const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::kAttention: return "attention";
    case Kind::kCapture: return "capture";
    case Kind::kBackward: return "backward";
    case Kind::kLayer: return "layer";
    case Kind::kModel: return "model";
  }
  return "unknown";
}

const char* NameOf(Limit limit) {
  switch (limit) {
    case Limit::kF32: return "float32";
    case Limit::kBF16: return "bfloat16";
    case Limit::kMemory: return "memory";
  }
  return "unknown";
}

Limit LimitOf(const Case& one) {
  // Rows that read a key: below some tens, reading it takes longer than what is done with it.
  constexpr int64_t kFewRows = 16;
  if (one.kind == Kind::kAttention && one.keys > kFewRows &&
      one.queries * (one.q_heads / one.kv_heads) < kFewRows) {
    return Limit::kMemory;
  }
  return one.dtype == DType::kBF16 ? Limit::kBF16 : Limit::kF32;
}

double PeakOf(Limit limit, const Peaks& peaks) {
  switch (limit) {
    case Limit::kF32: return peaks.f32;
    case Limit::kBF16: return peaks.bf16();
    case Limit::kMemory: return peaks.read;
  }
  return 0;
}

double AttentionOperations(const Case& one) {
  return 4.0 * static_cast<double>(one.batch * one.q_heads * one.d) * VisiblePairs(one);
}

double BackwardOperations(const Case& one) { return 3.5 * AttentionOperations(one); }

double LayerOperations(const Case& one) {
  const double width = static_cast<double>(one.q_heads * one.d);
  const double tokens = static_cast<double>(one.batch * one.queries);
  return AttentionOperations(one) + 2.0 * tokens * 4.0 * width * width;
}

double BytesRead(const Case& one) {
  return 2.0 * static_cast<double>(one.batch * one.kv_heads * one.keys * one.d) *
         static_cast<double>(SizeOf(one.dtype));
}

std::string ShapeText(const Case& one) {
  std::string text = "(" + std::to_string(one.batch);
  if (one.kind != Kind::kModel)
    text += ", " + std::to_string(one.q_heads) + ", " + std::to_string(one.kv_heads);
  text += ", " + std::to_string(one.keys);
  if (one.kind != Kind::kModel) text += ", " + std::to_string(one.d);
  return text + ")";
}

}  // namespace qkv::bench
