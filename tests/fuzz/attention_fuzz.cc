// The attention operator on any descriptors: shapes, strides, types and options out of bytes. What the operator
// takes must stay in the memory that the descriptors reach (buffers end where they do); what it refuses, it
// must refuse with an Error before it writes. Gradients of what it takes too.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "fuzz.h"
#include "qkv/attention_backward.h"
#include "qkv/error.h"
#include "runtime/threads.h"

namespace qkv::test {
namespace {

// Numbers out of the input; zeros when it has ended.
class Bytes {
 public:
  Bytes(const uint8_t* bytes, size_t size) : at_(bytes), left_(size) {}
  uint8_t Next() { return left_ == 0 ? uint8_t{0} : (--left_, *at_++); }
  int64_t Below(int64_t bound) { return Next() % bound; }
  bool Flag() { return (Next() & 1) != 0; }
  int64_t Any() {  // mostly small, at times anything
    const uint8_t kind = Next();
    if (kind < 240) return kind % 24 - 4;
    uint64_t value = 0;
    for (int n = 0; n < 8; ++n) value = value << 8 | Next();
    return static_cast<int64_t>(value);
  }
  float Float() {
    static constexpr float kFloats[] = {0,        1,         -1, 0.5f, 100, -100, 1e-40f, 3e38f, -3.4028235e38f,
                                        INFINITY, -INFINITY, NAN};
    const uint8_t kind = Next();
    return kind < std::size(kFloats) ? kFloats[kind] : (static_cast<float>(kind) - 128) / 32;
  }

 private:
  const uint8_t* at_;
  size_t left_;
};

constexpr int64_t kMostBytes = 1 << 20;

// Memory for what a descriptor reaches, from its lowest to past its highest byte; nothing where that is too
// much.
class Buffer {
 public:
  Buffer(Bytes& bytes, ConstTensor& tensor, bool give_data) {
    __int128 low = 0, high = 1;
    for (int axis = 0; axis < std::clamp(tensor.rank(), 0, kMaxRank); ++axis) {
      if (tensor.size(axis) <= 0) return;
      const __int128 reach =
          static_cast<__int128>(tensor.stride[static_cast<size_t>(axis)]) * (tensor.size(axis) - 1);
      (reach < 0 ? low : high) += reach;
    }
    const __int128 size = static_cast<__int128>(SizeOf(tensor.dtype));
    if (!give_data || (high - low) * size > kMostBytes) return;
    bytes_ = std::vector<uint8_t>(static_cast<size_t>((high - low) * size));
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<uint8_t>(i * 37 + seed_);
    if (tensor.dtype == DType::kBool) {
      for (uint8_t& byte : bytes_) byte &= 1;
    } else if (tensor.dtype == DType::kF32 && bytes_.size() >= 4) {
      for (size_t i = 0; i + 4 <= bytes_.size(); i += 4) {
        const float value = i % 52 == 0 ? bytes.Float() : static_cast<float>(i % 29) / 16 - 0.8f;
        std::memcpy(&bytes_[i], &value, 4);
      }
    }
    tensor.data = bytes_.data() + static_cast<int64_t>(-low * size);
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }
  bool given() const { return !bytes_.empty(); }

