// Random numbers of the tests: splitmix64, the same on every machine.
#pragma once

#include <cstdint>

namespace qkv::test {

class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}

  uint64_t Bits() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  int64_t Below(int64_t bound) { return static_cast<int64_t>(Bits() % static_cast<uint64_t>(bound)); }
  int64_t Between(int64_t first, int64_t last) { return first + Below(last - first + 1); }
  double Uniform() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }  // [0, 1)
  double Symmetric() { return 2 * Uniform() - 1; }
  bool Chance(double p) { return Uniform() < p; }

 private:
  uint64_t state_;
};

}  // namespace qkv::test
