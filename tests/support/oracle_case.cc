#include "support/oracle_case.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/half.h"
#include "runtime/threads.h"

namespace qkv::test {
namespace {

double RoundTo(DType dtype, double value) {
  switch (dtype) {
    case DType::kBF16: return ToFloat(ToBFloat16(static_cast<float>(value)));
    case DType::kF16: return ToFloat(ToFloat16(static_cast<float>(value)));
    default: return static_cast<double>(static_cast<float>(value));
  }
}

// The most negative finite number of a type.
double LowestOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return ToFloat(BFloat16{0xff7f});
    case DType::kF16: return -65504;
    default: return -static_cast<double>(std::numeric_limits<float>::max());
  }
}

double NotANumber() { return std::numeric_limits<double>::quiet_NaN(); }

bool Same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

std::vector<int64_t> RunningSums(const std::vector<int64_t>& counts) {
  std::vector<int64_t> sums{0};
  for (int64_t count : counts) sums.push_back(sums.back() + count);
  return sums;
}

}  // namespace

OracleCase::OracleCase(const OptionSet& set) : set_(set) {
  Rng rng(set.seed);
  DrawSizes(rng);
  DrawNumbers(rng);
  DrawRules(rng);
  DrawCapture(rng);
  MakeTensors();
}

void OracleCase::DrawSizes(Rng& rng) {
  plain_.batch = set_.batch(), plain_.q_heads = set_.q_heads(), plain_.kv_heads = set_.kv_heads();
  plain_.tq = set_.tq(), plain_.tk = set_.tk(), plain_.d = set_.d(), plain_.dv = set_.dv();
  for (int64_t b = 0; b < plain_.batch; ++b) {
    plain_.rows.push_back(set_.packed() ? rng.Between(0, plain_.tq) : plain_.tq);
    keys_.push_back(set_.packed() ? rng.Between(0, plain_.tk) : plain_.tk);
  }
  const auto lengths = [&](Factor factor, const std::vector<int64_t>& most) {
    std::vector<int64_t> result = most;
    if (set_[factor] != 0) {
      for (int64_t& length : result) length = rng.Between(0, length);
    }
    return result;
  };
  plain_.q_lengths = lengths(Factor::kQLengths, plain_.rows);
  plain_.kv_lengths = lengths(Factor::kKvLengths, keys_);
  if (set_[Factor::kQLengths] != 0) options_.q_lengths = plain_.q_lengths;
  if (set_[Factor::kKvLengths] != 0) options_.kv_lengths = plain_.kv_lengths;
  if (!set_.packed()) return;
  options_.cu_q = first_q_ = RunningSums(plain_.rows);
  options_.cu_kv = first_k_ = RunningSums(keys_);
}

void OracleCase::DrawNumbers(Rng& rng) {
  const double size = static_cast<double>(set_.Number(Factor::kSize));
  const auto fill = [&](std::vector<double>& values, int64_t count, DType dtype, double scale) {
    values.resize(static_cast<size_t>(count));
    for (double& value : values) value = RoundTo(dtype, scale * rng.Symmetric());
  };
  const int64_t kv = plain_.batch * plain_.kv_heads * plain_.tk;
  fill(plain_.q, plain_.batch * plain_.q_heads * plain_.tq * plain_.d, set_.q_dtype(), size);
  fill(plain_.k, kv * plain_.d, set_.kv_dtype(), std::max(size, 1.0));
  fill(plain_.v, kv * plain_.dv, set_.kv_dtype(), 1);
  // Heads that share their memory are one head.
  const auto share = [&](Factor layout, std::vector<double>& values, int64_t head) {
    if (LayoutOf(layout) != Layout::kShared) return;
    for (int64_t n = 0; n < plain_.batch * plain_.kv_heads; ++n) {
      const int64_t first = n / plain_.kv_heads * plain_.kv_heads;
      std::copy_n(values.begin() + first * head, head, values.begin() + n * head);
    }
  };
  share(Factor::kKLayout, plain_.k, plain_.tk * plain_.d);
  share(Factor::kVLayout, plain_.v, plain_.tk * plain_.dv);
  if (LayoutOf(Factor::kQLayout) == Layout::kShared) {
    for (int64_t n = 0; n < plain_.batch * plain_.q_heads; ++n) {
      const int64_t head = plain_.tq * plain_.d, first = n / plain_.q_heads * plain_.q_heads;
      std::copy_n(plain_.q.begin() + first * head, head, plain_.q.begin() + n * head);
    }
  }
  planted_.resize(static_cast<size_t>(plain_.batch));
  if (set_.planted() == Planted::kNothing || plain_.tk == 0) return;
  for (std::vector<int64_t>& keys : planted_) {
    for (int n = 0; n < 3; ++n) keys.push_back(rng.Below(plain_.tk));
  }
  for (int64_t b = 0; b < plain_.batch; ++b) {
    for (int64_t h = b * plain_.kv_heads; h < (b + 1) * plain_.kv_heads; ++h) {
      for (int64_t j : planted_[static_cast<size_t>(b)]) {
        plain_.k[static_cast<size_t>((h * plain_.d + j % plain_.d) * plain_.tk + j)] = 0;
        plain_.v[static_cast<size_t>((h * plain_.tk + j) * plain_.dv + j % plain_.dv)] = 0;
      }
    }
  }
}

