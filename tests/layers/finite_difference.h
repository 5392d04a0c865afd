// Gradients by central differences in double: what backward passes are held against.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

namespace qkv::test {

using Doubles = std::vector<double>;

// The gradient of f at x. The error is about 1e-10 times the third derivative.
inline Doubles NumericGradient(const std::function<double(const Doubles&)>& f, Doubles x) {
  constexpr double kStep = 1e-5;
  Doubles gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + kStep;
    const double above = f(x);
    x[i] = at - kStep;
    gradient[i] = (above - f(x)) / (2 * kStep);
    x[i] = at;
  }
  return gradient;
}

template <class T>
Doubles ToDoubles(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

inline double Dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Every element within `tolerance` times the largest of `expected`.
template <class T>
void ExpectNear(const std::vector<T>& got, const Doubles& expected, double tolerance, const char* what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  double largest = 1e-30;
  for (double value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(got[i]), expected[i], tolerance * largest) << what << " at " << i;
  }
}

}  // namespace qkv::test
