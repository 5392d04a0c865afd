// A multiply-add takes four or so cycles and two can begin in each, so it takes eight independent chains or
// more to keep the units busy; there are as many here as registers allow. Values stay ordinary numbers: zeros
// would save power, and subnormal ones are slow.
#include "bench/peak_loops.h"

#include "runtime/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

// Chains that are not unrolled in full would live in memory.
#if defined(__clang__)
#define QKV_UNROLL _Pragma("clang loop unroll(full)")
#else
#define QKV_UNROLL _Pragma("GCC unroll 32")
#endif

namespace qkv::bench {
namespace {

constexpr float kFactor = 1e-3f;

uint64_t ReadWords(const void* memory, int64_t bytes) {
  constexpr int kSums = 8;
  const auto* words = static_cast<const uint64_t*>(memory);
  uint64_t sum[kSums] = {};
  for (int64_t i = 0; i < bytes / 8; i += kSums) {
    QKV_UNROLL for (int s = 0; s < kSums; ++s) sum[s] += words[i + s];
  }
  return std::accumulate(sum, sum + kSums, uint64_t{0});
}

#if defined(__x86_64__)

// Keeps the compiler from dropping a result.
#define QKV_KEEP(vector) asm volatile("" : : "v"(vector))

__attribute__((target("avx512f"))) double Float32Avx512(int64_t steps) {
  constexpr int kChains = 20;
  const __m512 a = _mm512_set1_ps(kFactor);
  __m512 sum[kChains];
  QKV_UNROLL for (int i = 0; i < kChains; ++i) sum[i] = _mm512_set1_ps(static_cast<float>(i));
  for (int64_t step = 0; step < steps; ++step) {
    QKV_UNROLL for (int i = 0; i < kChains; ++i) sum[i] = _mm512_fmadd_ps(a, a, sum[i]);
  }
  QKV_UNROLL for (int i = 0; i < kChains; ++i) QKV_KEEP(sum[i]);
  return 2.0 * 16 * kChains * static_cast<double>(steps);
}

__attribute__((target("avx2,fma"))) double Float32Avx2(int64_t steps) {
  constexpr int kChains = 12;
  const __m256 a = _mm256_set1_ps(kFactor);
  __m256 sum[kChains];
  QKV_UNROLL for (int i = 0; i < kChains; ++i) sum[i] = _mm256_set1_ps(static_cast<float>(i));
  for (int64_t step = 0; step < steps; ++step) {
    QKV_UNROLL for (int i = 0; i < kChains; ++i) sum[i] = _mm256_fmadd_ps(a, a, sum[i]);
  }
  QKV_UNROLL for (int i = 0; i < kChains; ++i) QKV_KEEP(sum[i]);
  return 2.0 * 8 * kChains * static_cast<double>(steps);
}

// Without multiply-add: a multiplication and an addition on each chain.
double Float32Sse(int64_t steps) {
  constexpr int kChains = 12;
  const __m128 a = _mm_set1_ps(1 - kFactor), b = _mm_set1_ps(kFactor);
  __m128 sum[kChains];
  QKV_UNROLL for (int i = 0; i < kChains; ++i) sum[i] = _mm_set1_ps(static_cast<float>(i));
  for (int64_t step = 0; step < steps; ++step) {
    QKV_UNROLL for (int i = 0; i < kChains; ++i) sum[i] = _mm_add_ps(_mm_mul_ps(sum[i], a), b);
  }
  QKV_UNROLL for (int i = 0; i < kChains; ++i) QKV_KEEP(sum[i]);
  return 2.0 * 4 * kChains * static_cast<double>(steps);
}

__attribute__((target("avx512f,avx512bf16"))) double BFloat16Dot(int64_t steps) {
  constexpr int kChains = 20;
  const __m512bh a = (__m512bh)_mm512_set1_epi16(0x3a83);  // 1e-3
  __m512 sum[kChains];
  QKV_UNROLL for (int i = 0; i < kChains; ++i) sum[i] = _mm512_set1_ps(static_cast<float>(i));
  for (int64_t step = 0; step < steps; ++step) {
    QKV_UNROLL for (int i = 0; i < kChains; ++i) sum[i] = _mm512_dpbf16_ps(sum[i], a, a);
  }
  QKV_UNROLL for (int i = 0; i < kChains; ++i) QKV_KEEP(sum[i]);
  return 2.0 * 32 * kChains * static_cast<double>(steps);
}

__attribute__((target("avx512f"))) uint64_t ReadAvx512(const void* memory, int64_t bytes) {
  constexpr int kSums = 8;
  const auto* vectors = static_cast<const __m512i*>(memory);
  __m512i sum[kSums] = {};
  for (int64_t i = 0; i < bytes / 64; i += kSums) {
    QKV_UNROLL for (int s = 0; s < kSums; ++s) sum[s] =
        _mm512_add_epi64(sum[s], _mm512_load_si512(vectors + i + s));
  }
  for (int s = 1; s < kSums; ++s) sum[0] = _mm512_add_epi64(sum[0], sum[s]);
  alignas(64) uint64_t words[8];
  _mm512_store_si512(words, sum[0]);
  return std::accumulate(words, words + 8, uint64_t{0});
}

__attribute__((target("avx2"))) uint64_t ReadAvx2(const void* memory, int64_t bytes) {
  constexpr int kSums = 8;
  const auto* vectors = static_cast<const __m256i*>(memory);
  __m256i sum[kSums] = {};
  for (int64_t i = 0; i < bytes / 32; i += kSums) {
    QKV_UNROLL for (int s = 0; s < kSums; ++s) sum[s] =
        _mm256_add_epi64(sum[s], _mm256_load_si256(vectors + i + s));
  }
  for (int s = 1; s < kSums; ++s) sum[0] = _mm256_add_epi64(sum[0], sum[s]);
  alignas(32) uint64_t words[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), sum[0]);
  return std::accumulate(words, words + 4, uint64_t{0});
}

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};
};

