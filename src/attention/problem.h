// A validated call of the operator, in the kernels' terms.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/problem.h"
#include "qkv/attention.h"

namespace qkv {

// The keys and values of a sequence in a cache's pages. Offsets are in bytes from a page's begin, for head 0; a head
// takes `head_bytes` of K (or V), and int8 elements have scales, `scale_head_bytes` a head.
struct CachedKeys {
  const PageTable* table = nullptr;
  DType dtype = DType::kF32;
  struct Part {
    int64_t offset = 0, head_bytes = 0, width = 0;  // width: elements of a key
    int64_t scales = 0, scale_head_bytes = 0;
  } k, v;
  int64_t first = 0;  // keys before it have been overwritten
};

// One sequence of the batch. Pointers are at its first row and head 0.
struct Sequence {
  int64_t batch = 0;
  int64_t first_row = 0, first_key = 0;  // in the tensors of a packed batch; else 0
  int64_t rows = 0;       // query rows that the output holds
  int64_t keys = 0;       // key rows that k and v hold
  int64_t q_length = 0;   // those that are real; the rest are blocked
  int64_t kv_length = 0;
  int64_t offset = 0;     // query i stands at position i + offset
  const std::byte* q = nullptr;
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  std::byte* out = nullptr;
  float* lse = nullptr;
  const CachedKeys* cache = nullptr;  // where its keys are, instead of k and v
};

// Strides in elements.
struct HeadRowStride {
  int64_t head = 0, row = 0;
};

// How later passes make the call's scores again: gradients by a log-sum-exp and chosen rows of a capture do in float32, the
// rest of a capture as they were made.
enum class ScoresAgain { kNever, kInFloat32, kAsMade };

struct Problem {
  int64_t q_heads = 0, kv_heads = 0;
  Layout layout;
  ScoreRules rules;
  Causal causal = Causal::kNone;
  Window window;
  bool chunked = false;
  ScoresAgain scores_again = ScoresAgain::kNever;
  std::vector<Sequence> sequences;
  DType kv_dtype = DType::kF32;
  HeadRowStride q, k, v, out, lse;
  int64_t k_channel = 1, v_channel = 1;
  std::optional<ConstTensor> mask, bias, slopes;  // broadcast to rank 4 (mask, bias) or (B, Hq) (slopes)
  std::optional<ConstTensor> sink;                // (Hq)

  // Query heads that share a KV head; there may be none of either.
  int64_t group() const { return kv_heads == 0 ? 0 : q_heads / kv_heads; }
};

// Checks everything, so that kernels need no checks. Errors: qkv::Error naming the argument.
Problem MakeProblem(const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                    const AttentionOptions& options, const Tensor& out, const Tensor* lse);

// The same for tensors that are only read: whether out and lse may be written is not asked.
Problem MakeReadProblem(const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                        const AttentionOptions& options, const ConstTensor& out, const ConstTensor* lse);

// Parts of that, for arguments beside those.
struct NamedTensor {
  std::string name;
  const ConstTensor* tensor;
};
std::vector<NamedTensor> InputsOf(const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                                  const AttentionOptions& options);
// It has the shape and type of the call's lse.
void CheckLse(const std::string& name, const ConstTensor& lse, const AttentionOptions& options, const ConstTensor& q);
// No two of its elements share memory, nor does it with the others.
void CheckOutput(const std::string& name, const ConstTensor& output, const std::vector<NamedTensor>& others);

// row: a new one. It is made where it stays: a copy would wait for the stores of its parts.
void MakeRow(const Problem& problem, const Sequence& sequence, int64_t head, int64_t query, Row& row);
KeyValues MakeKeyValues(const Problem& problem, const Sequence& sequence, int64_t kv_head);

}  // namespace qkv