 private:
  std::vector<uint8_t> bytes_;
  uint8_t seed_ = 11;
};

DType TypeOf(Bytes& bytes) {
  static constexpr DType kTypes[] = {DType::kF32, DType::kF32, DType::kBF16, DType::kF16,
                                     DType::kF64, DType::kI32, DType::kBool};
  return kTypes[bytes.Below(std::size(kTypes))];
}

void Spoil(Bytes& bytes, ConstTensor& tensor) {
  if (bytes.Next() < 225) return;
  switch (bytes.Below(5)) {
    case 0: tensor.shape.size[static_cast<size_t>(bytes.Below(4))] = bytes.Any(); return;
    case 1: tensor.stride[static_cast<size_t>(bytes.Below(4))] = bytes.Any(); return;
    case 2: tensor.shape.rank = static_cast<int>(bytes.Below(7)) - 1; return;
    case 3: tensor.dtype = TypeOf(bytes); return;
    default: tensor.stride = {bytes.Any(), bytes.Any(), bytes.Any(), bytes.Any()};
  }
}

// Contiguous, its axes in any order or backwards, with gaps, or with strides of zero.
ConstTensor Descriptor(Bytes& bytes, DType dtype, Shape shape) {
  ConstTensor tensor(nullptr, dtype, shape);
  const uint8_t kind = bytes.Next();
  if (kind % 4 == 1 && shape.rank >= 2)
    std::swap(tensor.stride[0], tensor.stride[static_cast<size_t>(shape.rank - 1)]);
  if (kind % 4 == 2)
    for (int64_t& stride : tensor.stride) stride = -stride;
  if (kind % 4 == 3)
    for (int64_t& stride : tensor.stride) stride *= 2;
  if (kind > 230) tensor.stride[static_cast<size_t>(bytes.Below(4))] = 0;
  Spoil(bytes, tensor);
  return tensor;
}

std::vector<int64_t> Numbers(Bytes& bytes, int64_t count, int64_t most) {
  std::vector<int64_t> numbers(static_cast<size_t>(std::max<int64_t>(0, count + (bytes.Next() > 250))));
  for (int64_t& number : numbers) number = bytes.Next() > 245 ? bytes.Any() : bytes.Below(most + 1);
  return numbers;
}

std::vector<int64_t> Offsets(Bytes& bytes, int64_t batch, int64_t total) {
  std::vector<int64_t> offsets = Numbers(bytes, batch - 1, total);
  std::sort(offsets.begin(), offsets.end());
  offsets.insert(offsets.begin(), 0);
  offsets.push_back(bytes.Next() > 250 ? bytes.Any() : total);
  return offsets;
}

struct Call {
  ConstTensor q, k, v, out, lse;
  AttentionOptions options;
  CaptureRequest request;
  std::vector<std::unique_ptr<Buffer>> buffers;
  bool runnable = true;  // all that is not empty has memory

  void Give(Bytes& bytes, ConstTensor& tensor) {
    buffers.push_back(std::make_unique<Buffer>(bytes, tensor, bytes.Next() < 250));
  }
};

Shape Broadcasting(Bytes& bytes, const int64_t (&full)[4]) {
  Shape shape;
  shape.rank = static_cast<int>(bytes.Below(5));
  for (int axis = 0; axis < shape.rank; ++axis) {
    shape.size[static_cast<size_t>(axis)] = bytes.Flag() ? 1 : full[4 - shape.rank + axis];
  }
  return shape;
}

void MakeRules(Bytes& bytes, Call& call, int64_t batch, int64_t heads, int64_t tq, int64_t tk, DType type) {
  AttentionOptions& o = call.options;
  o.causal = static_cast<Causal>(bytes.Below(bytes.Next() > 250 ? 9 : 3));
  if (bytes.Flag()) o.window.left = bytes.Any();
  if (bytes.Flag()) o.window.right = bytes.Any();
  if (bytes.Flag()) o.scale = bytes.Float();
  if (bytes.Flag()) o.softcap = bytes.Float();
  const int64_t full[4] = {batch, heads, tq, tk};
  const auto add = [&](std::optional<ConstTensor>& to, DType dtype, Shape shape) {
    to = Descriptor(bytes, dtype, shape);
    call.Give(bytes, *to);
  };
  const uint8_t which = bytes.Next();
  if (which & 1) add(o.mask, DType::kBool, Broadcasting(bytes, full));
  if (which & 2) add(o.bias, bytes.Flag() ? DType::kF32 : type, Broadcasting(bytes, full));
  if (which & 4) add(o.alibi_slopes, DType::kF32, bytes.Flag() ? Shape{heads} : Shape{batch, heads});
  if (which & 8) add(o.sink, DType::kF32, Shape{heads});
  if (which & 16) o.q_lengths = Numbers(bytes, batch, tq);
  if (which & 32) o.kv_lengths = Numbers(bytes, batch, tk);
  if (which & 64) o.offset = bytes.Flag() ? std::vector<int64_t>{bytes.Any()} : Numbers(bytes, batch, 50);
  if (which & 128) o.dropout_p = std::abs(bytes.Float()), o.seed = bytes.Next();
}

void MakeRequest(Bytes& bytes, CaptureRequest& request) {
  const uint8_t which = bytes.Next();
  if (which & 1) request.top_k = bytes.Next() > 250 ? bytes.Any() : bytes.Below(6);
  request.entropy = (which & 2) != 0, request.received = (which & 4) != 0;
  if (which & 8) request.rows = Numbers(bytes, bytes.Below(3), 3);
  request.row_kind = static_cast<RowKind>(bytes.Below(bytes.Next() > 250 ? 9 : 4));
}

std::unique_ptr<Call> MakeCall(Bytes& bytes) {
  auto call = std::make_unique<Call>();
  const bool packed = bytes.Next() % 4 == 0;
  const int64_t batch = bytes.Below(4), kv_heads = bytes.Below(3), heads = kv_heads * (1 + bytes.Below(3));
  const int64_t tq = bytes.Below(20), tk = bytes.Next() > 200 ? 256 + bytes.Below(20) : bytes.Below(40);
  const int64_t d = 1 + bytes.Below(20), dv = 1 + bytes.Below(20);
  const DType type = TypeOf(bytes), kv_type = bytes.Next() > 230 ? TypeOf(bytes) : type;
  const auto shape = [&](int64_t h, int64_t rows, int64_t channels) {
    return packed ? Shape{rows, h, channels} : Shape{batch, h, rows, channels};
  };
  call->q = Descriptor(bytes, type, shape(heads, tq, d));
  call->k = Descriptor(bytes, kv_type, shape(kv_heads, tk, d));
  call->v = Descriptor(bytes, kv_type, shape(kv_heads, tk, dv));
  call->out = Descriptor(bytes, type, shape(heads, tq, dv));
  call->lse = Descriptor(bytes, DType::kF32, packed ? Shape{heads, tq} : Shape{batch, heads, tq});
  for (ConstTensor* tensor : {&call->q, &call->k, &call->v, &call->out, &call->lse}) call->Give(bytes, *tensor);
  MakeRules(bytes, *call, batch, heads, tq, tk, type);
  if (packed) call->options.cu_q = Offsets(bytes, batch, tq), call->options.cu_kv = Offsets(bytes, batch, tk);
  MakeRequest(bytes, call->request);
  return call;
}

// Sizes that valid strides of zero make large are right, but take long.
bool IsSmall(const ConstTensor& tensor) {
  if (tensor.rank() < 0 || tensor.rank() > kMaxRank) return true;  // refused anyway
  __int128 elements = 1;
  for (int axis = 0; axis < tensor.rank(); ++axis)
    elements *= std::clamp<int64_t>(tensor.size(axis), 0, 1 << 22);
  return elements < 1 << 16;
}

Tensor Writable(const ConstTensor& tensor) {
  return {const_cast<void*>(tensor.data), tensor.dtype, tensor.shape, tensor.stride};
}

// Memory of just a tensor's size, contiguous.
class Owned {
 public:
  explicit Owned(const ConstTensor& like)
      : bytes_(static_cast<size_t>(like.shape.elements()) * SizeOf(like.dtype)),
        tensor_(bytes_.data(), like.dtype, like.shape) {}
  const Tensor& tensor() const { return tensor_; }

