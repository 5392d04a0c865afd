// The blocks of quantised.h, opened: 32 elements at a time as 16-bit integers in vectors, and their scales.

#if defined(QKV_KERNELS_QUANTISED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_QUANTISED_INL_H_
#undef QKV_KERNELS_QUANTISED_INL_H_
#else
#define QKV_KERNELS_QUANTISED_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/convert-inl.h"
#include "kernels/quantised.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes: the low and high halves of 16 bytes are then a vector each, and on AVX-512 three ports take
// vectors of 256 bits but two those of 512.
using I16 = hn::CappedTag<int16_t, 16>;
#if HWY_TARGET == HWY_SCALAR
using I32 = hn::Rebind<int32_t, I16>;
#else
using I32 = hn::RepartitionToWide<I16>;
#endif
using BlockFloats = hn::RebindToFloat<I32>;
using Integers = hn::Vec<I16>;
using Floats = hn::Vec<BlockFloats>;

inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(I16()));
inline constexpr int kFloatLanes = static_cast<int>(hn::MaxLanes(BlockFloats()));
inline constexpr int kParts = 32 / kLanes;  // vectors of a group

struct Group {
  HWY_INLINE Group() {}  // compiled for this target: g++ compiles an implicit one for none
  Integers part[kParts];  // part p holds elements p * kLanes on
};

HWY_INLINE Integers LoadBytes(const uint8_t* from) {
  const hn::Rebind<uint8_t, I16> bytes;
  return hn::PromoteTo(I16(), hn::LoadU(bytes, from));
}

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_SSE4  // as in convert-inl.h
#define QKV_SCALAR_HALVES
#else
#undef QKV_SCALAR_HALVES
#endif

HWY_INLINE float HalfAt(const uint8_t* from) {
  Float16 half;
  std::memcpy(&half, from, sizeof half);
#ifdef QKV_SCALAR_HALVES
  return ToFloat(half);
#else
  const hn::FixedTag<uint16_t, 4> bits;
  const hn::FixedTag<hwy::float16_t, 4> halves;
  return hn::GetLane(hn::PromoteTo(hn::FixedTag<float, 4>(), hn::BitCast(halves, hn::Set(bits, half.bits))));
#endif
}

#ifndef QKV_SCALAR_HALVES
inline constexpr int kPairs = kFloatLanes / 2;

// The first two halves of kPairs blocks, `step` bytes apart, side by side.
HWY_INLINE Floats PairsAt(const uint8_t* block, int64_t step) {
  const hn::CappedTag<uint32_t, kPairs> tag;
  const auto at = [&](int i) HWY_ATTR {
    uint32_t bits;
    std::memcpy(&bits, block + i * step, sizeof bits);
    return hn::Set(tag, bits);
  };
  auto pairs = hn::OddEven(at(1), at(0));
  if constexpr (kPairs == 4) pairs = hn::ConcatUpperLower(tag, hn::OddEven(at(3), at(2)), pairs);
  return hn::PromoteTo(BlockFloats(), hn::BitCast(hn::Rebind<hwy::float16_t, BlockFloats>(), pairs));
}
#endif

// sum + integers * q, two neighbouring products in each lane; some of them may go to `other`.
HWY_INLINE hn::Vec<I32> AddProducts(Integers integers, const int16_t* q, hn::Vec<I32> sum,
                                    hn::Vec<I32>& other) {
#if HWY_TARGET == HWY_SCALAR
  static_cast<void>(other);
  return hn::Add(sum, hn::Set(I32(), int32_t{hn::GetLane(integers)} * *q));
#else
  return hn::ReorderWidenMulAccumulate(I32(), integers, hn::LoadU(I16(), q), sum, other);
#endif
}

// The first kFloatLanes integers, and the others where there are any.
HWY_INLINE Floats LowFloats(Integers integers) {
#if HWY_TARGET == HWY_SCALAR
  return hn::ConvertTo(BlockFloats(), hn::PromoteTo(I32(), integers));
#else
  return hn::ConvertTo(BlockFloats(), hn::PromoteTo(I32(), hn::LowerHalf(hn::Half<I16>(), integers)));
#endif
}
#if HWY_TARGET != HWY_SCALAR
HWY_INLINE Floats HighFloats(Integers integers) {
  return hn::ConvertTo(BlockFloats(), hn::PromoteTo(I32(), hn::UpperHalf(hn::Half<I16>(), integers)));
}
#endif

