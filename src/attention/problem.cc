#include "attention/problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "attention/validate.h"

namespace qkv {
namespace {

constexpr int64_t kMaxPosition = int64_t{1} << 61;  // sums of a few positions stay within 63 bits

bool IsPacked(const AttentionOptions& options) { return options.cu_q || options.cu_kv; }

// The axes of q, k, v and out: (B, H, T, D), or (T, H, D) when packed.
struct Axes {
  int head, row, channel;
};
constexpr Axes kBatchedAxes{1, 2, 3}, kPackedAxes{1, 0, 2};

// What is empty is never looked at: its strides, which may be anything, count as 0.
int64_t Stride(const ConstTensor& tensor, int axis) {
  return tensor.shape.elements() == 0 ? 0 : tensor.stride[static_cast<size_t>(axis)];
}

const std::byte* At(const ConstTensor& tensor, int axis, int64_t index) {
  if (tensor.data == nullptr) return nullptr;
  return static_cast<const std::byte*>(tensor.data) +
         index * Stride(tensor, axis) * static_cast<int64_t>(SizeOf(tensor.dtype));
}

void CheckRanks(const AttentionOptions& options, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                const ConstTensor& out) {
  const int rank = IsPacked(options) ? 3 : 4;
  const std::string layout = IsPacked(options) ? "(total, heads, D) with cu_q and cu_kv" : "(B, H, T, D)";
  const std::pair<const char*, const ConstTensor*> tensors[] = {{"q", &q}, {"k", &k}, {"v", &v}, {"out", &out}};
  for (const auto& [name, tensor] : tensors) {
    CheckTensor(name, *tensor);
    if (tensor->rank() != rank) FailArgument(name, "wrong rank", layout, ToString(tensor->shape));
  }
}

void CheckTypes(const ConstTensor& q, const ConstTensor& k, const ConstTensor& v, const ConstTensor& out) {
  const auto is = [](const ConstTensor& tensor, std::initializer_list<DType> types) {
    return std::find(types.begin(), types.end(), tensor.dtype) != types.end();
  };
  if (!is(q, {DType::kF32, DType::kBF16, DType::kF16, DType::kF64})) {
    FailType("q", "float32, bfloat16, float16 or float64", q.dtype);
  }
  const bool mixed = q.dtype == DType::kF32 && is(k, {DType::kBF16, DType::kF16});
  if (k.dtype != q.dtype && !mixed) {
    FailType("k", std::string(NameOf(q.dtype)) + " as q" + (q.dtype == DType::kF32 ? ", bfloat16 or float16" : ""),
             k.dtype);
  }
  if (v.dtype != k.dtype) FailType("v", std::string(NameOf(k.dtype)) + " as k", v.dtype);
  if (out.dtype != q.dtype) FailType("out", std::string(NameOf(q.dtype)) + " as q", out.dtype);
}

void CheckShapes(const AttentionOptions& options, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                 const ConstTensor& out) {
  const Axes axes = IsPacked(options) ? kPackedAxes : kBatchedAxes;
  const int64_t q_heads = q.size(axes.head), kv_heads = k.size(axes.head), d = q.size(axes.channel);
  if (d == 0) FailArgument("q", "head size is 0", "at least 1", ToString(q.shape));
  Shape k_shape = k.shape, v_shape = k.shape, out_shape = q.shape;
  k_shape.size[static_cast<size_t>(axes.channel)] = d;
  if (!IsPacked(options)) k_shape.size[0] = q.size(0);
  CheckShape("k", k, k_shape);
  v_shape.size[static_cast<size_t>(axes.channel)] = v.size(axes.channel);
  CheckShape("v", v, v_shape);
  if (v.size(axes.channel) == 0) FailArgument("v", "head size is 0", "at least 1", ToString(v.shape));
  if (q_heads > 0 && (kv_heads == 0 || q_heads % kv_heads != 0)) {
    FailArgument("q", "query heads are not a multiple of key heads",
                 "a multiple of " + std::to_string(kv_heads) + " heads", std::to_string(q_heads));
  }
  out_shape.size[static_cast<size_t>(axes.channel)] = v.size(axes.channel);
  CheckShape("out", out, out_shape);
}

void CheckOptionTensors(const AttentionOptions& options) {
  for (const auto& [name, tensor] : {std::pair{"mask", &options.mask}, std::pair{"bias", &options.bias},
                                     std::pair{"alibi_slopes", &options.alibi_slopes},
                                     std::pair{"sink", &options.sink}}) {
    if (*tensor) CheckTensor(name, **tensor);
  }
}

void CheckScalars(const AttentionOptions& options) {
  const auto show = [](float value) { return std::to_string(value); };
  const int causal = static_cast<int>(options.causal);
  if (causal < static_cast<int>(Causal::kNone) || causal > static_cast<int>(Causal::kBottomRight)) {
    FailArgument("causal", "no such kind", "none, top left or bottom right", std::to_string(causal));
  }
  if (options.scale && !std::isfinite(*options.scale)) {
    FailArgument("scale", "not finite", "a finite number", show(*options.scale));
  }
  if (options.softcap && !(*options.softcap > 0 && std::isfinite(*options.softcap))) {
    FailArgument("softcap", "not positive", "a finite number above 0", show(*options.softcap));
  }
  if (!(options.dropout_p >= 0 && options.dropout_p < 1)) {
    FailArgument("dropout_p", "out of range", "0 up to, not including, 1", show(options.dropout_p));
  }
  if (options.dropout_p > 0 && !options.seed) {
    FailArgument("seed", "missing", "a seed, since dropout_p > 0", "none");
  }
  for (const auto& [name, side] : {std::pair{"window.left", options.window.left},
                                   std::pair{"window.right", options.window.right}}) {
    if (side && *side < 0) {
      FailArgument(name, "negative", "0 or more, or none for an open side", std::to_string(*side));
    }
  }
}

void SetRules(const AttentionOptions& options, int64_t batch, const Shape& scores, Problem& problem) {
  ScoreRules& rules = problem.rules;
  rules.softcap = options.softcap;
  if (options.mask) {
    if (IsPacked(options)) FailArgument("mask", "given with cu_q and cu_kv", "no mask for a packed batch", "a mask");
    CheckDType("mask", *options.mask, DType::kBool);
    problem.mask = BroadcastTo("mask", *options.mask, scores);
    rules.has_mask = true;
    rules.mask_key = problem.mask->stride[3];
  }
  if (options.bias) {
    if (IsPacked(options)) FailArgument("bias", "given with cu_q and cu_kv", "no bias for a packed batch", "a bias");
    if (options.bias->dtype != DType::kF32 && options.bias->dtype != problem.layout.q_dtype) {
      FailType("bias", "float32 or q's type", options.bias->dtype);
    }
    problem.bias = BroadcastTo("bias", *options.bias, scores);
    rules.has_bias = true;
    rules.bias_dtype = options.bias->dtype;
    rules.bias_key = problem.bias->stride[3];
  }
  if (options.alibi_slopes) {
    CheckDType("alibi_slopes", *options.alibi_slopes, DType::kF32);
    problem.slopes = *options.alibi_slopes;
    if (problem.slopes->rank() == 1) {
      CheckShape("alibi_slopes", *problem.slopes, {problem.q_heads});
      problem.slopes = BroadcastTo("alibi_slopes", *problem.slopes, {batch, problem.q_heads});
    }
    CheckShape("alibi_slopes", *problem.slopes, {batch, problem.q_heads});
    rules.has_alibi = true;
  }
  if (options.sink) {
    CheckDType("sink", *options.sink, DType::kF32);
    CheckShape("sink", *options.sink, {problem.q_heads});
    problem.sink = *options.sink;
  }
  if (options.dropout_p > 0) {
    rules.dropout.emplace(*options.seed, options.dropout_p);
    rules.dropout_scale = 1.0 / (1.0 - static_cast<double>(options.dropout_p));
  }
}

void SetOffsets(const AttentionOptions& options, Problem& problem) {
  const size_t batch = problem.sequences.size();
  if (options.offset) {
    if (options.offset->size() != 1 && options.offset->size() != batch) {
      FailArgument("offset", "wrong number of offsets", "1 or " + std::to_string(batch),
                   std::to_string(options.offset->size()));
    }
    for (int64_t offset : *options.offset) {
      if (offset < -kMaxPosition || offset > kMaxPosition) {
        FailArgument("offset", "out of range", "at most 2^61 either way", std::to_string(offset));
      }
    }
  }
  for (size_t b = 0; b < batch; ++b) {
    Sequence& sequence = problem.sequences[b];
    if (options.offset) {
      sequence.offset = (*options.offset)[options.offset->size() == 1 ? 0 : b];
    } else if (options.causal != Causal::kTopLeft) {
      sequence.offset = sequence.kv_length - sequence.q_length;
    }
  }
}

void SetBatched(const ConstTensor& q, const ConstTensor& k, const ConstTensor& v, const AttentionOptions& options,
                const ConstTensor& out, const ConstTensor* lse, Problem& problem) {
  const int64_t batch = q.size(0);
  if (options.q_lengths) CheckLengths("q_lengths", *options.q_lengths, batch, q.size(2));
  if (options.kv_lengths) CheckLengths("kv_lengths", *options.kv_lengths, batch, k.size(2));
  for (int64_t b = 0; b < batch; ++b) {
    Sequence sequence;
    sequence.batch = b;
    sequence.rows = q.size(2);
    sequence.keys = k.size(2);
    sequence.q_length = options.q_lengths ? (*options.q_lengths)[static_cast<size_t>(b)] : q.size(2);
    sequence.kv_length = options.kv_lengths ? (*options.kv_lengths)[static_cast<size_t>(b)] : k.size(2);
    sequence.q = At(q, 0, b);
    sequence.k = At(k, 0, b);
    sequence.v = At(v, 0, b);
    sequence.out = const_cast<std::byte*>(At(out, 0, b));
    if (lse != nullptr) sequence.lse = reinterpret_cast<float*>(const_cast<std::byte*>(At(*lse, 0, b)));
    problem.sequences.push_back(sequence);
  }
  if (lse != nullptr) problem.lse = {lse->stride[1], lse->stride[2]};
}

void SetPacked(const ConstTensor& q, const ConstTensor& k, const ConstTensor& v, const AttentionOptions& options,
               const ConstTensor& out, const ConstTensor* lse, Problem& problem) {
  if (!options.cu_q) FailArgument("cu_q", "missing", "offsets, since cu_kv is given", "none");
  if (!options.cu_kv) FailArgument("cu_kv", "missing", "offsets, since cu_q is given", "none");
  CheckOffsets("cu_q", *options.cu_q, q.size(0));
  CheckOffsets("cu_kv", *options.cu_kv, k.size(0));
  if (options.cu_q->size() != options.cu_kv->size()) {
    FailArgument("cu_kv", "wrong number of offsets", std::to_string(options.cu_q->size()) + " as cu_q",
                 std::to_string(options.cu_kv->size()));
  }
  const int64_t batch = static_cast<int64_t>(options.cu_q->size()) - 1;
  for (int64_t b = 0; b < batch; ++b) {
    const size_t i = static_cast<size_t>(b);
    const int64_t q_first = (*options.cu_q)[i], kv_first = (*options.cu_kv)[i];
    Sequence sequence;
    sequence.batch = b;
    sequence.first_row = q_first, sequence.first_key = kv_first;
    sequence.rows = sequence.q_length = (*options.cu_q)[i + 1] - q_first;
    sequence.keys = sequence.kv_length = (*options.cu_kv)[i + 1] - kv_first;
    // An empty last sequence would begin past the end, where there may be no address.
    if (sequence.rows > 0) {
      sequence.q = At(q, 0, q_first);
      sequence.out = const_cast<std::byte*>(At(out, 0, q_first));
      if (lse != nullptr) sequence.lse = reinterpret_cast<float*>(const_cast<std::byte*>(At(*lse, 1, q_first)));
    }
    if (sequence.kv_length > 0) sequence.k = At(k, 0, kv_first), sequence.v = At(v, 0, kv_first);
    problem.sequences.push_back(sequence);
  }
  const auto shorten = [&](const char* name, const std::optional<std::vector<int64_t>>& lengths,
                           int64_t Sequence::*length) {
    if (!lengths) return;
    CheckLengths(name, *lengths, batch, std::numeric_limits<int64_t>::max());
    for (Sequence& sequence : problem.sequences) {
      const int64_t value = (*lengths)[static_cast<size_t>(sequence.batch)];
      if (value > sequence.*length) {
        FailArgument(std::string(name) + "[" + std::to_string(sequence.batch) + "]", "length out of range",
                     "0 to " + std::to_string(sequence.*length), std::to_string(value));
      }
      sequence.*length = value;
    }
  };
  shorten("q_lengths", options.q_lengths, &Sequence::q_length);
  shorten("kv_lengths", options.kv_lengths, &Sequence::kv_length);
  if (lse != nullptr) problem.lse = {lse->stride[0], lse->stride[1]};
}

// position - count, not below the first key.
int64_t First(int64_t position, int64_t count) { return count > position ? 0 : position - count; }

// position + count, without going past the largest position.
int64_t Last(int64_t position, int64_t count) {
  return count > kMaxPosition - position ? kMaxPosition : position + count;
}

}  // namespace

void CheckLse(const std::string& name, const ConstTensor& lse, const AttentionOptions& options, const ConstTensor& q) {
  CheckTensor(name, lse);
  CheckShape(name, lse, IsPacked(options) ? Shape{q.size(1), q.size(0)} : Shape{q.size(0), q.size(1), q.size(2)});
  CheckDType(name, lse, DType::kF32);
}

std::vector<NamedTensor> InputsOf(const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                                  const AttentionOptions& options) {
  std::vector<NamedTensor> inputs = {{"q", &q}, {"k", &k}, {"v", &v}};
  if (options.mask) inputs.push_back({"mask", &*options.mask});
  if (options.bias) inputs.push_back({"bias", &*options.bias});
  if (options.alibi_slopes) inputs.push_back({"alibi_slopes", &*options.alibi_slopes});
  if (options.sink) inputs.push_back({"sink", &*options.sink});
  return inputs;
}

void CheckOutput(const std::string& name, const ConstTensor& output, const std::vector<NamedTensor>& others) {
  CheckWritable(name, output);
  for (const NamedTensor& other : others) CheckApart(name, output, other.name, *other.tensor);
}

Problem MakeProblem(const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                    const AttentionOptions& options, const Tensor& out, const Tensor* lse) {
  const Problem problem = MakeReadProblem(q, k, v, options, out, lse);
  std::vector<NamedTensor> others = InputsOf(q, k, v, options);
  CheckOutput("out", out, others);
  others.push_back({"out", &out});
  if (lse != nullptr) CheckOutput("lse", *lse, others);
  return problem;
}

Problem MakeReadProblem(const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                        const AttentionOptions& options, const ConstTensor& out, const ConstTensor* lse) {
  CheckRanks(options, q, k, v, out);
  CheckTypes(q, k, v, out);
  CheckShapes(options, q, k, v, out);
  CheckOptionTensors(options);
  if (lse != nullptr) CheckLse("lse", *lse, options, q);
  CheckScalars(options);

  const Axes axes = IsPacked(options) ? kPackedAxes : kBatchedAxes;
  const auto strides = [&](const ConstTensor& tensor) {
    return HeadRowStride{Stride(tensor, axes.head), Stride(tensor, axes.row)};
  };
  Problem problem;
  problem.q_heads = q.size(axes.head);
  problem.kv_heads = k.size(axes.head);
  problem.kv_dtype = k.dtype;
  problem.causal = options.causal;
  problem.window = options.window;
  problem.chunked = options.chunked;
  problem.q = strides(q), problem.k = strides(k), problem.v = strides(v), problem.out = strides(out);
  problem.k_channel = Stride(k, axes.channel);
  problem.v_channel = Stride(v, axes.channel);
  Layout& layout = problem.layout;
  layout.d = q.size(axes.channel);
  layout.dv = v.size(axes.channel);
  layout.scale = options.scale ? static_cast<double>(*options.scale) : 1.0 / std::sqrt(static_cast<double>(layout.d));
  layout.q_dtype = q.dtype;
  layout.q_channel = Stride(q, axes.channel);
  layout.out_channel = Stride(out, axes.channel);
  if (lse != nullptr) {
    layout.row_sums = RowSums::kExact;
    problem.scores_again = ScoresAgain::kInFloat32;
  }

  if (IsPacked(options)) SetPacked(q, k, v, options, out, lse, problem);
  else SetBatched(q, k, v, options, out, lse, problem);
  SetOffsets(options, problem);
  const Shape scores = IsPacked(options) ? Shape{} : Shape{q.size(0), q.size(1), q.size(2), k.size(2)};
  SetRules(options, static_cast<int64_t>(problem.sequences.size()), scores, problem);
  return problem;
}

void MakeRow(const Problem& problem, const Sequence& sequence, int64_t head, int64_t query, Row& row) {
  const int64_t size = static_cast<int64_t>(SizeOf(problem.layout.q_dtype));
  row.batch = sequence.batch, row.head = head, row.query = query;
  row.position = query + sequence.offset;
  row.q = sequence.q + (head * problem.q.head + query * problem.q.row) * size;
  row.out = sequence.out + (head * problem.out.head + query * problem.out.row) * size;
  if (sequence.lse != nullptr) row.lse = sequence.lse + head * problem.lse.head + query * problem.lse.row;
  if (query >= sequence.q_length) return;  // past the length: blocked, no sink

  row.last = sequence.kv_length;
  if (problem.causal != Causal::kNone) row.last = std::min(row.last, row.position + 1);
  if (problem.window.right) row.last = std::min(row.last, Last(row.position, *problem.window.right) + 1);
  if (problem.window.left) row.first = First(row.position, *problem.window.left);
  row.first = std::max<int64_t>(row.first, sequence.cache == nullptr ? 0 : sequence.cache->first);
  row.last = std::max(row.last, row.first);
  const auto at = [&](const ConstTensor& tensor) {
    return static_cast<const std::byte*>(tensor.data) +
           (sequence.batch * tensor.stride[0] + head * tensor.stride[1] + query * tensor.stride[2]) *
               static_cast<int64_t>(SizeOf(tensor.dtype));
  };
  if (problem.mask) row.mask = reinterpret_cast<const uint8_t*>(at(*problem.mask));
  if (problem.bias) row.bias = at(*problem.bias);
  if (problem.slopes) {
    row.slope = static_cast<const float*>(
        problem.slopes->data)[sequence.batch * problem.slopes->stride[0] + head * problem.slopes->stride[1]];
  }
  if (problem.sink) row.sink = static_cast<const float*>(problem.sink->data) + head * problem.sink->stride[0];
}

KeyValues MakeKeyValues(const Problem& problem, const Sequence& sequence, int64_t kv_head) {
  if (sequence.cache != nullptr) {
    const CachedKeys& cache = *sequence.cache;
    const auto paged = [&](const CachedKeys::Part& part) {
      return Strided{nullptr, cache.dtype, part.width, 1, cache.table, part.offset + kv_head * part.head_bytes,
                     part.scales + kv_head * part.scale_head_bytes};
    };
    return {paged(cache.k), paged(cache.v), sequence.kv_length};
  }
  const int64_t size = static_cast<int64_t>(SizeOf(problem.kv_dtype));
  const auto strided = [&](const std::byte* data, HeadRowStride stride, int64_t channel) {
    // A sequence without keys has no address to count from.
    const std::byte* head = data == nullptr ? nullptr : data + kv_head * stride.head * size;
    return Strided{head, problem.kv_dtype, stride.row, channel};
  };
  return {strided(sequence.k, problem.k, problem.k_channel), strided(sequence.v, problem.v, problem.v_channel),
          sequence.kv_length};
}

}  // namespace qkv