// Between instructions on tiles, as the kernels have it (QKV_TILE_GAP of kernels/pair_products-inl.h).
inline void Gap() { asm volatile(".rept 8\n\tnop\n\t.endr"); }

// Six sums of 16 x 16, and two operands of 16 rows of 32 numbers.
__attribute__((target("amx-tile,amx-bf16"))) double BFloat16Tiles(int64_t steps) {
  TileConfig config;
  std::fill_n(config.bytes_per_row, 8, uint16_t{64});
  std::fill_n(config.rows, 8, uint8_t{16});
  _tile_loadconfig(&config);
  alignas(64) std::array<uint16_t, 16 * 32> operand;
  operand.fill(0x3a83);  // 1e-3
  asm volatile(""
               :
               : "r"(operand.data())
               : "memory");  // the load below does not tell the compiler what it reads
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_loadd(6, operand.data(), 64);
  _tile_loadd(7, operand.data(), 64);
  for (int64_t step = 0; step < steps; ++step) {
    _tile_dpbf16ps(0, 6, 7);
    Gap();
    _tile_dpbf16ps(1, 6, 7);
    Gap();
    _tile_dpbf16ps(2, 6, 7);
    Gap();
    _tile_dpbf16ps(3, 6, 7);
    Gap();
    _tile_dpbf16ps(4, 6, 7);
    Gap();
    _tile_dpbf16ps(5, 6, 7);
    Gap();
  }
  _tile_release();
  return 2.0 * 16 * 16 * 32 * 6 * static_cast<double>(steps);
}

bool Has(Isa isa) {
  const std::vector<Isa> supported = SupportedIsas();
  return std::find(supported.begin(), supported.end(), isa) != supported.end();
}

// The processor has tiles with bfloat16, and the kernel lets this process use them.
bool HasBFloat16Tiles() {
  constexpr unsigned kBFloat16Bit = 1u << 22, kTileBit = 1u << 24;  // of leaf 7
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kBFloat16Bit) == 0 || (edx & kTileBit) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl's ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

#elif defined(__aarch64__)

#define QKV_KEEP(vector) asm volatile("" : : "w"(vector))

double Float32Neon(int64_t steps) {
  constexpr int kChains = 24;
  const float32x4_t a = vdupq_n_f32(kFactor);
  float32x4_t sum[kChains];
  QKV_UNROLL for (int i = 0; i < kChains; ++i) sum[i] = vdupq_n_f32(static_cast<float>(i));
  for (int64_t step = 0; step < steps; ++step) {
    QKV_UNROLL for (int i = 0; i < kChains; ++i) sum[i] = vfmaq_f32(sum[i], a, a);
  }
  QKV_UNROLL for (int i = 0; i < kChains; ++i) QKV_KEEP(sum[i]);
  return 2.0 * 4 * kChains * static_cast<double>(steps);
}

#endif

}  // namespace

#if defined(__x86_64__)
MultiplyLoop Float32Loop() {
  return Has(Isa::kAvx512) ? &Float32Avx512 : Has(Isa::kAvx2) ? &Float32Avx2 : &Float32Sse;
}
MultiplyLoop BFloat16DotLoop() { return Has(Isa::kAvx512Bf16) ? &BFloat16Dot : nullptr; }
MultiplyLoop BFloat16TileLoop() { return HasBFloat16Tiles() ? &BFloat16Tiles : nullptr; }
ReadLoop WidestReadLoop() { return Has(Isa::kAvx512) ? &ReadAvx512 : Has(Isa::kAvx2) ? &ReadAvx2 : &ReadWords; }
#elif defined(__aarch64__)
MultiplyLoop Float32Loop() { return &Float32Neon; }
MultiplyLoop BFloat16DotLoop() { return nullptr; }
MultiplyLoop BFloat16TileLoop() { return nullptr; }
ReadLoop WidestReadLoop() { return &ReadWords; }
#endif

}  // namespace qkv::bench
