#include "support/backward_oracle.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <sstream>

#include "qkv/attention_backward.h"
#include "qkv/error.h"
#include "support/oracle_case.h"
#include "support/plain_backward.h"
#include "support/tolerance.h"

namespace qkv::test {
namespace {

class BackwardCase {
 public:
  explicit BackwardCase(const OptionSet& set)
      : call_(set),
        plain_(call_.plain()),
        dout_(set.q_dtype(), call_.OutShape(), call_.LayoutOf(Factor::kOutLayout)),
        dlse_(DType::kF32, call_.LseShape(), call_.LayoutOf(Factor::kLse)) {
    Rng rng(set.seed + 1);
    const auto draw = [&](const Index&) { return rng.Symmetric(); };
    dout_.Fill(draw), dlse_.Fill(draw);
    by_.dout.resize(static_cast<size_t>(plain_.batch * plain_.q_heads * plain_.tq * plain_.dv));
    if (HasDlse()) by_.dlse.resize(static_cast<size_t>(plain_.batch * plain_.q_heads * plain_.tq));
    ForEachRow([&](int64_t b, int64_t h, int64_t i) {
      const size_t row = static_cast<size_t>(plain_.Row(b, h, i)), dv = static_cast<size_t>(plain_.dv);
      for (size_t c = 0; c < dv; ++c)
        by_.dout[row * dv + c] = dout_.At(call_.AtQuery(b, h, i, static_cast<int64_t>(c)));
      if (HasDlse()) by_.dlse[row] = dlse_.At(call_.AtRow(b, h, i));
    });
  }

  std::string Check() {
    PlainGradients got;
    if (!Run(Planting::kZeros, got)) return "something was written between elements";
    const DType type = call_.set().q_dtype();
    const PlainGradients exact = ExactBackward(plain_, by_), magnitude = GradientMagnitudes(plain_, by_);
    const PlainGradients naive = type == DType::kF64 ? exact : NaiveBackward(plain_, by_, type);
    for (const auto& [name, member] : Members()) {
      const std::string wrong =
          Compare(name, exact.*member, got.*member, naive.*member, magnitude.*member, TypeOf(member));
      if (!wrong.empty()) return wrong;
    }
    return call_.set().planted() == Planted::kNothing ? std::string() : CheckPlanted(got);
  }

  std::vector<double> LibraryGradients() {
    PlainGradients got;
    Run(Planting::kZeros, got);
    std::vector<double> all;
    for (const auto& [name, member] : Members())
      all.insert(all.end(), (got.*member).begin(), (got.*member).end());
    return all;
  }

 private:
  using Member = std::vector<double> PlainGradients::*;
  static std::vector<std::pair<const char*, Member>> Members() {
    return {{"dq", &PlainGradients::dq},
            {"dk", &PlainGradients::dk},
            {"dv", &PlainGradients::dv},
            {"dbias", &PlainGradients::dbias},
            {"dsink", &PlainGradients::dsink}};
  }

  // The coarsest type that a gradient meets: out, which delta is made of, is rounded to q's.
  DType TypeOf(Member member) const {
    const DType q = call_.set().q_dtype();
    const DType own = member == &PlainGradients::dk || member == &PlainGradients::dv ? call_.set().kv_dtype()
                      : member == &PlainGradients::dsink                             ? DType::kF32
                      : member == &PlainGradients::dbias && call_.options().bias ? call_.options().bias->dtype
                                                                                 : q;
    return Epsilon(own) > Epsilon(q) ? own : q;
  }

  bool HasDlse() const { return call_.set()[Factor::kLse] != 0; }

  template <class Body>
  void ForEachRow(const Body& body) const {
    for (int64_t b = 0; b < plain_.batch; ++b) {
      for (int64_t h = 0; h < plain_.q_heads; ++h) {
        for (int64_t i = 0; i < plain_.rows[static_cast<size_t>(b)]; ++i) body(b, h, i);
      }
    }
  }
  template <class Body>
  void ForEachKey(const Body& body) const {
    for (int64_t b = 0; b < plain_.batch; ++b) {
      for (int64_t h = 0; h < plain_.kv_heads; ++h) {
        for (int64_t j = 0; j < call_.keys(b); ++j) body(b, h, j);
      }
    }
  }

  // How far the scores of any row may be off is how far weights may be, relative to themselves.
  double ScoreError(DType type) {
    if (type == DType::kF64) return 0;
    if (score_error_ < 0) {
      const std::vector<double> errors = ExactAttention(plain_).score_error;
      score_error_ = errors.empty() ? 0 : *std::max_element(errors.begin(), errors.end());
    }
    return score_error_;
  }

