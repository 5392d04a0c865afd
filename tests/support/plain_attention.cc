#include "support/plain_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "runtime/half.h"
#include "runtime/random.h"
#include "runtime/threads.h"
#include "support/tolerance.h"

namespace qkv::test {
namespace {

bool Kept(const PlainCall& call, int64_t b, int64_t h, int64_t p, int64_t j) {
  const PhiloxCounter counter{static_cast<uint32_t>(j / 4), static_cast<uint32_t>(p), static_cast<uint32_t>(h),
                              static_cast<uint32_t>(b)};
  const PhiloxKey key{static_cast<uint32_t>(call.seed), static_cast<uint32_t>(call.seed >> 32)};
  return Philox4x32(counter, key)[static_cast<size_t>(j % 4)] >= std::floor(call.dropout_p * 0x1p32 + 0.5);
}

// One call in the arithmetic of Real, with values rounded to a type on the way.
template <class Real>
class Plain {
 public:
  Plain(const PlainCall& call, DType type, NaiveOrder order, Fault fault)
      : call_(call),
        type_(type),
        order_(order),
        fault_(fault),
        q_(call.q.begin(), call.q.end()),
        k_(call.k.begin(), call.k.end()),
        v_(call.v.begin(), call.v.end()) {
    const size_t rows = static_cast<size_t>(call.batch * call.q_heads * call.tq);
    result_.out.resize(rows * static_cast<size_t>(call.dv));
    result_.lse.resize(rows, -HUGE_VAL);
    result_.weights.resize(rows * static_cast<size_t>(call.tk));
    result_.score_error.resize(rows);
  }

  PlainResult Run() {
    ParallelFor(call_.batch * call_.q_heads, [&](int64_t task, int) {
      const int64_t b = task / call_.q_heads, h = task % call_.q_heads;
      Work work{std::vector<Real>(static_cast<size_t>(call_.tk)),
                std::vector<Real>(static_cast<size_t>(call_.dv))};
      for (int64_t i = 0; i < call_.rows[static_cast<size_t>(b)]; ++i) RunRow(b, h, i, work);
    });
    return std::move(result_);
  }

 private:
  struct Work {
    std::vector<Real> s, out;
  };

  bool Is(Fault fault) const { return fault_ == fault; }
  // The n-th of `count` things to sum.
  int64_t Nth(int64_t n, int64_t count) const {
    const int64_t at = (n + order_.start) % count;
    return order_.sums == NaiveOrder::Sums::kAscending ? at : count - 1 - at;
  }

  // To the type and back. What would overflow it stays: naive attention that overflows bounds nothing.
  Real Round(Real value) const {
    if constexpr (std::is_same_v<Real, float>) {
      const float rounded = type_ == DType::kBF16  ? ToFloat(ToBFloat16(value))
                            : type_ == DType::kF16 ? ToFloat(ToFloat16(value))
                                                   : value;
      return std::isfinite(rounded) ? rounded : value;
    }
    return value;
  }

  int64_t KvHead(int64_t h) const {
    return Is(Fault::kHeadsTiled) ? h % call_.kv_heads : h / (call_.q_heads / call_.kv_heads);
  }

  int64_t PositionOf(int64_t b, int64_t i) const {
    if (Is(Fault::kOffsetIgnored) && call_.offsets) return i;
    if (Is(Fault::kOtherAlignment) && !call_.offsets) {
      const size_t n = static_cast<size_t>(b);
      return call_.causal == Causal::kTopLeft ? i + call_.kv_lengths[n] - call_.q_lengths[n] : i;
    }
    return call_.Position(b, i);
  }

  bool PassesWindow(int64_t p, int64_t j) const {
    const auto& [left, right] = call_.window;
    const double distance = static_cast<double>(j) - static_cast<double>(p);
    if (left && distance < -static_cast<double>(*left) - Is(Fault::kWindowLeftOneMore)) return false;
    return !right || distance <= static_cast<double>(*right) - Is(Fault::kWindowRightOneLess);
  }

