// Work on rows, cut into tasks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/threads.h"

namespace qkv {

// (rows, width), contiguous.
struct RowsShape {
  int64_t rows = 0, width = 0;
};

// Some rows and columns of one.
struct RowsPart {
  int64_t row = 0, rows = 0, column = 0, columns = 0;
};

// Elements that one task takes: some 10 us of arithmetic, several times what handing out a task costs.
inline constexpr int64_t kTaskElements = 16384;

// body(first, count) for consecutive runs of rows of `width` elements. The runs do not depend on the threads.
template <class Body>
void ForRows(int64_t rows, int64_t width, const Body& body) {
  const int64_t task_rows = std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, width));
  ParallelFor((rows + task_rows - 1) / task_rows, [&](int64_t task, int) {
    const int64_t first = task * task_rows;
    body(first, std::min(task_rows, rows - first));
  });
}

inline void FillZeros(float* to, int64_t count) {
  ForRows(count, 1, [&](int64_t first, int64_t some) { std::fill_n(to + first, some, 0.0f); });
}

}  // namespace qkv
