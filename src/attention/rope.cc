#include "qkv/rope.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "attention/memory_error.h"
#include "attention/validate.h"
#include "kernels/load.h"
#include "kernels/rope.h"
#include "runtime/aligned.h"
#include "runtime/cpu.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

constexpr int64_t kTaskElements = 16 << 10;  // 64 KiB of x: some microseconds, a parallel loop's own cost
constexpr int64_t kMaxPosition = int64_t{1} << 53;  // whole numbers up to here are exact in double

int64_t Stride(const ConstTensor& tensor, int axis) { return tensor.stride[static_cast<size_t>(axis)]; }

void CheckPosition(const char* argument, int64_t position) {
  if (position < -kMaxPosition || position > kMaxPosition) {
    FailArgument(argument, "out of range", "at most 2^53 either way", std::to_string(position));
  }
}

bool IsSame(const ConstTensor& a, const ConstTensor& b) { return a.data == b.data && a.stride == b.stride; }

void CheckVectors(const ConstTensor& x, const Tensor& out) {
  CheckTensor("x", x);
  if (x.rank() != 4) FailArgument("x", "wrong rank", "(B, H, T, D)", ToString(x.shape));
  if (x.dtype != DType::kF32 && x.dtype != DType::kBF16 && x.dtype != DType::kF16) {
    FailType("x", "float32, bfloat16 or float16", x.dtype);
  }
  CheckTensor("out", out);
  CheckShape("out", out, x.shape);
  if (out.dtype != x.dtype) FailType("out", std::string(NameOf(x.dtype)) + " as x", out.dtype);
  CheckWritable("out", out);
  if (!IsSame(out, x)) CheckApart("out", out, "x", x);
}

Rotation MakeRotation(const char* argument, int64_t pairs, RopePairing pairing, const ConstTensor& x,
                      const Tensor& out) {
  if (pairs > x.size(3) / 2) {
    FailArgument(argument, "more pairs than x has", "at most " + std::to_string(x.size(3) / 2),
                 std::to_string(pairs));
  }
  Rotation rotation;
  rotation.pairs = pairs;
  rotation.step = pairing == RopePairing::kHalf ? 1 : 2;
  rotation.partner = pairing == RopePairing::kHalf ? pairs : 1;
  rotation.width = x.size(3);
  rotation.dtype = x.dtype;
  rotation.x_channel = Stride(x, 3);
  rotation.out_channel = Stride(out, 3);
  return rotation;
}

// Where each token of a batch stands.
class Positions {
 public:
  Positions(const RopeOptions& options, const ConstTensor& x, const Tensor& out) : offsets_{0} {
    const int64_t batch = x.size(0), length = x.size(2);
    if (options.positions) {
      if (options.offset) FailArgument("offset", "given with positions", "one of the two", "both");
      CheckTensor("positions", *options.positions);
      CheckDType("positions", *options.positions, DType::kI64);
      CheckApart("out", out, "positions", *options.positions);
      table_ = BroadcastTo("positions", *options.positions, {batch, length});
    } else if (options.offset) {
      offsets_ = *options.offset;
      if (offsets_.size() != 1 && static_cast<int64_t>(offsets_.size()) != batch) {
        FailArgument("offset", "wrong number of offsets", "1 or " + std::to_string(batch),
                     std::to_string(offsets_.size()));
      }
      for (int64_t offset : offsets_) CheckPosition("offset", offset);
    }
  }

  int64_t at(int64_t b, int64_t t) const {
    if (table_) return static_cast<const int64_t*>(table_->data)[b * table_->stride[0] + t * table_->stride[1]];
    return t + offsets_[offsets_.size() == 1 ? 0 : static_cast<size_t>(b)];
  }
  const char* argument() const { return table_ ? "positions" : "offset"; }
  bool SameForAllSequences() const { return table_ ? table_->stride[0] == 0 : offsets_.size() == 1; }

 private:
  std::optional<ConstTensor> table_;
  std::vector<int64_t> offsets_;
};