void OracleCase::DrawRules(Rng& rng) {
  options_.causal = plain_.causal = static_cast<Causal>(set_[Factor::kCausal]);
  if (set_[Factor::kLeft] != 0) options_.window.left = set_.Number(Factor::kLeft);
  if (set_[Factor::kRight] != 0) options_.window.right = set_.Number(Factor::kRight);
  plain_.window = options_.window;
  if (set_[Factor::kScale] != 0) options_.scale = std::strtof(set_.Name(Factor::kScale).c_str(), nullptr);
  plain_.scale = options_.scale ? static_cast<double>(*options_.scale) : 1.0 / std::sqrt(static_cast<double>(plain_.d));
  if (set_[Factor::kSoftcap] != 0) {
    options_.softcap = std::strtof(set_.Name(Factor::kSoftcap).c_str(), nullptr);
    plain_.softcap = *options_.softcap;
  }
  if (set_[Factor::kOffset] != 0) {
    const int kind = set_[Factor::kOffset];
    const auto draw = [&] {
      return kind == 1   ? 0
             : kind == 2 ? rng.Between(1, 300)
             : kind == 3 ? -rng.Between(1, 50)
                         : rng.Between(-20, 300);
    };
    options_.offset.emplace(kind == 4 ? static_cast<size_t>(plain_.batch) : 1);
    for (int64_t& offset : *options_.offset) offset = draw();
    plain_.offsets.emplace(static_cast<size_t>(plain_.batch), kind == 4 ? 0 : options_.offset->front());
    if (kind == 4) plain_.offsets = options_.offset;
  }
  if (set_[Factor::kDropout] != 0) {
    options_.dropout_p = std::strtof(set_.Name(Factor::kDropout).c_str(), nullptr);
    plain_.dropout_p = options_.dropout_p;
    options_.seed = plain_.seed = rng.Bits();
  }
  if (set_.has_mask()) {
    mask_ = std::make_unique<TypedTensor>(DType::kBool, BroadcastShape(Factor::kMaskShape),
                                          LayoutOf(Factor::kMaskLayout));
    plain_.mask = DrawBroadcast(rng, Factor::kMaskShape, *mask_);
    options_.mask = mask_->view();
  }
  if (set_.has_bias()) {
    const DType dtype = set_[Factor::kBiasType] == 0 ? DType::kF32 : set_.q_dtype();
    bias_ =
        std::make_unique<TypedTensor>(dtype, BroadcastShape(Factor::kBiasShape), LayoutOf(Factor::kMaskLayout));
    plain_.bias = DrawBroadcast(rng, Factor::kBiasShape, *bias_);
    options_.bias = bias_->view();
  }
  const auto per_head = [&](std::unique_ptr<TypedTensor>& tensor, Shape shape, const auto& draw) {
    Broadcast result{{}, {shape.rank == 2 ? shape[1] : 0, 1, 0, 0}, true};
    tensor = std::make_unique<TypedTensor>(DType::kF32, shape, Layout::kRowGaps);
    tensor->Fill([&](const Index&) {
      result.values.push_back(static_cast<double>(static_cast<float>(draw())));
      return result.values.back();
    });
    return result;
  };
  if (const int kind = set_[Factor::kAlibi]) {
    const Shape shape = kind == 1 ? Shape{plain_.q_heads} : Shape{plain_.batch, plain_.q_heads};
    plain_.slopes = per_head(slopes_, shape, [&] { return rng.Symmetric(); });
    options_.alibi_slopes = slopes_->view();
  }
  if (const int kind = set_[Factor::kSink]) {
    plain_.sink = per_head(sink_, {plain_.q_heads}, [&] {
      return kind == 1 ? 2 * rng.Symmetric() : kind == 2 ? 100 : -HUGE_VAL;
    });
    options_.sink = sink_->view();
  }
}