// 16 bytes: low halves are the first 16 elements, high ones the others.
HWY_INLINE Group LoadHalfBytes(const uint8_t* from) {
  const auto low = hn::Set(I16(), int16_t{15});
  Group group;
  for (int p = 0; p < kParts / 2; ++p) {
    const Integers bytes = LoadBytes(from + p * kLanes);
    group.part[p] = hn::And(bytes, low);
    group.part[kParts / 2 + p] = hn::ShiftRight<4>(bytes);
  }
  return group;
}

// Adds 16 where the element's bit is set.
HWY_INLINE void AddFifthBits(const uint8_t* from, Group& group) {
  alignas(32) static constexpr int16_t kBits[16] = {
      1, 2, 4, 8, 16, 32, 64, 128, 0x0100, 0x0200, 0x0400, 0x0800, 0x1000, 0x2000, 0x4000, INT16_MIN};
  const auto bit = hn::Load(I16(), kBits);
  const auto sixteen = hn::Set(I16(), int16_t{16});
  uint32_t bits;
  std::memcpy(&bits, from, sizeof bits);
  for (int p = 0; p < kParts; ++p, bits >>= kLanes) {
    const auto set = hn::TestBit(hn::Set(I16(), static_cast<int16_t>(bits)), bit);
    group.part[p] = hn::Or(group.part[p], hn::IfThenElseZero(set, sixteen));
  }
}

HWY_INLINE void Subtract(int16_t offset, Group& group) {
  const auto offsets = hn::Set(I16(), offset);
  for (int p = 0; p < kParts; ++p) group.part[p] = hn::Sub(group.part[p], offsets);
}

// Each format: kGroups of 32 elements a block, kScales of them a group (two: one for each 16 elements), whether
// a group has an offset, the scales of a block, and the integers of its group g. element = scale * integer +
// offset.
template <int kGroups, int kScales>
struct Scales {
  float scale[kGroups * kScales];
  float offset[kGroups];
};

struct Q8_0 {
  static constexpr int kGroups = 1, kScales = 1, kBytes = 34;
  static constexpr bool kOffset = false;
  static HWY_INLINE void Load(const uint8_t* block, Scales<1, 1>& to) { to.scale[0] = HalfAt(block); }
  static HWY_INLINE Group Integers32(const uint8_t* block, int) {
    const hn::Rebind<int8_t, I16> bytes;
    Group group;
    for (int p = 0; p < kParts; ++p) {
      group.part[p] =
          hn::PromoteTo(I16(), hn::LoadU(bytes, reinterpret_cast<const int8_t*>(block + 2 + p * kLanes)));
    }
    return group;
  }
};

struct Q4_0 {
  static constexpr int kGroups = 1, kScales = 1, kBytes = 18;
  static constexpr bool kOffset = false;
  static HWY_INLINE void Load(const uint8_t* block, Scales<1, 1>& to) { to.scale[0] = HalfAt(block); }
  static HWY_INLINE Group Integers32(const uint8_t* block, int) {
    Group group = LoadHalfBytes(block + 2);
    Subtract(8, group);
    return group;
  }
};

struct Q4_1 {
  static constexpr int kGroups = 1, kScales = 1, kBytes = 20;
  static constexpr bool kOffset = true;
  static HWY_INLINE void Load(const uint8_t* block, Scales<1, 1>& to) {
    to.scale[0] = HalfAt(block);
    to.offset[0] = HalfAt(block + 2);
  }
  static HWY_INLINE Group Integers32(const uint8_t* block, int) { return LoadHalfBytes(block + 4); }
};

struct Q5_0 {
  static constexpr int kGroups = 1, kScales = 1, kBytes = 22;
  static constexpr bool kOffset = false;
  static HWY_INLINE void Load(const uint8_t* block, Scales<1, 1>& to) { to.scale[0] = HalfAt(block); }
  static HWY_INLINE Group Integers32(const uint8_t* block, int) {
    Group group = LoadHalfBytes(block + 6);
    AddFifthBits(block + 2, group);
    Subtract(16, group);
    return group;
  }
};