// A table of cos or sin, and one row of it as contiguous float32.
class AngleRows {
 public:
  explicit AngleRows(const ConstTensor& table) : table_(table), channel_(Stride(table, table.rank() - 1)) {}

  const float* Row(int64_t offset, int64_t pairs, float* buffer) const {
    if (table_.dtype == DType::kF32 && channel_ == 1) return static_cast<const float*>(table_.data) + offset;
    for (int64_t i = 0; i < pairs; ++i) buffer[i] = LoadFloat(table_.data, table_.dtype, offset + i * channel_);
    return buffer;
  }

 private:
  ConstTensor table_;
  int64_t channel_;
};

struct RowOffsets {
  int64_t cos = 0, sin = 0;  // where a token's rows begin, in elements
};

// row_of(b, t) gives the token's RowOffsets.
template <class RowOf>
void RotateAll(const Rotation& rotation, const ConstTensor& x, const ConstTensor& cos, const ConstTensor& sin,
               const Tensor& out, const RowOf& row_of) {
  const int64_t batch = x.size(0), heads = x.size(1), length = x.size(2);
  if (x.shape.elements() == 0) return;
  const int64_t tokens = std::clamp<int64_t>(kTaskElements / (heads * rotation.width), 1, length);
  const int64_t chunks = (length + tokens - 1) / tokens;
  std::vector<AlignedBuffer<float>> buffers;
  for (int thread = 0; thread < Threads(); ++thread) buffers.emplace_back(rotation.width + 2 * rotation.pairs);
  const RotateKernel rotate = RotateKernelFor(ChosenIsa());
  const AngleRows cos_rows(cos), sin_rows(sin);
  const int64_t size = static_cast<int64_t>(SizeOf(x.dtype));
  const auto* from = static_cast<const std::byte*>(x.data);
  auto* to = static_cast<std::byte*>(out.mutable_data());
  ParallelFor(batch * chunks, [&](int64_t task, int thread) {
    const int64_t b = task / chunks, first = task % chunks * tokens;
    float* buffer = buffers[static_cast<size_t>(thread)].data();
    for (int64_t t = first; t < std::min(first + tokens, length); ++t) {
      const RowOffsets offsets = row_of(b, t);
      const float* c = cos_rows.Row(offsets.cos, rotation.pairs, buffer + rotation.width);
      const float* s = sin_rows.Row(offsets.sin, rotation.pairs, buffer + rotation.width + rotation.pairs);
      for (int64_t h = 0; h < heads; ++h) {
        rotate(rotation, from + (b * x.stride[0] + h * x.stride[1] + t * x.stride[2]) * size, c, s,
               to + (b * out.stride[0] + h * out.stride[1] + t * out.stride[2]) * size, buffer);
      }
    }
  });
}

void CheckTable(const char* argument, const ConstTensor& table, const ConstTensor& x, const Tensor& out) {
  CheckTensor(argument, table);
  if (table.rank() != 2 && table.rank() != 3) {
    FailArgument(argument, "wrong rank", "(rows, R/2) or (B, T, R/2)", ToString(table.shape));
  }
  if (table.dtype != DType::kF32 && table.dtype != x.dtype)
    FailType(argument, "float32 or x's type", table.dtype);
  if (table.rank() == 3) CheckShape(argument, table, {x.size(0), x.size(2), table.size(2)});
  CheckApart("out", out, argument, table);
}

void RotateByPosition(const Rotation& rotation, const ConstTensor& x, const ConstTensor& cos,
                      const ConstTensor& sin, const RopeOptions& options, const Tensor& out) {
  const Positions positions(options, x, out);
  for (int64_t b = 0; b < x.size(0); ++b) {
    for (int64_t t = 0; t < x.size(2); ++t) {
      const int64_t position = positions.at(b, t);
      if (position < 0 || position >= cos.size(0)) {
        FailArgument(positions.argument(), "position outside the table",
                     "0 to " + std::to_string(cos.size(0) - 1), std::to_string(position));
      }
    }
  }
  RotateAll(rotation, x, cos, sin, out, [&](int64_t b, int64_t t) {
    const int64_t row = positions.at(b, t);
    return RowOffsets{row * cos.stride[0], row * sin.stride[0]};
  });
}

