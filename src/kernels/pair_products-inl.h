// Products of bfloat16 pairs: c (rows x 32) = or += a (rows x depth) * b (depth x 32), b in pair tiles. Every
// element is one chain in ascending depth, whatever the rows beside it.

#if defined(QKV_KERNELS_PAIR_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_PAIR_PRODUCTS_INL_H_
#undef QKV_KERNELS_PAIR_PRODUCTS_INL_H_
#else
#define QKV_KERNELS_PAIR_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/multiply-inl.h"
#include "kernels/pairs.h"
#include "kernels/project_pairs.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace qkv {
namespace HWY_NAMESPACE {

struct PairProduct {
  const BFloat16* a;  // element (r, k) at a[r * a_stride + k]
  int64_t a_stride;
  const BFloat16* b[2];  // the tiles of columns 0-15 and 16-31; the next step's follow each
  float* c;              // row r at c + r * c_stride
  int64_t c_stride;
  int64_t rows, steps;  // rows <= kPairGroupRows
  Start start;          // kAdd: c is where the chains begin
  int64_t a_part = 0;   // of triples (triple_products-inl.h): elements from a row's part to the next
};

HWY_INLINE __mmask16 FirstOf16(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffff : (1 << count) - 1);
}

// Those of 16 elements that `some` has, rounded.
HWY_INLINE void StoreRounded(__m512 values, BFloat16* to, __mmask16 some) {
  const __m256bh rounded = _mm512_cvtneps_pbh(values);
  __m256i bits;
  std::memcpy(&bits, &rounded, sizeof(bits));
  _mm256_mask_storeu_epi16(to, some, bits);
}

// Rows times a piece of a panel of 64 columns (kernels/project_pairs.h).
struct PanelProduct {
  const BFloat16* a;  // element (r, k) at a[r * a_stride + k]
  int64_t a_stride;
  const BFloat16* b;    // (16 pairs, 64 columns, 2) for every step
  float* c;             // (rows, 64)
  int64_t rows, steps;  // rows <= kPanelRows of the class that multiplies
  Start start;          // kAdd: c is where the chains begin
};

// Lines of memory that will be read soon, to be asked for while others are multiplied. They stand in four
// streams, pages apart: the processor itself fetches ahead within each page (two cores read 49 GB/s with four
// streams, 38 with one). Asking past the end of memory does no harm.
class Ahead {
 public:
  Ahead(const void* from, int64_t bytes) : next_(static_cast<const char*>(from)), stream_(bytes / kStreams) {}

  // One quarter after the other asks for kLines lines each; four of them are kLines lines of each stream.
  template <int kLines>
  HWY_INLINE void Ask(int quarter) const {
    QKV_UNROLL for (int i = quarter * kLines; i < (quarter + 1) * kLines; ++i) {
      __builtin_prefetch(next_ + i % kStreams * stream_ + i / kStreams * kLine, /*rw=*/0, /*locality=*/2);
    }
  }
  template <int kLines>
  HWY_INLINE void AskAll() {
    QKV_UNROLL for (int quarter = 0; quarter < 4; ++quarter) Ask<kLines>(quarter);
    Advance(kLines);
  }
  HWY_INLINE void Advance(int64_t lines) { next_ += lines * kLine; }

 private:
  static constexpr int kStreams = 4;
  static constexpr int64_t kLine = 64;  // bytes
  const char* next_;
  int64_t stream_;  // bytes from one to the next
};

// After each instruction on tiles. In phases of a shared processor that last from milliseconds to minutes, one that
// follows another within seven instructions takes 36 cycles instead of 21 (docs/performance.md). At other times products take
// 16 whatever stands between them.
#define QKV_TILE_GAP "\n\t.rept 8\n\tnop\n\t.endr"

// AMX. Registers 0-3 hold c, 4 and 5 rows of a, 6 and 7 the columns of b. The instructions stand here as
// assembly: compilers know them only where the whole function may use AMX.
class TileProducts {
 public:
  static constexpr int64_t kParts = 1;  // of a number

  TileProducts() { Configure(kPanelRows); }
  ~TileProducts() { asm volatile("tilerelease" : : : "memory"); }
  TileProducts(const TileProducts&) = delete;
  TileProducts& operator=(const TileProducts&) = delete;

