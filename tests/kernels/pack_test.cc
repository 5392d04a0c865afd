// Packing: every element where kernels/pack.h says, from operands that begin or end at an unreadable page.
#include "kernels/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/load.h"
#include "support/guard.h"

namespace qkv::test {
namespace {

// (count keys, d channels) of any type behind guard pages, channel by channel or key by key.
template <class T>
struct Source {
  GuardedBuffer<T> data;
  Strided view;
  Source(int64_t count, int64_t d, int64_t channel, Edge edge) : data(count * d, edge) {
    for (int64_t i = 0; i < data.size(); ++i)
      StoreDouble(static_cast<double>(i % 251) - 100, data.data(), DTypeOf<T>::value, i);
    view = {data.data(), DTypeOf<T>::value, channel == 1 ? d : 1, channel == 1 ? 1 : count};
  }
  float At(int64_t key, int64_t c) const {
    return LoadFloat(view.data, view.dtype, key * view.key + c * view.channel);
  }
};

template <class T>
void ExpectPacked(Isa isa, int64_t count, int64_t d, int64_t channel, Edge edge) {
  const PackKernels pack = PackKernelsFor(isa);
  Source<T> source(count, d, channel, edge);
  GuardedBuffer<float> keys(kKeyTile * d, edge), values(kKeyTile * PaddedWidth(d, pack.panel), edge);
  pack.keys(source.view, 0, count, d, keys.data());
  ASSERT_EQ(pack.values(source.view, 0, count, d, values.data()), Values::kFinite);
  const int64_t lanes = pack.lanes, value_panel = std::min(pack.panel, PaddedWidth(d, lanes));
  for (int64_t j = 0; j < PaddedWidth(count, lanes); ++j) {
    for (int64_t c = 0; c < d; ++c) {
      const float packed = keys[j / pack.panel * pack.panel * d + c * pack.panel + j % pack.panel];
      ASSERT_EQ(packed, j < count ? source.At(j, c) : 0) << NameOf(isa) << " key " << j << " channel " << c;
    }
  }
  for (int64_t j = 0; j < count; ++j) {
    for (int64_t c = 0; c < PaddedWidth(d, value_panel); ++c) {
      const float packed = values[c / value_panel * kKeyTile * value_panel + j * value_panel + c % value_panel];
      ASSERT_EQ(packed, c < d ? source.At(j, c) : 0) << NameOf(isa) << " key " << j << " channel " << c;
    }
  }
}

TEST(Pack, EveryElementIsInItsPlaceAndNothingElseIsRead) {
  for (Isa isa : SupportedIsas()) {
    for (int64_t count : {1, 2, 3, 7, 15, 16, 17, 63, 64, 65, 127, 255, 256}) {
      for (int64_t d : {1, 3, 8, 15, 16, 17, 63, 64, 65, 130}) {
        for (Edge edge : {Edge::kEnd, Edge::kBegin}) {
          for (int64_t channel : {1, 2}) {
            ExpectPacked<float>(isa, count, d, channel, edge);
            ExpectPacked<BFloat16>(isa, count, d, channel, edge);
            ExpectPacked<Float16>(isa, count, d, channel, edge);
          }
        }
      }
    }
  }
}

TEST(Pack, WhatIsNotFiniteIsNotedAndLeftOut) {
  for (Isa isa : SupportedIsas()) {
    const PackKernels pack = PackKernelsFor(isa);
    for (float poison : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                         std::numeric_limits<float>::quiet_NaN()}) {
      for (int64_t at = 0; at < 5 * 9; ++at) {
        Source<float> source(5, 9, 1, Edge::kEnd);
        source.data[at] = poison;
        GuardedBuffer<float> values(kKeyTile * PaddedWidth(9, pack.panel));
        EXPECT_EQ(pack.values(source.view, 0, 5, 9, values.data()), Values::kSomeNotFinite);
        for (float value : values) ASSERT_TRUE(std::isfinite(value));
      }
    }
  }
}

}  // namespace
}  // namespace qkv::test
