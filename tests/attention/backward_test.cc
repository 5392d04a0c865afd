// Gradients with known answers: finite differences of float64 attention, one option at a time.
#include <gtest/gtest.h>

#include <string>

#include "attention_call.h"
#include "qkv/attention_backward.h"
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
void CheckDifferences(const Call& call, std::vector<T>& values, const std::vector<T>& gradient, const char* name) {
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
  const AttentionOptions options = call.All();
  const Answer<double> answer = Attend(call.q, call.k, call.v, options);
  Array<double> dq(call.q.shape, 7), dk(call.k.shape, 7), dv(call.v.shape, 7);
  AttentionGradients gradients{dq.out(), dk.out(), dv.out(), {}, {}};
  std::optional<Array<double>> dbias;
  std::optional<Array<float>> dsink;
  if (call.bias) gradients.dbias = dbias.emplace(call.bias->shape, 7).out();
  if (call.sink) gradients.dsink = dsink.emplace(call.sink->shape, 7).out();
  AttentionBackward(call.dout.in(), call.q.in(), call.k.in(), call.v.in(), answer.out.in(), answer.lse.in(), options,
                    gradients);
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
    call.bias = Array<double>::Random({kept & 1 ? 2 : 1, kept & 2 ? 4 : 1, kept & 4 ? 5 : 1, kept & 8 ? 7 : 1}, 5);
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

}  // namespace
}  // namespace qkv::test