  HWY_INLINE void Run(const PairProduct& p) const {
    Begin(p);
    for (int64_t step = 0; step < p.steps; ++step) Multiply<Use::kOften>(p, step);
    End(p);
  }

  // The same where b comes from the second-level cache, and is to leave a in the first. Calls between() after each
  // step: work that goes on while the tiles multiply.
  template <class Between>
  HWY_INLINE void RunBeside(const PairProduct& p, const Between& between) const {
    Begin(p);
    for (int64_t step = 0; step < p.steps; ++step) {
      Multiply<Use::kOnce>(p, step);
      between();
    }
    End(p);
  }

  static constexpr bool kReadsInPlace = true;  // keys, and values of few rows (pair_values-inl.h)

  // Products of up to 16 rows, four or two tiles at a time, so that as many chains are under way.
  // c (16 kTiles keys, 16 rows) = keys, read where they lie, times rows in pair tiles. Asks for the keys at
  // `ahead`, a line with every line that is read.
  template <int kTiles>
  HWY_INLINE void MultiplyKeys(const BFloat16* keys, const BFloat16* ahead, int64_t key_stride,
                               const BFloat16* rows, int64_t steps, float* c) {
    ForTiles<kTiles>([&](auto n) { Zero<n()>(); });
    for (int64_t step = 0; step < steps; ++step, keys += kPairDepth, ahead += kPairDepth) {
      Load<6>(rows + step * kPairTile, 64);
      ForTiles<kTiles>([&](auto n) {
        Load<4 + n() % 2>(keys + 16 * n() * key_stride, key_stride * 2);
        Dot<n(), 4 + n() % 2, 6>();
        QKV_UNROLL for (int i = 0; i < 16; ++i) __builtin_prefetch(ahead + (16 * n() + i) * key_stride);
      });
    }
    ForTiles<kTiles>([&](auto n) { Store<n()>(c + n() * 16 * 16, 64); });
  }

  static constexpr int64_t kPanelRows = 16;  // as many as a register has

  // Asks for kLines lines of each stream with every 16 columns of a step.
  template <int kLines>
  void MultiplyPanel(const PanelProduct& p, Ahead ahead) {
    if (p.rows != rows_) Configure(p.rows);
    constexpr int64_t kColumnBytes = kPairPanelColumns * 4;
    ForTiles<4>([&](auto n) {
      if (p.start == Start::kZero)
        Zero<n()>();
      else
        Load<n()>(p.c + n() * kPairColumns, kColumnBytes);
    });
    const BFloat16 *a = p.a, *b = p.b;
    for (int64_t step = 0; step < p.steps; ++step, a += kPairDepth, b += kPairDepth * kPairPanelColumns) {
      Load<4>(a, p.a_stride * 2);
      ForTiles<4>([&](auto n) {
        Load<5 + n() % 3>(b + n() * 2 * kPairColumns, kColumnBytes);
        Dot<n(), 4, 5 + n() % 3>();
        ahead.AskAll<kLines>();
      });
    }
    ForTiles<4>([&](auto n) { Store<n()>(p.c + n() * kPairColumns, kColumnBytes); });
  }

  // c (rows, 16 kTiles channels) += weights times values in pair tiles, `group` elements from 16 channels to
  // the next.
  template <int kTiles>
  HWY_INLINE void AddValues(const BFloat16* weights, int64_t stride, const BFloat16* values, int64_t group,
                            int64_t steps, float* c, int64_t c_stride) {
    ForTiles<kTiles>([&](auto n) { Load<n()>(c + n() * 16, c_stride * 4); });
    for (int64_t step = 0; step < steps; ++step) {
      Load<4>(weights + step * kPairDepth, stride * 2);
      ForTiles<kTiles>([&](auto n) {
        Load<5 + n() % 3>(values + n() * group + step * kPairTile, 64);
        Dot<n(), 4, 5 + n() % 3>();
      });
    }
    ForTiles<kTiles>([&](auto n) { Store<n()>(c + n() * 16, c_stride * 4); });
  }