  std::string Compare(const char* name, const std::vector<double>& exact, const std::vector<double>& got,
                      const std::vector<double>& naive, const std::vector<double>& magnitude, DType type) {
    if (exact.size() != got.size()) return std::string(name) + " is missing";
    double naive_error = 0, largest = 0;
    for (size_t n = 0; n < exact.size(); ++n) {
      naive_error = std::max(naive_error, std::abs(naive[n] - exact[n]));
      largest = std::max(largest, magnitude[n]);
    }
    const double bound = GradientBound(naive_error, type, largest, ScoreError(call_.set().q_dtype()));
    for (size_t n = 0; n < exact.size(); ++n) {
      if (std::abs(exact[n] - got[n]) <= bound) continue;
      std::ostringstream text;
      text.precision(9);
      text << name << "[" << n << "]: expected " << exact[n] << ", got " << got[n] << ", bound " << bound;
      return text.str();
    }
    return {};
  }

  Layout OutputLayout(Factor factor) const {
    const Layout layout = call_.LayoutOf(factor);
    return layout == Layout::kShared ? Layout::kGaps : layout;
  }

  // False where something was written between elements. What the call does not hold is zeros.
  bool Run(Planting planting, PlainGradients& got) {
    call_.Prepare(planting);
    const OptionSet& set = call_.set();
    const AttentionOptions& options = call_.options();
    TypedTensor out(set.q_dtype(), call_.OutShape(), OutputLayout(Factor::kOutLayout));
    TypedTensor lse(DType::kF32, call_.LseShape(), call_.LayoutOf(Factor::kLse));
    const Tensor lse_view = lse.view();
    Attention(call_.q(), call_.k(), call_.v(), options, out.view(), &lse_view);
    TypedTensor dq(set.q_dtype(), call_.q().shape, OutputLayout(Factor::kQLayout));
    TypedTensor dk(set.kv_dtype(), call_.k().shape, OutputLayout(Factor::kKLayout));
    TypedTensor dv(set.kv_dtype(), call_.v().shape, OutputLayout(Factor::kVLayout));
    AttentionGradients gradients{dq.view(), dk.view(), dv.view(), {}, {}};
    std::unique_ptr<TypedTensor> dbias, dsink;
    if (options.bias) {
      dbias = std::make_unique<TypedTensor>(options.bias->dtype, options.bias->shape,
                                            call_.LayoutOf(Factor::kMaskLayout));
      gradients.dbias = dbias->view();
    }
    if (options.sink) {
      dsink = std::make_unique<TypedTensor>(DType::kF32, options.sink->shape, Layout::kRowGaps);
      gradients.dsink = dsink->view();
    }
    const Tensor dlse = dlse_.view();
    AttentionBackward(dout_.view(), call_.q(), call_.k(), call_.v(), out.view(), lse.view(), options, gradients,
                      HasDlse() ? &dlse : nullptr);
    Collect(dq, dk, dv, got);
    const auto flat = [](const TypedTensor* from, int64_t count) {
      std::vector<double> values;
      if (from != nullptr) from->ForEach([&](const Index& index) { values.push_back(from->At(index)); });
      values.resize(static_cast<size_t>(count));
      return values;
    };
    got.dbias = flat(dbias.get(), static_cast<int64_t>(plain_.bias.values.size()));
    got.dsink = flat(dsink.get(), plain_.q_heads);
    return dq.GapsAreUntouched() && dk.GapsAreUntouched() && dv.GapsAreUntouched() &&
           (!dbias || dbias->GapsAreUntouched()) && (!dsink || dsink->GapsAreUntouched());
  }

  void Collect(const TypedTensor& dq, const TypedTensor& dk, const TypedTensor& dv, PlainGradients& got) const {
    const auto zeros = [](int64_t count) { return std::vector<double>(static_cast<size_t>(count)); };
    got.dq = zeros(plain_.batch * plain_.q_heads * plain_.tq * plain_.d);
    got.dk = zeros(plain_.batch * plain_.kv_heads * plain_.tk * plain_.d);
    got.dv = zeros(plain_.batch * plain_.kv_heads * plain_.tk * plain_.dv);
    ForEachRow([&](int64_t b, int64_t h, int64_t i) {
      double* to = got.dq.data() + plain_.Row(b, h, i) * plain_.d;
      for (int64_t c = 0; c < plain_.d; ++c) to[c] = dq.At(call_.AtQuery(b, h, i, c));
    });
    ForEachKey([&](int64_t b, int64_t h, int64_t j) {
      const int64_t key = (b * plain_.kv_heads + h) * plain_.tk + j;
      for (int64_t c = 0; c < plain_.d; ++c)
        got.dk[static_cast<size_t>(key * plain_.d + c)] = dk.At(call_.AtKey(b, h, j, c));
      for (int64_t c = 0; c < plain_.dv; ++c)
        got.dv[static_cast<size_t>(key * plain_.dv + c)] = dv.At(call_.AtKey(b, h, j, c));
    });
  }

