// Gradients: finite differences of float64 attention, one option at a time; threads, NaN, wrong calls.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "attention_call.h"
#include "qkv/attention_backward.h"
#include "qkv/error.h"
#include "support/backward_oracle.h"
#include "support/option_set.h"
#include "support/tolerance.h"

namespace qkv::test {
namespace {

struct Call {
  Array<double> q, k, v, dout;
  AttentionOptions options;
  std::optional<Array<double>> bias;
  std::optional<Array<float>> sink;

  Call(Shape q_shape, Shape k_shape, int64_t dv)
      : q(Array<double>::Random(q_shape, 1)),
        k(Array<double>::Random(k_shape, 2)),
        v(Array<double>::Random({k_shape[0], k_shape[1], k_shape[2], dv}, 3)),
        dout(Array<double>::Random({q_shape[0], q_shape[1], q_shape[2], dv}, 4)) {}

  AttentionOptions All() const {
    AttentionOptions all = options;
    if (bias) all.bias = bias->in();
    if (sink) all.sink = sink->in();
    return all;
  }
  double Loss() const {
    const Answer<double> answer = Attend(q, k, v, All());
    double loss = 0;
    for (size_t i = 0; i < dout.values.size(); ++i) loss += dout.values[i] * answer.out.values[i];
    return loss;
  }
};

// Central differences by each element of `values`, which Loss() reads.
template <class T>
void CheckDifferences(const Call& call, std::vector<T>& values, const std::vector<T>& gradient,
                      const char* name) {
  for (size_t i = 0; i < values.size(); ++i) {
    const T kept = values[i];
    const double step = std::is_same_v<T, float> ? 0x1p-7 : 0x1p-16;
    values[i] = static_cast<T>(kept + step);
    const double above = call.Loss(), up = values[i];
    values[i] = static_cast<T>(kept - step);
    const double below = call.Loss(), down = values[i];
    values[i] = kept;
    const double bound = std::is_same_v<T, float> ? kFloatDifference : kDifference;
    ASSERT_NEAR((above - below) / (up - down), gradient[i], bound) << name << " " << i;
  }
}

void CheckGradients(Call call) {
  SetThreads(1);  // thousands of tiny calls
  const AttentionOptions options = call.All();
  const Answer<double> answer = Attend(call.q, call.k, call.v, options);
  Array<double> dq(call.q.shape, 7), dk(call.k.shape, 7), dv(call.v.shape, 7);
  AttentionGradients gradients{dq.out(), dk.out(), dv.out(), {}, {}};
  std::optional<Array<double>> dbias;
  std::optional<Array<float>> dsink;
  if (call.bias) gradients.dbias = dbias.emplace(call.bias->shape, 7).out();
  if (call.sink) gradients.dsink = dsink.emplace(call.sink->shape, 7).out();
  AttentionBackward(call.dout.in(), call.q.in(), call.k.in(), call.v.in(), answer.out.in(), answer.lse.in(),
                    options, gradients);
  CheckDifferences(call, call.q.values, dq.values, "dq");
  CheckDifferences(call, call.k.values, dk.values, "dk");
  CheckDifferences(call, call.v.values, dv.values, "dv");
  if (call.bias) CheckDifferences(call, call.bias->values, dbias->values, "dbias");
  if (call.sink) CheckDifferences(call, call.sink->values, dsink->values, "dsink");
}

Call Small() { return Call({2, 4, 5, 3}, {2, 2, 7, 3}, 2); }

TEST(BackwardDifferences, Plain) { CheckGradients(Small()); }

TEST(BackwardDifferences, CausalAndWindow) {
  for (Causal causal : {Causal::kTopLeft, Causal::kBottomRight}) {
    Call call = Small();
    call.options.causal = causal;
    CheckGradients(call);
    call.options.window = {2, 1};
    CheckGradients(call);
  }
}

TEST(BackwardDifferences, ScaleSoftcapAndAlibi) {
  Call call = Small();
  const Array<float> slopes({4}, 0.25f);
  call.options.scale = -0.7f;
  call.options.softcap = 0.5f;
  call.options.alibi_slopes = slopes.in();
  CheckGradients(call);
}

TEST(BackwardDifferences, BiasOfEveryShape) {
  for (int kept = 0; kept < 16; ++kept) {
    Call call = Small();
    call.options.softcap = 0.9f;
    call.bias =
        Array<double>::Random({kept & 1 ? 2 : 1, kept & 2 ? 4 : 1, kept & 4 ? 5 : 1, kept & 8 ? 7 : 1}, 5);
    CheckGradients(call);
  }
}

TEST(BackwardDifferences, MaskAndLengths) {
  Call call = Small();
  Mask mask({5, 7}, std::vector<uint8_t>(35, 1));
  for (size_t i = 0; i < 35; i += 3) mask.values[i] = 0;
  call.options.mask = mask.in();
  call.options.q_lengths = {3, 5};
  call.options.kv_lengths = {7, 0};
  CheckGradients(call);
}

TEST(BackwardDifferences, SinkAndDropout) {
  Call call = Small();
  call.sink = Array<float>::Random({4}, 6);
  CheckGradients(call);
  call.options.dropout_p = 0.4f;
  call.options.seed = 99;
  CheckGradients(call);
}

TEST(BackwardDeterminism, AnyThreadCountGivesTheSameBits) {
  Rng rng(4);
  for (int n = 0; n < 60; ++n) {
    OptionSet set = DrawOptionSet(rng, n % 6 == 0 ? 4'000'000 : 300'000);
    set[Factor::kThreads] = 0;
    const std::vector<double> one = LibraryGradients(set);
    for (int threads = 1; threads < LevelsOf(Factor::kThreads); ++threads) {
      set[Factor::kThreads] = threads;
      ASSERT_EQ(LibraryGradients(set), one) << set.Text() << "\n" << set.Description();
    }
  }
}

// One long head: its tiles of keys add to the same rows of dq.
template <class T>
std::vector<float> AsFloats(const Array<T>& array) {
  std::vector<float> values;
  for (const T& value : array.values) {
    if constexpr (std::is_same_v<T, float>)
      values.push_back(value);
    else
      values.push_back(ToFloat(value));
  }
  return values;
}

template <class T>
void ExpectTilesToAddInOrder() {
  const Shape shape{1, 1, 2000, 16};
  const auto q = Array<T>::Random(shape, 1), k = Array<T>::Random(shape, 2), v = Array<T>::Random(shape, 3);
  AttentionOptions options;
  options.causal = Causal::kTopLeft;
  const Answer<T> answer = Attend(q, k, v, options);
  std::vector<float> first;
  for (int threads : {1, 2, 3, 8}) {
    SetThreads(threads);
    Array<T> dq(shape, 7), dk(shape, 7), dv(shape, 7);
    AttentionBackward(v.in(), q.in(), k.in(), v.in(), answer.out.in(), answer.lse.in(), options,
                      {dq.out(), dk.out(), dv.out(), {}, {}});
    if (first.empty()) first = AsFloats(dq);
    EXPECT_EQ(AsFloats(dq), first) << threads;
  }
}

TEST(BackwardDeterminism, TilesOfOneHeadAddInOrder) {
  ExpectTilesToAddInOrder<float>();
  ExpectTilesToAddInOrder<BFloat16>();
}

// A NaN in one row of dout reaches that row, the keys that it sees, and in dv the channel that it stands in.
template <class T>
void ExpectNanToStayWithItsRow() {
  const Shape shape{1, 1, 40, 5};
  const auto q = Array<T>::Random(shape, 1), k = Array<T>::Random(shape, 2), v = Array<T>::Random(shape, 3);
  AttentionOptions options;
  options.causal = Causal::kTopLeft;
  options.window.left = 3;
  const Answer<T> answer = Attend(q, k, v, options);
  OnEveryIsa([&](Isa) {
    Array<T> dout(shape, 1), dq(shape, 7), dk(shape, 7), dv(shape, 7);
    const int64_t row = 20, channel = 2;
    dout[row * 5 + channel] = FromFloat<T>(NAN);
    AttentionBackward(dout.in(), q.in(), k.in(), v.in(), answer.out.in(), answer.lse.in(), options,
                      {dq.out(), dk.out(), dv.out(), {}, {}});
    const std::vector<float> by_q = AsFloats(dq), by_k = AsFloats(dk), by_v = AsFloats(dv);
    for (int64_t i = 0; i < 40; ++i) {
      for (int64_t c = 0; c < 5; ++c) {
        const size_t at = static_cast<size_t>(i * 5 + c);
        const bool seen = i >= row - 3 && i <= row;
        EXPECT_EQ(std::isnan(by_q[at]), i == row) << i;
        EXPECT_EQ(std::isnan(by_k[at]), seen) << i;
        EXPECT_EQ(std::isnan(by_v[at]), seen && c == channel) << i << " " << c;
      }
    }
  });
}

TEST(Backward, NanOfOneRowStaysWithIt) {
  ExpectNanToStayWithItsRow<float>();
  ExpectNanToStayWithItsRow<BFloat16>();
}

TEST(Backward, CanBeCancelled) {
  const Shape shape{1, 1, 6000, 64};
  const Array<float> x(shape, 0.1f), out(shape, 0.1f);
  const Array<float> lse({1, 1, 6000}, 9);
  for (int threads : {1, 2, 8}) {
    SetThreads(threads);
    Array<float> dq(shape), dk(shape), dv(shape);
    AttentionOptions options;
    options.progress = [](int64_t, int64_t) { return false; };
    try {
      AttentionBackward(x.in(), x.in(), x.in(), x.in(), out.in(), lse.in(), options,
                        {dq.out(), dk.out(), dv.out(), {}, {}});
      ADD_FAILURE() << "not cancelled";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCancelled);
    }
  }
}

// What names the argument when something is wrong with it; nothing is written then.
TEST(Backward, WrongArgumentsAreNamed) {
  const Shape shape{1, 2, 3, 4};
  const Array<float> x(shape, 1), wide({1, 2, 3, 5}, 1), lse({1, 2, 3}, 1), short_lse({1, 2, 2}, 1);
  const Array<double> doubles(shape, 1);
  const Array<float> bias({3, 3}, 1);
  struct Case {
    const char* where;
    std::function<void(ConstTensor& dout, ConstTensor& out, ConstTensor& lse, AttentionOptions&,
                       AttentionGradients&, std::optional<ConstTensor>& dlse)>
        spoil;
  };
  Array<float> dq(shape, 7), dk(shape, 7), dv(shape, 7), other({3, 3}, 7), sink({2}, 7);
  using T = ConstTensor;
  using O = AttentionOptions;
  using G = AttentionGradients;
  using L = std::optional<ConstTensor>;
  const std::vector<Case> cases = {
      {"dout", [&](T& dout, T&, T&, O&, G&, L&) { dout = wide.in(); }},
      {"dout", [&](T& dout, T&, T&, O&, G&, L&) { dout = doubles.in(); }},
      {"out", [&](T&, T& out, T&, O&, G&, L&) { out = wide.in(); }},
      {"lse", [&](T&, T&, T& l, O&, G&, L&) { l = short_lse.in(); }},
      {"dlse", [&](T&, T&, T&, O&, G&, L& l) { l = short_lse.in(); }},
      {"dq",
       [&](T&, T&, T&, O&, G& g, L&) {
         g.dq = Tensor(dq.values.data(), {1, 2, 3, 3});
       }},
      {"dq", [&](T&, T&, T&, O&, G& g, L&) { g.dq.stride[1] = 0; }},
      {"dk", [&](T&, T&, T&, O&, G& g, L&) { g.dk = dq.out(); }},
      {"dv", [&](T&, T&, T&, O&, G& g, L&) { g.dv.dtype = DType::kBF16; }},
      {"dv", [&](T&, T&, T&, O&, G& g, L&) { g.dv = Tensor(const_cast<float*>(x.values.data()), shape); }},
      {"dbias", [&](T&, T&, T&, O&, G& g, L&) { g.dbias = other.out(); }},
      {"dbias", [&](T&, T&, T&, O& o, G& g, L&) { o.bias = bias.in(), g.dbias = sink.out(); }},
      {"dsink", [&](T&, T&, T&, O&, G& g, L&) { g.dsink = sink.out(); }},
      {"seed", [&](T&, T&, T&, O& o, G&, L&) { o.dropout_p = 0.5f; }},
  };
  for (const Case& wrong : cases) {
    ConstTensor dout = x.in(), out = x.in(), of_lse = lse.in();
    std::optional<ConstTensor> dlse;
    AttentionOptions options;
    AttentionGradients gradients{dq.out(), dk.out(), dv.out(), {}, {}};
    wrong.spoil(dout, out, of_lse, options, gradients, dlse);
    try {
      AttentionBackward(dout, x.in(), x.in(), x.in(), out, of_lse, options, gradients, dlse ? &*dlse : nullptr);
      ADD_FAILURE() << wrong.where << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.where(), wrong.where) << error.what();
    }
    EXPECT_EQ(dq.values, Array<float>(shape, 7).values);
  }
}

}  // namespace
}  // namespace qkv::test
