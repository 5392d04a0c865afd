#include "support/plain_backward.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "runtime/half.h"

namespace qkv::test {
namespace {

enum class Terms { kSigned, kMagnitudes };

// One call in the arithmetic of Real, with what is stored on the way rounded to a type.
template <class Real>
class PlainBackward {
 public:
  PlainBackward(const PlainCall& call, const PlainOutGradients& by, DType type, Terms terms)
      : call_(call),
        by_(by),
        type_(type),
        terms_(terms),
        tk_(static_cast<size_t>(call.tk)),
        s_(tk_),
        slope_(tk_),
        p_(tk_),
        dp_(tk_) {
    const auto zeros = [](int64_t count) { return std::vector<Real>(static_cast<size_t>(count)); };
    dq_ = zeros(call.batch * call.q_heads * call.tq * call.d);
    dk_ = zeros(call.batch * call.kv_heads * call.tk * call.d);
    dv_ = zeros(call.batch * call.kv_heads * call.tk * call.dv);
    dbias_ = zeros(static_cast<int64_t>(call.bias.values.size()));
    dsink_ = zeros(call.q_heads);
  }

  PlainGradients Run() {
    for (int64_t b = 0; b < call_.batch; ++b) {
      for (int64_t h = 0; h < call_.q_heads; ++h) {
        for (int64_t i = 0; i < call_.q_lengths[static_cast<size_t>(b)]; ++i) RunRow(b, h, i);
      }
    }
    return {Rounded(dq_), Rounded(dk_), Rounded(dv_), Rounded(dbias_), {dsink_.begin(), dsink_.end()}};
  }

 private:
  std::vector<double> Rounded(const std::vector<Real>& values) const {
    std::vector<double> result;
    for (Real value : values) result.push_back(Round(value));
    return result;
  }

  Real Round(Real value) const {
    if constexpr (std::is_same_v<Real, float>) {
      const float rounded = type_ == DType::kBF16  ? ToFloat(ToBFloat16(value))
                            : type_ == DType::kF16 ? ToFloat(ToFloat16(value))
                                                   : value;
      return std::isfinite(rounded) ? rounded : value;
    }
    return value;
  }

  Real Term(Real value) const { return terms_ == Terms::kMagnitudes ? std::abs(value) : value; }

  Real K(size_t head, int64_t j, int64_t c) const {
    return static_cast<Real>(
        call_.k[(head * static_cast<size_t>(call_.d) + static_cast<size_t>(c)) * tk_ + static_cast<size_t>(j)]);
  }
  Real V(size_t head, int64_t j, int64_t c) const {
    return static_cast<Real>(call_.v[(head * tk_ + static_cast<size_t>(j)) * static_cast<size_t>(call_.dv) +
                                     static_cast<size_t>(c)]);
  }

  // Weights of the row; false where it sees nothing and has no sink.
  bool Weights(int64_t b, int64_t h, int64_t i, size_t head, const double* q) {
    Real max = call_.sink.present ? static_cast<Real>(call_.sink.At(b, h, 0, 0)) : static_cast<Real>(-HUGE_VAL);
    for (int64_t j = 0; j < call_.tk; ++j) {
      const size_t at = static_cast<size_t>(j);
      s_[at] = static_cast<Real>(-HUGE_VAL);
      if (!call_.IsVisible(b, h, i, j)) continue;
      Real dot = 0;
      for (int64_t c = 0; c < call_.d; ++c) dot += static_cast<Real>(q[c]) * K(head, j, c);
      Real s = Round(dot * static_cast<Real>(call_.scale));
      if (call_.softcap) {
        const Real x = s / static_cast<Real>(*call_.softcap), cosh = std::cosh(x);
        slope_[at] = 1 / (cosh * cosh);
        s = static_cast<Real>(*call_.softcap) * std::tanh(x);
      }
      if (call_.slopes.present) {
        const double distance = std::abs(static_cast<double>(call_.Position(b, i) - j));
        s -= static_cast<Real>(call_.slopes.At(b, h, 0, 0) * distance);
      }
      if (call_.bias.present) s += static_cast<Real>(call_.bias.At(b, h, i, j));
      s_[at] = s;
      max = std::max(max, s);
    }
    if (max == static_cast<Real>(-HUGE_VAL)) return false;
    Real sum = 0;
    for (size_t j = 0; j < tk_; ++j) sum += p_[j] = std::exp(s_[j] - max);
    sink_ = call_.sink.present ? std::exp(static_cast<Real>(call_.sink.At(b, h, 0, 0)) - max) : Real{0};
    sum += sink_;
    for (Real& p : p_) p = Round(p / sum);
    sink_ /= sum;
    return true;
  }