Shape OracleCase::BroadcastShape(Factor factor) const {
  const std::string& name = set_.Name(factor);  // "(BH1K)"
  Shape shape;
  for (char axis : name.substr(1, name.size() - 2)) {
    const int64_t size = axis == 'B'   ? plain_.batch
                         : axis == 'H' ? plain_.q_heads
                         : axis == 'Q' ? plain_.tq
                         : axis == 'K' ? plain_.tk
                                       : 1;
    shape.size[static_cast<size_t>(shape.rank++)] = size;
  }
  return shape;
}

Layout OracleCase::LayoutOf(Factor factor) const {
  if (factor == Factor::kLse) {
    return std::array{Layout::kContiguous, Layout::kContiguous, Layout::kTransposed,
                      Layout::kGaps}[static_cast<size_t>(set_[factor])];
  }
  if (factor == Factor::kMaskLayout) {
    return std::array{Layout::kContiguous, Layout::kTransposed, Layout::kReversed,
                      Layout::kGaps}[static_cast<size_t>(set_[factor])];
  }
  return static_cast<Layout>(set_[factor]);
}

Broadcast OracleCase::DrawBroadcast(Rng& rng, Factor factor, TypedTensor& tensor) {
  const bool is_mask = factor == Factor::kMaskShape;
  const int fill = set_[is_mask ? Factor::kMaskFill : Factor::kBiasFill];
  const DType dtype = tensor.view().dtype;
  const Shape shape = tensor.view().shape;
  Broadcast result;
  result.present = true;
  int64_t step = 1;
  for (int axis = shape.rank - 1; axis >= 0; --axis) {
    result.stride[static_cast<size_t>(4 - shape.rank + axis)] =
        set_.Name(factor)[static_cast<size_t>(axis + 1)] == '1' ? 0 : step;
    step *= shape[axis];
  }
  bool row_is_blocked = false;
  tensor.Fill([&](const Index& index) {
    if (shape.rank == 0 || index[static_cast<size_t>(shape.rank - 1)] == 0) row_is_blocked = rng.Chance(0.3);
    double value = 0;
    if (is_mask) {
      const double may = std::array{0.7, 0.1, row_is_blocked ? 0.0 : 0.8, 1.0, 0.0}[static_cast<size_t>(fill)];
      value = rng.Chance(may);
    } else {
      const bool rows = fill == 2 || fill == 4;
      const bool low = fill != 0 && (rows ? row_is_blocked : rng.Chance(0.3));
      value = !low ? RoundTo(dtype, 2 * rng.Symmetric()) : fill <= 2 ? -HUGE_VAL : LowestOf(dtype);
    }
    result.values.push_back(value);
    return value;
  });
  return result;
}

void OracleCase::DrawCapture(Rng& rng) {
  const Captured captured = set_.captured();
  if (captured == Captured::kTop || captured == Captured::kAll) request_.top_k = rng.Between(1, 8);
  request_.entropy = request_.received = captured == Captured::kAll;
  if (captured == Captured::kNothing || captured == Captured::kTop) return;
  request_.row_kind = captured == Captured::kRawRows          ? RowKind::kRawScores
                      : captured == Captured::kSoftcappedRows ? RowKind::kSoftcappedScores
                      : captured == Captured::kBiasedRows     ? RowKind::kBiasedScores
                                                              : RowKind::kWeights;
  int64_t rows = set_.packed() ? 0 : plain_.tq;  // of the longest sequence
  for (int64_t held : plain_.rows) rows = std::max(rows, held);
  request_.rows.emplace();
  for (int n = 0; n < 3 && rows > 0; ++n) {
    const int64_t row = rng.Below(rows);
    if (std::find(request_.rows->begin(), request_.rows->end(), row) == request_.rows->end())
      request_.rows->push_back(row);
  }
}

// The index of (b, h, row, channel) in a tensor that is (B, H, T, D), or packed.
Index OracleCase::Where(int64_t b, int64_t h, int64_t row, int64_t channel,
                        const std::vector<int64_t>& first) const {
  if (!set_.packed()) return {b, h, row, channel};
  return {first[static_cast<size_t>(b)] + row, h, channel, 0};
}