  bool Visible(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (fault_ == Fault::kNone) return call_.IsVisible(b, h, i, j);
    const size_t n = static_cast<size_t>(b);
    if (i >= call_.q_lengths[n] && !Is(Fault::kQueryLengthIgnored)) return false;
    if (j >= call_.kv_lengths[n] && !Is(Fault::kKeyLengthIgnored)) return false;
    const int64_t p = PositionOf(b, i);
    if (call_.causal != Causal::kNone && j > p) return false;
    if (!PassesWindow(p, j)) return false;
    if (call_.mask.present && !Is(Fault::kMaskAsLargeNegative) &&
        (call_.mask.At(b, h, i, j) != 0) == Is(Fault::kMaskInverted)) {
      return false;
    }
    if (Is(Fault::kLastKeyLost) && j == call_.kv_lengths[n] - 1) return false;
    return !call_.bias.present || call_.bias.At(b, h, i, j) != -HUGE_VAL;
  }

  Real Softcap(Real s) const {
    const Real cap = static_cast<Real>(*call_.softcap);
    return Is(Fault::kSoftcapWithoutFactor) ? std::tanh(s / cap) : cap * std::tanh(s / cap);
  }

  void DotProducts(int64_t b, int64_t h, int64_t i, Real* s) const {
    const Real* q = q_.data() + call_.Row(b, h, i) * call_.d;
    const Real* k = k_.data() + (b * call_.kv_heads + KvHead(h)) * call_.d * call_.tk;
    std::fill_n(s, call_.tk, Real{0});
    const bool scale_first = order_.scale == NaiveOrder::Scale::kFirst;
    for (int64_t n = 0; n < call_.d; ++n) {
      const int64_t c = Nth(n, call_.d);
      const Real factor = scale_first ? q[c] * static_cast<Real>(call_.scale) : q[c];
      for (int64_t j = 0; j < call_.tk; ++j) s[j] += factor * k[c * call_.tk + j];
    }
  }

  // What follows the dot product of a visible key.
  Real Score(int64_t b, int64_t h, int64_t i, int64_t j, Real dot) const {
    const bool late_cap = Is(Fault::kSoftcapAfterBias);
    const Real bias = call_.bias.present ? static_cast<Real>(call_.bias.At(b, h, i, j)) : Real{0};
    const Real scale = order_.scale == NaiveOrder::Scale::kFirst ? Real{1} : static_cast<Real>(call_.scale);
    Real s = scale * (Is(Fault::kBiasBeforeScale) ? dot + bias : dot);
    if (Is(Fault::kScaleTwice)) s *= static_cast<Real>(call_.scale);
    s = Round(s);
    if (call_.softcap && !late_cap) s = Softcap(s);
    Real alibi = 0;
    if (call_.slopes.present) {
      const int64_t p = Is(Fault::kAlibiFromQueryIndex) ? i : PositionOf(b, i);
      const Real distance = static_cast<Real>(std::abs(static_cast<double>(p - j)));
      alibi = static_cast<Real>(call_.slopes.At(b, h, 0, 0)) * (Is(Fault::kAlibiSign) ? distance : -distance);
    }
    if (Is(Fault::kBiasBeforeScale))
      s += alibi;
    else
      s = order_.added == NaiveOrder::Added::kTogether ? s + (alibi + bias) : s + alibi + bias;
    if (call_.softcap && late_cap) s = Softcap(s);
    if (Is(Fault::kMaskAsLargeNegative) && call_.mask.present && call_.mask.At(b, h, i, j) == 0)
      s -= Real{10000};
    return Round(s);
  }

  // How far a float32 score may be off: the sum's rounding, and a few units of every number on the way.
  double ErrorOf(double length_q, double length_k, double score, double raw, double added) const {
    constexpr double kUnits = 4;
    return DotBound(call_.d, length_q * length_k) * std::abs(call_.scale) +
           kUnits * Epsilon(DType::kF32) * (std::abs(raw) + std::abs(score) + added);
  }

