// Counter-based random bits: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
// A function of key and counter alone, so any thread can ask for any of them in any order.
#pragma once

#include <array>
#include <cstdint>

namespace qkv {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

constexpr PhiloxCounter Philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

// Dropout of attention weights: whether weight (b, h, p, j) survives. Words: the counter is (j div 4, p, h, b),
// each modulo 2^32, the key is the seed's low and high half, and word j mod 4 is compared with the threshold.
// A weight is kept when its word is at least p * 2^32, rounded to the nearest whole number.
class DropoutBits {
 public:
  DropoutBits(uint64_t seed, float p) : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)} {
    const double threshold = static_cast<double>(p) * 4294967296.0 + 0.5;
    threshold_ = static_cast<uint64_t>(threshold);
  }

  PhiloxKey key() const { return key_; }
  uint32_t threshold() const { return static_cast<uint32_t>(threshold_); }  // p < 1, a float, keeps it below 2^32

  // Bit l: whether weight (b, h, p, 4 * j_quarter + l) is kept.
  unsigned KeptOfFour(int64_t b, int64_t h, int64_t p, int64_t j_quarter) const {
    const PhiloxCounter words = Philox4x32({static_cast<uint32_t>(j_quarter), static_cast<uint32_t>(p),
                                            static_cast<uint32_t>(h), static_cast<uint32_t>(b)}, key_);
    unsigned kept = 0;
    for (unsigned l = 0; l < 4; ++l) kept |= static_cast<unsigned>(words[l] >= threshold_) << l;
    return kept;
  }
  bool Kept(int64_t b, int64_t h, int64_t p, int64_t j) const {
    return (KeptOfFour(b, h, p, j >> 2) >> (j & 3)) & 1;
  }

 private:
  PhiloxKey key_;
  uint64_t threshold_;
};

}  // namespace qkv