  bool Touched(int64_t b, int64_t h, int64_t i) const {
    for (int64_t j = 0; j < plain_.tk; ++j) {
      if (call_.IsPlanted(b, j) && plain_.IsVisible(b, h, i, j)) return true;
    }
    return false;
  }

  // Rows that see a planted key may show it, and so may keys that such rows see; all else has the same bits.
  std::string CheckPlanted(const PlainGradients& zeros) {
    PlainGradients planted;
    if (!Run(Planting::kAsTheSetSays, planted)) return "something was written between elements";
    std::vector<char> rows(static_cast<size_t>(plain_.batch * plain_.q_heads * plain_.tq));
    std::vector<char> keys(static_cast<size_t>(plain_.batch * plain_.kv_heads * plain_.tk));
    std::vector<char> biases(plain_.bias.values.size()), heads(static_cast<size_t>(plain_.q_heads));
    ForEachRow([&](int64_t b, int64_t h, int64_t i) {
      if (!Touched(b, h, i)) return;
      rows[static_cast<size_t>(plain_.Row(b, h, i))] = heads[static_cast<size_t>(h)] = 1;
      for (int64_t j = 0; j < plain_.tk; ++j) {
        if (!plain_.IsVisible(b, h, i, j)) continue;
        const int64_t kv_head = b * plain_.kv_heads + h / (plain_.q_heads / plain_.kv_heads);
        keys[static_cast<size_t>(kv_head * plain_.tk + j)] = 1;
        const auto& stride = plain_.bias.stride;
        if (plain_.bias.present) {
          biases[static_cast<size_t>(b * stride[0] + h * stride[1] + i * stride[2] + j * stride[3])] = 1;
        }
      }
    });
    const auto compare = [&](const char* name, Member member, const std::vector<char>& touched, int64_t width) {
      const std::vector<double>&with = planted.*member, &without = zeros.*member;
      for (size_t n = 0; n < with.size(); ++n) {
        if (touched[n / static_cast<size_t>(width)] != 0 || with[n] == without[n]) continue;
        return std::string("what a blocked key holds changes ") + name + "[" + std::to_string(n) + "]";
      }
      return std::string();
    };
    std::string wrong = compare("dq", &PlainGradients::dq, rows, plain_.d);
    if (wrong.empty()) wrong = compare("dk", &PlainGradients::dk, keys, plain_.d);
    if (wrong.empty()) wrong = compare("dv", &PlainGradients::dv, keys, plain_.dv);
    if (wrong.empty()) wrong = compare("dbias", &PlainGradients::dbias, biases, 1);
    if (wrong.empty()) wrong = compare("dsink", &PlainGradients::dsink, heads, 1);
    return wrong.empty() ? CheckShown(planted, rows) : wrong;
  }

  std::string CheckShown(const PlainGradients& planted, const std::vector<char>& rows) const {
    const Planted what = call_.set().planted();
    if (what != Planted::kNanKey && what != Planted::kNanBoth) return {};
    for (size_t n = 0; n < planted.dq.size(); ++n) {
      if (rows[n / static_cast<size_t>(plain_.d)] != 0 && !std::isnan(planted.dq[n]))
        return "a visible NaN does not show in dq";
    }
    return {};
  }

  OracleCase call_;
  const PlainCall& plain_;
  TypedTensor dout_, dlse_;
  PlainOutGradients by_;
  double score_error_ = -1;
};

}  // namespace

std::vector<double> LibraryGradients(const OptionSet& set) { return BackwardCase(set).LibraryGradients(); }

std::string CheckBackward(const OptionSet& set) {
  std::string wrong;
  try {
    wrong = BackwardCase(set).Check();
  } catch (const Error& error) {
    wrong = error.what();
  }
  if (wrong.empty()) return {};
  return wrong + "\n  QKV_ORACLE_SET=" + set.Text() +
         " build/tests/attention/test_attention --gtest_filter=BackwardOracle.OneSet\n  " + set.Description();
}

}  // namespace qkv::test