  double KeyLength(int64_t b, int64_t h, int64_t j) const {
    const Real* k = k_.data() + (b * call_.kv_heads + KvHead(h)) * call_.d * call_.tk + j;
    double square = 0;
    for (int64_t c = 0; c < call_.d; ++c) square += static_cast<double>(k[c * call_.tk]) * k[c * call_.tk];
    return std::sqrt(square);
  }

  void NoteError(int64_t b, int64_t h, int64_t i, int64_t j, double score, double raw, double length_q) {
    double& error = result_.score_error[static_cast<size_t>(call_.Row(b, h, i))];
    error = std::max(error, ErrorOf(length_q, KeyLength(b, h, j), score, raw, call_.Added(b, h, i, j)));
  }

  double QueryLength(int64_t b, int64_t h, int64_t i) const {
    const Real* q = q_.data() + call_.Row(b, h, i) * call_.d;
    double square = 0;
    for (int64_t c = 0; c < call_.d; ++c) square += static_cast<double>(q[c]) * q[c];
    return std::sqrt(square);
  }

  // s: scores, -inf where blocked; becomes exp(s - maximum). Returns the sum; kRescaleLost looks at the maximum
  // of the keys so far only.
  Real Exponentials(Work& work, Real max) const {
    Real sum = 0, so_far = -HUGE_VAL;
    for (Real& s : work.s) {
      so_far = std::max(so_far, s);
      const Real base = Is(Fault::kRescaleLost) ? so_far : max;
      s = s == -HUGE_VAL ? 0 : std::exp(s - base);
      sum += s;
    }
    return sum;
  }

  void AddValues(int64_t b, int64_t h, int64_t i, Real sum, Work& work) {
    const Real* v = v_.data() + (b * call_.kv_heads + KvHead(h)) * call_.tk * call_.dv;
    const Real keep = static_cast<Real>(1 / (1 - call_.dropout_p));
    double* weights = result_.weights.data() + call_.Row(b, h, i) * call_.tk;
    std::fill(work.out.begin(), work.out.end(), Real{0});
    for (int64_t n = 0; n < call_.tk; ++n) {
      const int64_t j = Nth(n, call_.tk);
      Real weight = work.s[static_cast<size_t>(j)] / sum;
      weights[j] = weight;
      if (call_.dropout_p > 0) {
        const int64_t p = Is(Fault::kDropoutByQueryIndex) ? i : call_.Position(b, i);
        if (!Kept(call_, b, h, p, j)) continue;
        if (!Is(Fault::kDropoutScaleMissing)) weight *= keep;
      }
      weight = Round(weight);
      if (weight == 0) continue;
      for (int64_t c = 0; c < call_.dv; ++c) work.out[static_cast<size_t>(c)] += weight * v[j * call_.dv + c];
    }
    double* out = result_.out.data() + call_.Row(b, h, i) * call_.dv;
    for (Real value : work.out) *out++ = Round(value);
  }

  void RunRow(int64_t b, int64_t h, int64_t i, Work& work) {
    DotProducts(b, h, i, work.s.data());
    const double length_q = QueryLength(b, h, i);
    Real max = -HUGE_VAL;
    for (int64_t j = 0; j < call_.tk; ++j) {
      Real& s = work.s[static_cast<size_t>(j)];
      const Real raw = s * static_cast<Real>(call_.scale);
      bool visible = Visible(b, h, i, j);
      if (Is(Fault::kDropoutBeforeSoftmax) && call_.dropout_p > 0) visible &= call_.IsKept(b, h, i, j);
      s = visible ? Score(b, h, i, j, s) : static_cast<Real>(-HUGE_VAL);
      if (s == -HUGE_VAL) continue;
      max = std::max(max, s);
      if constexpr (std::is_same_v<Real, double>) NoteError(b, h, i, j, s, raw, length_q);
    }
    const bool has_sink =
        call_.sink.present && i < call_.q_lengths[static_cast<size_t>(b)] && !Is(Fault::kSinkMissing);
    const Real sink = has_sink ? static_cast<Real>(call_.sink.At(b, h, 0, 0)) : static_cast<Real>(-HUGE_VAL);
    if (!Is(Fault::kSinkNotInMaximum)) max = std::max(max, sink);
    if (max == -HUGE_VAL) return;
    Real sum = Exponentials(work, max);
    if (has_sink) sum += std::exp(sink - max);
    result_.lse[static_cast<size_t>(call_.Row(b, h, i))] =
        static_cast<double>(max) + std::log(static_cast<double>(sum));
    AddValues(b, h, i, sum, work);
  }