 private:
  std::vector<uint8_t> bytes_;
  Tensor tensor_;
};

// What the forward call has taken, the backward call takes too.
void Differentiate(const Call& call) {
  const Owned dq(call.q), dk(call.k), dv(call.v);
  AttentionGradients gradients{dq.tensor(), dk.tensor(), dv.tensor(), {}, {}};
  std::optional<Owned> dbias, dsink;
  if (call.options.bias && IsSmall(*call.options.bias)) gradients.dbias = dbias.emplace(*call.options.bias).tensor();
  if (call.options.sink) gradients.dsink = dsink.emplace(*call.options.sink).tensor();
  AttentionBackward(call.out, call.q, call.k, call.v, call.out, call.lse, call.options, gradients);
}

}  // namespace
}  // namespace qkv::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace qkv;
  using namespace qkv::test;
  SetThreads(1);
  Bytes input(bytes, size);
  const std::unique_ptr<Call> call = MakeCall(input);
  for (const ConstTensor* tensor : {&call->q, &call->k, &call->v, &call->out}) {
    if (!IsSmall(*tensor)) return 0;
  }
  const std::vector<uint8_t> out_before = call->buffers[3]->bytes(), lse_before = call->buffers[4]->bytes();
  const bool with_lse = input.Flag(), with_capture = input.Flag();
  const Tensor out = Writable(call->out), lse = Writable(call->lse);
  bool differentiable = false;
  try {
    if (with_capture) {
      AttentionWithCapture(call->q, call->k, call->v, call->options, call->request, out,
                           with_lse ? &lse : nullptr);
    } else {
      Attention(call->q, call->k, call->v, call->options, out, with_lse ? &lse : nullptr);
      differentiable = with_lse;
    }
  } catch (const Error& error) {
    Check(error.code() == ErrorCode::kInvalidArgument || error.code() == ErrorCode::kWrongType ||
              error.code() == ErrorCode::kOutOfMemory,
          "only errors of arguments and memory");
    Check(!error.where().empty() || error.code() == ErrorCode::kOutOfMemory, "an error names the argument");
    Check(call->buffers[3]->bytes() == out_before, "out is untouched by a refused call");
    Check(call->buffers[4]->bytes() == lse_before, "lse is untouched by a refused call");
  }
  if (differentiable) Differentiate(*call);
  return 0;
}