 protected:
  // Registers 5 to 7 have 16 rows, the others so many.
  void Configure(int64_t rows) {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } shapes;
    std::fill_n(shapes.rows, 5, static_cast<uint8_t>(rows));
    asm volatile("ldtilecfg %0" : : "m"(shapes));
    rows_ = rows;
  }

  template <int kRegister>
  static HWY_INLINE void Load(const void* from, int64_t row_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" QKV_TILE_GAP : : "r"(from), "r"(row_bytes), "i"(kRegister) : "memory");
  }
  template <int kRegister>
  static HWY_INLINE void Store(void* to, int64_t row_bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" QKV_TILE_GAP : : "r"(to), "r"(row_bytes), "i"(kRegister) : "memory");
  }

  template <int kC, int kA, int kB>
  static HWY_INLINE void Dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" QKV_TILE_GAP : : "i"(kC), "i"(kA), "i"(kB));
  }
  template <int kRegister>
  static HWY_INLINE void Zero() {
    asm volatile("tilezero %%tmm%c0" QKV_TILE_GAP : : "i"(kRegister));
  }
  template <int kTiles, class Body>
  static HWY_INLINE void ForTiles(const Body& body) {
    body(std::integral_constant<int, 0>());
    body(std::integral_constant<int, 1>());
    if constexpr (kTiles == 4) {
      body(std::integral_constant<int, 2>());
      body(std::integral_constant<int, 3>());
    }
  }

  static HWY_INLINE void Begin(const PairProduct& p) {
    if (p.start == Start::kZero) {
      ForTiles<4>([](auto n) { Zero<n()>(); });
      return;
    }
    const int64_t bytes = p.c_stride * 4;
    Load<0>(p.c, bytes);
    Load<1>(p.c + 16, bytes);
    if (p.rows <= 16) return;
    Load<2>(p.c + 16 * p.c_stride, bytes);
    Load<3>(p.c + 16 * p.c_stride + 16, bytes);
  }

  enum class Use { kOften, kOnce };
  template <Use kUse, int kRegister>
  static HWY_INLINE void LoadColumns(const BFloat16* from) {
    constexpr int64_t kBytes = 2 * kPairColumns * 2;
    if constexpr (kUse == Use::kOften) return Load<kRegister>(from, kBytes);
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" QKV_TILE_GAP : : "r"(from), "r"(kBytes), "i"(kRegister) : "memory");
  }

  template <Use kUse>
  static HWY_INLINE void Multiply(const PairProduct& p, int64_t step) {
    const BFloat16* a = p.a + step * kPairDepth;
    const int64_t a_bytes = p.a_stride * 2;
    Load<4>(a, a_bytes);
    LoadColumns<kUse, 6>(p.b[0] + step * kPairTile);
    Dot<0, 4, 6>();
    LoadColumns<kUse, 7>(p.b[1] + step * kPairTile);
    Dot<1, 4, 7>();
    if (p.rows <= 16) return;
    Load<5>(a + 16 * p.a_stride, a_bytes);
    Dot<2, 5, 6>();
    Dot<3, 5, 7>();
  }

  static HWY_INLINE void End(const PairProduct& p) {
    const int64_t bytes = p.c_stride * 4;
    Store<0>(p.c, bytes);
    Store<1>(p.c + 16, bytes);
    if (p.rows <= 16) return;
    Store<2>(p.c + 16 * p.c_stride, bytes);
    Store<3>(p.c + 16 * p.c_stride + 16, bytes);
  }

  int64_t rows_ = 0;  // of registers 0 to 4
};

// AVX-512: vdpbf16ps, twelve rows at a time.
class DotProducts {
 public:
  static constexpr int64_t kParts = 1;
  static constexpr bool kReadsInPlace = false;  // an instruction wants channels of many keys side by side

  void Run(const PairProduct& p) const {
    int64_t r = 0;
    for (; r + 12 <= p.rows; r += 12) Rows<12>(p, r);
    for (; r + 4 <= p.rows; r += 4) Rows<4>(p, r);
    for (; r < p.rows; ++r) Rows<1>(p, r);
  }

  static constexpr int64_t kPanelRows = 6;  // 24 sums, 4 vectors of the panel and a broadcast fill 29 registers

