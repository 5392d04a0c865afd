// What is timed: named cases, the same that bench/compare runs beside other programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/machine.h"
#include "qkv/attention.h"
#include "qkv/tensor.h"

namespace qkv::bench {

enum class Kind {
  kAttention,  // one call of the operator
  kCapture,    // the same, with the 16 strongest keys, the entropy and the received mass of every row
  kBackward,   // the operator with its log-sum-exp, and the gradients by q, k and v
  kLayer,      // a multi-head layer of width q_heads * d, parameters packed beforehand
  kModel,      // a model's forward
};

// What a case cannot be faster than.
enum class Limit { kF32, kBF16, kMemory };

// Whether a case runs unless it is asked for.
enum class When { kAlways, kNamed };

struct Case {
  std::string name;
  Kind kind = Kind::kAttention;
  DType dtype = DType::kF32;
  int64_t batch = 1, q_heads = 1, kv_heads = 1, queries = 1, keys = 1, d = 64;
  Causal causal = Causal::kNone;  // none or bottom right, where queries <= keys
  std::string model;              // of kModel: its name; sizes are batch and queries alone
  When when = When::kAlways;
};

std::vector<Case> NamedCases();

const char* NameOf(Kind kind);    // "attention", "capture", ...
const char* NameOf(Limit limit);  // "float32", "bfloat16", "memory"

// The case's limit: memory where each key is read for a few rows only, else arithmetic in its type.
Limit LimitOf(const Case& one);
double PeakOf(Limit limit, const Peaks& peaks);  // operations or bytes a second

// Useful operations, a multiply-add being 2: 4 B Hq Tq Tk D of attention, of causal attention what is visible,
// and the layers' multiplies. 0 for a model, which Workload knows.
double AttentionOperations(const Case& one);
double LayerOperations(const Case& one);
double BackwardOperations(const Case& one);  // 3.5 times the forward's two products: seven in all
double BytesRead(const Case& one);  // of keys and values

std::string ShapeText(const Case& one);  // "(1, 32, 8, 4096, 128)", as docs/performance.md has them

}  // namespace qkv::bench