void OracleCase::MakeTensors() {
  const auto make = [&](Factor layout, DType dtype, int64_t heads, int64_t rows, int64_t channels,
                        const std::vector<int64_t>& first) {
    const Shape shape =
        set_.packed() ? Shape{first.back(), heads, channels} : Shape{plain_.batch, heads, rows, channels};
    return std::make_unique<TypedTensor>(dtype, shape, LayoutOf(layout));
  };
  q_ = make(Factor::kQLayout, set_.q_dtype(), plain_.q_heads, plain_.tq, plain_.d, first_q_);
  k_ = make(Factor::kKLayout, set_.kv_dtype(), plain_.kv_heads, plain_.tk, plain_.d, first_k_);
  v_ = make(Factor::kVLayout, set_.kv_dtype(), plain_.kv_heads, plain_.tk, plain_.dv, first_k_);
  for (int64_t b = 0; b < plain_.batch; ++b) {
    for (int64_t h = 0; h < plain_.q_heads; ++h) {
      for (int64_t i = 0; i < plain_.rows[static_cast<size_t>(b)]; ++i) {
        const double* from = plain_.q.data() + plain_.Row(b, h, i) * plain_.d;
        for (int64_t c = 0; c < plain_.d; ++c) q_->Set(Where(b, h, i, c, first_q_), from[c]);
      }
    }
    for (int64_t h = 0; h < plain_.kv_heads; ++h) {
      const double* k = plain_.k.data() + (b * plain_.kv_heads + h) * plain_.d * plain_.tk;
      const double* v = plain_.v.data() + (b * plain_.kv_heads + h) * plain_.tk * plain_.dv;
      for (int64_t j = 0; j < keys_[static_cast<size_t>(b)]; ++j) {
        for (int64_t c = 0; c < plain_.d; ++c) k_->Set(Where(b, h, j, c, first_k_), k[c * plain_.tk + j]);
        for (int64_t c = 0; c < plain_.dv; ++c) v_->Set(Where(b, h, j, c, first_k_), v[j * plain_.dv + c]);
      }
    }
  }
}

bool OracleCase::IsPlanted(int64_t b, int64_t j) const {
  const std::vector<int64_t>& keys = planted_[static_cast<size_t>(b)];
  return std::find(keys.begin(), keys.end(), j) != keys.end();
}

void OracleCase::Plant(Planting planting) {
  const Planted what = set_.planted();
  const bool zeros = planting == Planting::kZeros;
  const bool in_keys = what == Planted::kNanKey || what == Planted::kNanBoth || what == Planted::kInfKey;
  const bool in_values = what == Planted::kNanValue || what == Planted::kNanBoth || what == Planted::kInfValue;
  const bool infinite = what == Planted::kInfKey || what == Planted::kInfValue;
  const double value = zeros ? 0 : infinite ? HUGE_VAL : NotANumber();
  for (int64_t b = 0; b < plain_.batch; ++b) {
    for (int64_t j : planted_[static_cast<size_t>(b)]) {
      if (j >= keys_[static_cast<size_t>(b)]) continue;
      for (int64_t h = 0; h < plain_.kv_heads; ++h) {
        if (in_keys) k_->Set(Where(b, h, j, j % plain_.d, first_k_), value);
        if (in_values) v_->Set(Where(b, h, j, j % plain_.dv, first_k_), value);
      }
    }
  }
}

Shape OracleCase::OutShape() const {
  return set_.packed() ? Shape{first_q_.back(), plain_.q_heads, plain_.dv}
                       : Shape{plain_.batch, plain_.q_heads, plain_.tq, plain_.dv};
}

Shape OracleCase::LseShape() const {
  return set_.packed() ? Shape{plain_.q_heads, first_q_.back()} : Shape{plain_.batch, plain_.q_heads, plain_.tq};
}

void OracleCase::Prepare(Planting planting) {
  Plant(planting);
  ForceIsa(set_.isa());
  SetThreads(static_cast<int>(set_.Number(Factor::kThreads)));
}

Outputs OracleCase::RunLibrary(Planting planting) {
  Prepare(planting);
  TypedTensor out(set_.q_dtype(), OutShape(), LayoutOf(Factor::kOutLayout));
  TypedTensor lse(DType::kF32, LseShape(), LayoutOf(Factor::kLse));
  const Tensor lse_view = lse.view();
  const bool has_lse = set_[Factor::kLse] != 0;
  std::optional<Capture> capture;
  if (set_.captured() == Captured::kNothing) {
    Attention(q_->view(), k_->view(), v_->view(), options_, out.view(), has_lse ? &lse_view : nullptr);
  } else {
    capture = AttentionWithCapture(q_->view(), k_->view(), v_->view(), options_, request_, out.view(),
                                   has_lse ? &lse_view : nullptr);
  }
  Outputs outputs = Collect(out, has_lse ? &lse : nullptr);
  outputs.capture = std::move(capture);
  return outputs;
}