void RotateByToken(const Rotation& rotation, const ConstTensor& x, const ConstTensor& cos,
                   const ConstTensor& sin, const Tensor& out) {
  RotateAll(rotation, x, cos, sin, out, [&](int64_t b, int64_t t) {
    return RowOffsets{b * cos.stride[0] + t * cos.stride[1], b * sin.stride[0] + t * sin.stride[1]};
  });
}

}  // namespace

RopeTable MakeRopeTable(const RopeFrequencies& frequencies, std::span<const int64_t> positions) {
  return WithTypedMemoryError("rope", [&] {
    for (double frequency : frequencies.frequencies) {
      if (!std::isfinite(frequency)) {
        FailArgument("frequencies", "not finite", "finite numbers", std::to_string(frequency));
      }
    }
    if (!std::isfinite(frequencies.amplitude)) {
      FailArgument("frequencies.amplitude", "not finite", "a finite number",
                   std::to_string(frequencies.amplitude));
    }
    for (int64_t position : positions) CheckPosition("positions", position);
    const size_t pairs = frequencies.frequencies.size(), rows = positions.size();
    RopeTable table;
    table.shape = {static_cast<int64_t>(rows), static_cast<int64_t>(pairs)};
    table.cos.resize(static_cast<size_t>(table.shape.elements()));
    table.sin.resize(table.cos.size());
    ParallelFor(static_cast<int64_t>(rows), [&](int64_t row, int) {
      const double position = static_cast<double>(positions[static_cast<size_t>(row)]);
      for (size_t i = 0, at = static_cast<size_t>(row) * pairs; i < pairs; ++i, ++at) {
        const double angle = position * frequencies.frequencies[i];
        table.cos[at] = static_cast<float>(frequencies.amplitude * std::cos(angle));
        table.sin[at] = static_cast<float>(frequencies.amplitude * std::sin(angle));
      }
    });
    return table;
  });
}

void RotaryEmbed(const ConstTensor& x, const RopeFrequencies& frequencies, const RopeOptions& options,
                 const Tensor& out) {
  WithTypedMemoryError("rope", [&] {
    CheckVectors(x, out);
    const Rotation rotation = MakeRotation("frequencies", static_cast<int64_t>(frequencies.frequencies.size()),
                                           options.pairing, x, out);
    const Positions positions(options, x, out);
    const int64_t length = x.size(2),
                  batch = positions.SameForAllSequences() ? std::min<int64_t>(x.size(0), 1) : x.size(0);
    std::vector<int64_t> stands;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t t = 0; t < length; ++t) stands.push_back(positions.at(b, t));
    }
    const RopeTable table = MakeRopeTable(frequencies, stands);
    const Shape shape{x.size(0), length, rotation.pairs};
    const std::array<int64_t, kMaxRank> stride{batch == x.size(0) ? length * rotation.pairs : 0, rotation.pairs,
                                               1};
    RotateByToken(rotation, x, ConstTensor(table.cos.data(), DType::kF32, shape, stride),
                  ConstTensor(table.sin.data(), DType::kF32, shape, stride), out);
  });
}

void RotaryEmbed(const ConstTensor& x, const ConstTensor& cos, const ConstTensor& sin,
                 const RopeOptions& options, const Tensor& out) {
  WithTypedMemoryError("rope", [&] {
    CheckVectors(x, out);
    CheckTable("cos", cos, x, out);
    CheckTable("sin", sin, x, out);
    CheckShape("sin", sin, cos.shape);
    const Rotation rotation = MakeRotation("cos", cos.size(cos.rank() - 1), options.pairing, x, out);
    if (cos.rank() == 2) return RotateByPosition(rotation, x, cos, sin, options, out);
    if (options.positions || options.offset) {
      FailArgument(options.positions ? "positions" : "offset", "given with a row for each token",
                   "a table (rows, R/2)", ToString(cos.shape));
    }
    RotateByToken(rotation, x, cos, sin, out);
  });
}

}  // namespace qkv