  // Asks for kLines lines with every pair of inputs: as many as the tiles do.
  template <int kLines>
  void MultiplyPanel(const PanelProduct& p, const Ahead& ahead) const {
    constexpr void (*kPanels[])(const PanelProduct&, Ahead) = {PanelRows<1, kLines>, PanelRows<2, kLines>,
                                                               PanelRows<3, kLines>, PanelRows<4, kLines>,
                                                               PanelRows<5, kLines>, PanelRows<6, kLines>};
    kPanels[p.rows - 1](p, ahead);
  }

 private:
  template <int kRows, int kLines>
  static HWY_NOINLINE void PanelRows(const PanelProduct& p, Ahead ahead) {
    const BFloat16 *a = p.a, *b = p.b;
    float* c = p.c;
    __m512 sum[kRows][4];
    QKV_UNROLL for (int r = 0; r < kRows; ++r) {
      QKV_UNROLL for (int n = 0; n < 4; ++n) {
        sum[r][n] = p.start == Start::kZero ? _mm512_setzero_ps()
                                            : _mm512_loadu_ps(c + r * kPairPanelColumns + n * kPairColumns);
      }
    }
    for (int64_t k = 0; k < p.steps * kPairDepth; k += 8, ahead.Advance(kLines)) {
      QKV_UNROLL for (int pair = 0; pair < 4; ++pair, b += 2 * kPairPanelColumns) {
        ahead.Ask<kLines>(pair);
        AddPair<kRows>(a + k + 2 * pair, p.a_stride, b, sum);
      }
    }
    QKV_UNROLL for (int r = 0; r < kRows; ++r) {
      QKV_UNROLL for (int n = 0; n < 4; ++n) {
        _mm512_storeu_ps(c + r * kPairPanelColumns + n * kPairColumns, sum[r][n]);
      }
    }
  }
  template <int kRows>
  static HWY_INLINE void AddPair(const BFloat16* a, int64_t a_stride, const BFloat16* b,
                                 __m512 (&sum)[kRows][4]) {
    __m512 column[4];
    QKV_UNROLL for (int n = 0; n < 4; ++n) column[n] = _mm512_loadu_ps(b + n * 2 * kPairColumns);
    QKV_UNROLL for (int r = 0; r < kRows; ++r) {
      const __m512bh factor = Broadcast(a + r * a_stride);
      QKV_UNROLL for (int n = 0; n < 4; ++n) sum[r][n] = _mm512_dpbf16_ps(sum[r][n], factor, Pairs(column[n]));
    }
  }
  static HWY_INLINE __m512bh Broadcast(const BFloat16* from) {
    int32_t pair;
    std::memcpy(&pair, from, sizeof(pair));
    return Pairs(_mm512_castsi512_ps(_mm512_set1_epi32(pair)));
  }

  template <int kRows>
  static HWY_NOINLINE void Rows(const PairProduct& p, int64_t first) {
    const BFloat16* a = p.a + first * p.a_stride;
    float* c = p.c + first * p.c_stride;
    __m512 sum[kRows][2];
    QKV_UNROLL for (int r = 0; r < kRows; ++r) {
      QKV_UNROLL for (int n = 0; n < 2; ++n) {
        sum[r][n] =
            p.start == Start::kZero ? _mm512_setzero_ps() : _mm512_loadu_ps(c + r * p.c_stride + n * 16);
      }
    }
    for (int64_t k = 0; k < p.steps * kPairDepth; k += 2) {
      const __m512 column0 = _mm512_loadu_ps(p.b[0] + k * kPairColumns);
      const __m512 column1 = _mm512_loadu_ps(p.b[1] + k * kPairColumns);
      QKV_UNROLL for (int r = 0; r < kRows; ++r) {
        const __m512bh factor = Broadcast(a + r * p.a_stride + k);
        sum[r][0] = _mm512_dpbf16_ps(sum[r][0], factor, Pairs(column0));
        sum[r][1] = _mm512_dpbf16_ps(sum[r][1], factor, Pairs(column1));
      }
    }
    QKV_UNROLL for (int r = 0; r < kRows; ++r) {
      QKV_UNROLL for (int n = 0; n < 2; ++n) _mm512_storeu_ps(c + r * p.c_stride + n * 16, sum[r][n]);
    }
  }
  static HWY_INLINE __m512bh Pairs(__m512 bits) {
    __m512bh pairs;
    std::memcpy(&pairs, &bits, sizeof(pairs));
    return pairs;
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_POP_ATTRIBUTES

#endif  // include guard