Outputs OracleCase::Collect(const TypedTensor& out, const TypedTensor* lse) const {
  Outputs outputs;
  const int64_t rows = plain_.batch * plain_.q_heads * plain_.tq;
  outputs.out.assign(static_cast<size_t>(rows * plain_.dv), NotANumber());
  if (lse != nullptr) outputs.lse.assign(static_cast<size_t>(rows), NotANumber());
  outputs.gaps_untouched = out.GapsAreUntouched() && (lse == nullptr || lse->GapsAreUntouched());
  for (int64_t b = 0; b < plain_.batch; ++b) {
    for (int64_t h = 0; h < plain_.q_heads; ++h) {
      for (int64_t i = 0; i < plain_.rows[static_cast<size_t>(b)]; ++i) {
        const int64_t row = plain_.Row(b, h, i);
        for (int64_t c = 0; c < plain_.dv; ++c) {
          outputs.out[static_cast<size_t>(row * plain_.dv + c)] = out.At(Where(b, h, i, c, first_q_));
        }
        if (lse == nullptr) continue;
        outputs.lse[static_cast<size_t>(row)] = lse->At(AtRow(b, h, i));
      }
    }
  }
  return outputs;
}

std::string OracleCase::ComparePlanted(const Outputs& zeros, Outputs& planted) const {
  for (int64_t b = 0; b < plain_.batch; ++b) {
    for (int64_t h = 0; h < plain_.q_heads; ++h) {
      for (int64_t i = 0; i < plain_.rows[static_cast<size_t>(b)]; ++i) {
        const std::string wrong = ComparePlantedRow(zeros, planted, b, h, i);
        if (!wrong.empty()) {
          return wrong + " at b " + std::to_string(b) + " h " + std::to_string(h) + " i " + std::to_string(i);
        }
      }
    }
  }
  return {};
}

std::string OracleCase::ComparePlantedRow(const Outputs& zeros, Outputs& planted, int64_t b, int64_t h,
                                          int64_t i) const {
  const Planted what = set_.planted();
  const bool any_number = what == Planted::kInfKey;  // its score is an infinity or NaN: any of the three may come out
  const bool in_keys = what == Planted::kNanKey || what == Planted::kNanBoth || any_number;
  bool sees = false, keeps = false;  // dropout may leave nothing of a row, NaN or not
  std::vector<char> channel_sees(static_cast<size_t>(plain_.dv));
  for (int64_t j = 0; j < plain_.tk; ++j) {
    if (!plain_.IsVisible(b, h, i, j)) continue;
    keeps |= plain_.IsKept(b, h, i, j);
    if (!IsPlanted(b, j)) continue;
    sees = true;
    if (plain_.IsKept(b, h, i, j)) channel_sees[static_cast<size_t>(j % plain_.dv)] = 1;
  }
  const int64_t row = plain_.Row(b, h, i);
  for (int64_t c = 0; c < plain_.dv; ++c) {
    double& with = planted.out[static_cast<size_t>(row * plain_.dv + c)];
    const double without = zeros.out[static_cast<size_t>(row * plain_.dv + c)];
    const bool shows = (sees && in_keys && keeps) || channel_sees[static_cast<size_t>(c)] != 0;
    if (shows && std::isfinite(with) && !any_number) return "a visible key that is not finite does not show in out";
    if (!sees && !Same(with, without)) return "what a blocked key holds changes out";
    if (!shows && !in_keys && !std::isfinite(with) && std::isfinite(without))
      return "a value that is not finite spreads to other channels";
    if (shows || (sees && in_keys)) with = without;
  }
  if (zeros.lse.empty()) return {};
  double& with = planted.lse[static_cast<size_t>(row)];
  const double without = zeros.lse[static_cast<size_t>(row)];
  if (!sees || !in_keys) return Same(with, without) ? "" : "what a blocked key holds changes lse";
  if (!any_number && !std::isnan(with)) return "a visible NaN key does not show in lse";
  with = without;
  return {};
}

}  // namespace qkv::test