struct Q5_1 {
  static constexpr int kGroups = 1, kScales = 1, kBytes = 24;
  static constexpr bool kOffset = true;
  static HWY_INLINE void Load(const uint8_t* block, Scales<1, 1>& to) { Q4_1::Load(block, to); }
  static HWY_INLINE Group Integers32(const uint8_t* block, int) {
    Group group = LoadHalfBytes(block + 8);
    AddFifthBits(block + 4, group);
    return group;
  }
};

// The eight 6-bit scales and eight offsets of Q4_K and Q5_K in 12 bytes: the first four of each are the low 6
// bits of bytes 0 to 7; of the others, bytes 8 to 11 hold the low 4 bits and the high 2 bits of bytes 0 to 7
// the rest.
HWY_INLINE void LoadSixBits(const uint8_t* block, Scales<8, 1>& to) {
  const float d = HalfAt(block), m = HalfAt(block + 2);
  const uint8_t* bytes = block + 4;
  for (int j = 0; j < 4; ++j) {
    to.scale[j] = d * static_cast<float>(bytes[j] & 63);
    to.offset[j] = -(m * static_cast<float>(bytes[j + 4] & 63));
    to.scale[j + 4] = d * static_cast<float>((bytes[j + 8] & 15) | (bytes[j] >> 6 << 4));
    to.offset[j + 4] = -(m * static_cast<float>((bytes[j + 8] >> 4) | (bytes[j + 4] >> 6 << 4)));
  }
}

// Half bytes of groups that share their bytes in pairs: the even group's are low.
HWY_INLINE Integers HalfByteOf(const uint8_t* from, int high) {
  return hn::And(hn::ShiftRightSame(LoadBytes(from), 4 * high), hn::Set(I16(), int16_t{15}));
}

// Bits `first` to `first + count - 1` of each byte, as bits 4 on.
HWY_INLINE Integers HighBitsOf(const uint8_t* from, int first, int count) {
  const auto mask = hn::Set(I16(), static_cast<int16_t>((1 << count) - 1));
  return hn::ShiftLeft<4>(hn::And(hn::ShiftRightSame(LoadBytes(from), first), mask));
}

struct Q4_K {
  static constexpr int kGroups = 8, kScales = 1, kBytes = 144;
  static constexpr bool kOffset = true;
  static HWY_INLINE void Load(const uint8_t* block, Scales<8, 1>& to) { LoadSixBits(block, to); }
  static HWY_INLINE Group Integers32(const uint8_t* block, int g) {
    Group group;
    for (int p = 0; p < kParts; ++p) group.part[p] = HalfByteOf(block + 16 + g / 2 * 32 + p * kLanes, g % 2);
    return group;
  }
};

struct Q5_K {
  static constexpr int kGroups = 8, kScales = 1, kBytes = 176;
  static constexpr bool kOffset = true;
  static HWY_INLINE void Load(const uint8_t* block, Scales<8, 1>& to) { LoadSixBits(block, to); }
  static HWY_INLINE Group Integers32(const uint8_t* block, int g) {
    Group group;
    for (int p = 0; p < kParts; ++p) {
      group.part[p] = hn::Or(HalfByteOf(block + 48 + g / 2 * 32 + p * kLanes, g % 2),
                             HighBitsOf(block + 16 + p * kLanes, g, 1));
    }
    return group;
  }
};

struct Q6_K {
  static constexpr int kGroups = 8, kScales = 2, kBytes = 210;
  static constexpr bool kOffset = false;
  static HWY_INLINE void Load(const uint8_t* block, Scales<8, 2>& to) {
    const float d = HalfAt(block + 208);
    const auto* scales = reinterpret_cast<const int8_t*>(block + 192);
    for (int j = 0; j < 16; ++j) to.scale[j] = d * static_cast<float>(scales[j]);
  }
  // The low bits of groups 0 and 2 share their bytes, of 1 and 3, of 4 and 6, of 5 and 7; the high bits of 0 to
  // 3, and of 4 to 7.
  static HWY_INLINE Group Integers32(const uint8_t* block, int g) {
    const uint8_t* low = block + g / 4 * 64 + g % 2 * 32;
    const uint8_t* high = block + 128 + g / 4 * 32;
    Group group;
    for (int p = 0; p < kParts; ++p) {
      group.part[p] =
          hn::Or(HalfByteOf(low + p * kLanes, g % 4 / 2), HighBitsOf(high + p * kLanes, g % 4 * 2, 2));
    }
    Subtract(32, group);
    return group;
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
