#include "layers/rows.h"

#include <algorithm>

#include "kernels/round.h"
#include "runtime/aligned.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

constexpr int64_t kTaskValues = 65536;  // some 10 us, several times what handing out a task costs

template <class To, class From>
void ConvertTo(const From* x, int64_t count, void (*convert)(const From*, int64_t, To*), To* to) {
  ParallelFor((count + kTaskValues - 1) / kTaskValues, [&](int64_t task, int) {
    const int64_t first = task * kTaskValues;
    convert(x + first, std::min(kTaskValues, count - first), to + first);
  });
}

template <class To, class From>
ConstRows ConvertAll(const From* x, int64_t count, void (*convert)(const From*, int64_t, To*)) {
  thread_local AlignedBuffer<To> converted;
  if (converted.size() < count) converted = AlignedBuffer<To>(count);
  ConvertTo(x, count, convert, converted.data());
  return converted.data();
}

}  // namespace

ConstRows Convert(ConstRows x, int64_t count, DType dtype) {
  if (x.dtype == dtype) return x;
  if (dtype == DType::kBF16) {
    return ConvertAll<BFloat16>(static_cast<const float*>(x.data), count, RoundToBFloat16);
  }
  return ConvertAll<float>(static_cast<const BFloat16*>(x.data), count, WidenToFloat);
}

void RoundRows(const float* x, int64_t count, BFloat16* to) { ConvertTo(x, count, RoundToBFloat16, to); }

}  // namespace qkv