  void RunRow(int64_t b, int64_t h, int64_t i) {
    const size_t row = static_cast<size_t>(call_.Row(b, h, i)), d = static_cast<size_t>(call_.d);
    const size_t dv = static_cast<size_t>(call_.dv);
    const size_t head = static_cast<size_t>(b * call_.kv_heads + h / (call_.q_heads / call_.kv_heads));
    const double* q = call_.q.data() + row * d;
    const double* dout = by_.dout.data() + row * dv;
    if (!Weights(b, h, i, head, q)) return;
    const Real kept_scale = static_cast<Real>(1 / (1 - call_.dropout_p));
    Real delta = 0, magnitude = 0;
    for (int64_t j = 0; j < call_.tk; ++j) {
      Real& dp = dp_[static_cast<size_t>(j)];
      dp = 0;
      if (s_[static_cast<size_t>(j)] == -HUGE_VAL || !call_.IsKept(b, h, i, j)) continue;
      for (int64_t c = 0; c < call_.dv; ++c) dp += Term(static_cast<Real>(dout[c]) * V(head, j, c));
      dp = Round(dp * kept_scale);
      delta += p_[static_cast<size_t>(j)] * dp;
      magnitude += p_[static_cast<size_t>(j)] * std::abs(dp);
    }
    const Real dlse = by_.dlse.empty() ? Real{0} : static_cast<Real>(by_.dlse[row]);
    delta = terms_ == Terms::kMagnitudes ? -(magnitude + std::abs(dlse)) : delta - dlse;
    dsink_[static_cast<size_t>(h)] -= sink_ * delta;
    for (int64_t j = 0; j < call_.tk; ++j) {
      if (s_[static_cast<size_t>(j)] != -HUGE_VAL) AddPair(b, h, i, j, head, q, dout, delta, kept_scale);
    }
  }

  void AddPair(int64_t b, int64_t h, int64_t i, int64_t j, size_t head, const double* q, const double* dout,
               Real delta, Real kept_scale) {
    const size_t at = static_cast<size_t>(j), d = static_cast<size_t>(call_.d),
                 dv = static_cast<size_t>(call_.dv);
    Real ds = Round(p_[at] * (dp_[at] - delta));
    if (call_.bias.present) {
      const auto& stride = call_.bias.stride;
      dbias_[static_cast<size_t>(b * stride[0] + h * stride[1] + i * stride[2] + j * stride[3])] += ds;
    }
    if (call_.softcap) ds = Round(ds * slope_[at]);
    const Real draw = ds * static_cast<Real>(call_.scale), p = Round(p_[at] * kept_scale);
    Real* dq = dq_.data() + static_cast<size_t>(call_.Row(b, h, i)) * d;
    Real* dk = dk_.data() + (head * tk_ + at) * d;
    Real* dv_row = dv_.data() + (head * tk_ + at) * dv;
    for (int64_t c = 0; c < call_.d; ++c) {
      dq[c] += Term(draw * K(head, j, c));
      dk[c] += Term(draw * static_cast<Real>(q[c]));
    }
    if (!call_.IsKept(b, h, i, j)) return;
    for (int64_t c = 0; c < call_.dv; ++c) dv_row[c] += Term(p * static_cast<Real>(dout[c]));
  }

  const PlainCall& call_;
  const PlainOutGradients& by_;
  DType type_;
  Terms terms_;
  size_t tk_;
  std::vector<Real> s_, slope_, p_,
      dp_;  // of the row's keys: scores, the softcap's slopes, weights, their gradients
  Real sink_ = 0;
  std::vector<Real> dq_, dk_, dv_, dbias_, dsink_;
};

}  // namespace

PlainGradients ExactBackward(const PlainCall& call, const PlainOutGradients& by) {
  return PlainBackward<double>(call, by, DType::kF64, Terms::kSigned).Run();
}

PlainGradients NaiveBackward(const PlainCall& call, const PlainOutGradients& by, DType type) {
  return PlainBackward<float>(call, by, type, Terms::kSigned).Run();
}

PlainGradients GradientMagnitudes(const PlainCall& call, const PlainOutGradients& by) {
  return PlainBackward<double>(call, by, DType::kF64, Terms::kMagnitudes).Run();
}

}  // namespace qkv::test