  const PlainCall& call_;
  DType type_;
  NaiveOrder order_;
  Fault fault_;
  std::vector<Real> q_, k_, v_;
  PlainResult result_;
};

}  // namespace

int64_t PlainCall::Position(int64_t b, int64_t i) const {
  const size_t n = static_cast<size_t>(b);
  if (offsets) return i + (*offsets)[n];
  return causal == Causal::kTopLeft ? i : i + kv_lengths[n] - q_lengths[n];
}

bool PlainCall::IsVisible(int64_t b, int64_t h, int64_t i, int64_t j) const {
  const size_t n = static_cast<size_t>(b);
  if (i >= q_lengths[n] || j >= kv_lengths[n]) return false;
  const int64_t p = Position(b, i);
  if (causal != Causal::kNone && j > p) return false;
  if (window.left && p - j > *window.left) return false;
  if (window.right && j - p > *window.right) return false;
  if (mask.present && mask.At(b, h, i, j) == 0) return false;
  return !bias.present || bias.At(b, h, i, j) != -HUGE_VAL;
}

double PlainCall::Added(int64_t b, int64_t h, int64_t i, int64_t j) const {
  double added = 0;
  if (slopes.present)
    added += std::abs(slopes.At(b, h, 0, 0)) * static_cast<double>(std::abs(Position(b, i) - j));
  return bias.present ? added + std::abs(bias.At(b, h, i, j)) : added;
}

bool PlainCall::IsKept(int64_t b, int64_t h, int64_t i, int64_t j) const {
  return dropout_p == 0 || Kept(*this, b, h, Position(b, i), j);
}

const char* NameOf(Fault fault) {
  switch (fault) {
    case Fault::kNone: return "none";
    case Fault::kWindowLeftOneMore: return "window reaches one key more to the left";
    case Fault::kWindowRightOneLess: return "window reaches one key less to the right";
    case Fault::kOtherAlignment: return "top left and bottom right exchanged";
    case Fault::kOffsetIgnored: return "offset ignored";
    case Fault::kHeadsTiled: return "query head h reads KV head h mod Hkv";
    case Fault::kScaleTwice: return "scale applied twice";
    case Fault::kSoftcapAfterBias: return "softcap after the bias";
    case Fault::kSoftcapWithoutFactor: return "softcap without its factor";
    case Fault::kMaskInverted: return "mask's true blocks";
    case Fault::kMaskAsLargeNegative: return "mask added as -10000";
    case Fault::kBiasBeforeScale: return "bias scaled too";
    case Fault::kAlibiSign: return "ALiBi's sign";
    case Fault::kAlibiFromQueryIndex: return "ALiBi from the query's index, not its position";
    case Fault::kSinkMissing: return "sink left out";
    case Fault::kSinkNotInMaximum: return "sink left out of the maximum";
    case Fault::kQueryLengthIgnored: return "query length ignored";
    case Fault::kKeyLengthIgnored: return "key length ignored";
    case Fault::kDropoutScaleMissing: return "kept weights not divided by 1 - p";
    case Fault::kDropoutByQueryIndex: return "dropout counted by the query's index, not its position";
    case Fault::kDropoutBeforeSoftmax: return "dropout on scores";
    case Fault::kRescaleLost: return "a lost rescale";
    case Fault::kLastKeyLost: return "the last key lost";
    case Fault::kCount: break;
  }
  return "unknown";
}

PlainResult ExactAttention(const PlainCall& call) {
  return Plain<double>(call, DType::kF64, {}, Fault::kNone).Run();
}

PlainResult NaiveAttention(const PlainCall& call, DType type, NaiveOrder order, Fault fault) {
  return Plain<float>(call, type, order, fault).Run();
}

}  // namespace qkv::test
