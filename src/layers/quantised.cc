#include "layers/quantised.h"

#include <algorithm>
#include <string>
#include <vector>

#include "qkv/error.h"
#include "runtime/aligned.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

// Of a matrix, what one task reads: enough that handing it out costs nothing, few enough that threads end
// together.
constexpr int64_t kLeastTaskBytes = 16 << 10;
constexpr int64_t kMostTaskBytes = 256 << 10;
constexpr int64_t kTasksPerThread = 8;

struct Task {
  const QuantisedMatrix* matrix;
  int64_t first_row, rows;
  int64_t column;  // of the output
};

int64_t RowsOf(std::span<const QuantisedMatrix> matrices) {
  int64_t rows = 0;
  for (const QuantisedMatrix& matrix : matrices) rows += matrix.rows;
  return rows;
}

std::vector<Task> Divide(std::span<const QuantisedMatrix> matrices) {
  int64_t bytes = 0, column = 0;
  for (const QuantisedMatrix& matrix : matrices) bytes += matrix.rows * matrix.row_bytes();
  const int64_t target = std::clamp(bytes / (kTasksPerThread * Threads()), kLeastTaskBytes, kMostTaskBytes);
  std::vector<Task> tasks;
  for (const QuantisedMatrix& matrix : matrices) {
    const int64_t step = std::max<int64_t>(4, target / std::max<int64_t>(1, matrix.row_bytes()) / 4 * 4);
    for (int64_t row = 0; row < matrix.rows; row += step) {
      tasks.push_back({&matrix, row, std::min(step, matrix.rows - row), column + row});
    }
    column += matrix.rows;
  }
  return tasks;
}

bool MultiplyBytes(std::span<const QuantisedMatrix> matrices) {
  return std::any_of(matrices.begin(), matrices.end(),
                     [](const QuantisedMatrix& matrix) { return MultipliesBytes(matrix.type); });
}

// The rows of x as the kernels take them.
class Vectors {
 public:
  Vectors(std::span<const QuantisedMatrix> matrices, const float* x, int64_t m)
      : cols_(matrices.front().cols),
        groups_(cols_ / kVectorGroup),
        split_bytes_(MultiplyBytes(matrices) ? SplitBytes(cols_) : 0),
        integers_(m * cols_),
        split_(m * split_bytes_),
        scales_(m * groups_) {
    for (int64_t i = 0; i < m; ++i) {
      QuantiseVector(x + i * cols_, cols_, integers_.data() + i * cols_, scales_.data() + i * groups_);
      if (split_bytes_ > 0) SplitVector(integers_.data() + i * cols_, cols_, split_.data() + i * split_bytes_);
    }
  }

  // Of vector i with some of a matrix's rows.
  void Multiply(const QuantisedMatrix& matrix, int64_t first_row, int64_t rows, int64_t i, float* out) const {
    const VectorScale* scales = scales_.data() + i * groups_;
    if (MultipliesBytes(matrix.type)) {
      return MultiplyQuantisedBytes(matrix, first_row, rows, split_.data() + i * split_bytes_, scales, out);
    }
    MultiplyQuantisedRows(matrix, first_row, rows, integers_.data() + i * cols_, scales, out);
  }

 private:
  int64_t cols_, groups_, split_bytes_;
  AlignedBuffer<int16_t> integers_;
  AlignedBuffer<int8_t> split_;  // empty where no matrix is multiplied by bytes
  AlignedBuffer<VectorScale> scales_;
};

}  // namespace

void MultiplyQuantised(std::span<const QuantisedMatrix> matrices, const float* x, int64_t m, float* out) {
  if (matrices.empty() || m == 0) return;
  const Vectors vectors(matrices, x, m);
  const int64_t columns = RowsOf(matrices);
  const std::vector<Task> tasks = Divide(matrices);
  ParallelFor(static_cast<int64_t>(tasks.size()), [&](int64_t index, int) {
    const Task& task = tasks[static_cast<size_t>(index)];
    for (int64_t i = 0; i < m; ++i) {
      vectors.Multiply(*task.matrix, task.first_row, task.rows, i, out + i * columns + task.column);
    }
  });
}

void MultiplyQuantised(const QuantisedMatrix& matrix, const float* x, int64_t m, float* out) {
  MultiplyQuantised(std::span(&matrix, 1), x, m, out);
}

void Dequantise(const QuantisedMatrix& matrix, int64_t first_row, int64_t rows, DType dtype, void* out) {
  if (dtype != DType::kF32 && dtype != DType::kBF16) {
    throw Error(ErrorCode::kWrongType, "wrong type to dequantise to", "dtype", "float32 or bfloat16",
                NameOf(dtype));
  }
  if (first_row < 0 || rows < 0 || first_row > matrix.rows - rows) {
    throw Error(ErrorCode::kInvalidArgument, "rows outside the matrix", "rows",
                "0 to " + std::to_string(matrix.rows),
                std::to_string(rows) + " from " + std::to_string(first_row));
  }
  constexpr int64_t kStep = 64;  // rows of a task: lookups of a few tokens stay on the calling thread
  ParallelFor((rows + kStep - 1) / kStep, [&](int64_t task, int) {
    const int64_t row = task * kStep;
    auto* to = static_cast<std::byte*>(out) + row * matrix.cols * static_cast<int64_t>(SizeOf(dtype));
    DequantiseRows(matrix, first_row + row, std::min(kStep, rows - row), dtype, to);
  });
}

}  // namespace qkv
