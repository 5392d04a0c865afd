#include "bench/workload.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "qkv/attention_backward.h"
#include "qkv/error.h"
#include "qkv/layers.h"
#include "qkv/model.h"
#include "runtime/aligned.h"
#include "runtime/half.h"
#include "runtime/threads.h"

namespace qkv::bench {
namespace {

// Elements of any type, in memory of large pages.
class Elements {
 public:
  Elements(DType dtype, int64_t count)
      : dtype_(dtype), count_(count), bytes_(count * static_cast<int64_t>(SizeOf(dtype))) {
    UseLargePages(bytes_.data(), bytes_.size());
  }

  void Fill(uint32_t stream) {
    constexpr int64_t kChunk = 1 << 16;
    ParallelFor((count_ + kChunk - 1) / kChunk, [&](int64_t chunk, int) {
      for (int64_t i = chunk * kChunk; i < std::min(count_, (chunk + 1) * kChunk); ++i) {
        Set(i, ValueAt(stream, static_cast<uint32_t>(i)));
      }
    });
  }

  float Get(int64_t i) const {
    if (dtype_ == DType::kBF16) return ToFloat(at<BFloat16>()[i]);
    if (dtype_ == DType::kF16) return ToFloat(at<Float16>()[i]);
    return at<float>()[i];
  }

  std::vector<float> AsFloat() const {
    std::vector<float> values(static_cast<size_t>(count_));
    for (int64_t i = 0; i < count_; ++i) values[static_cast<size_t>(i)] = Get(i);
    return values;
  }

  void* data() { return bytes_.data(); }

 private:
  template <class T>
  const T* at() const {
    return reinterpret_cast<const T*>(bytes_.data());
  }
  template <class T>
  T* at() {
    return reinterpret_cast<T*>(bytes_.data());
  }
  void Set(int64_t i, float value) {
    if (dtype_ == DType::kBF16)
      at<BFloat16>()[i] = ToBFloat16(value);
    else if (dtype_ == DType::kF16)
      at<Float16>()[i] = ToFloat16(value);
    else
      at<float>()[i] = value;
  }

  DType dtype_;
  int64_t count_;
  AlignedBuffer<char> bytes_;
};

class AttentionWorkload : public Workload {
 public:
  AttentionWorkload(const Case& one, int64_t copies)
      : case_(one),
        q_shape_{one.batch, one.q_heads, one.queries, one.d},
        kv_shape_{one.batch, one.kv_heads, one.keys, one.d},
        q_(one.dtype, q_shape_.elements()),
        out_(one.dtype, q_shape_.elements()) {
    options_.causal = one.causal;
    q_.Fill(0);
    for (int64_t i = 0; i < copies; ++i) {
      k_.emplace_back(one.dtype, kv_shape_.elements()).Fill(1);
      v_.emplace_back(one.dtype, kv_shape_.elements()).Fill(2);
    }
  }

  void Run() override {
    turn_ = (turn_ + 1) % k_.size();
    const ConstTensor q(q_.data(), case_.dtype, q_shape_), k(k_[turn_].data(), case_.dtype, kv_shape_),
        v(v_[turn_].data(), case_.dtype, kv_shape_);
    const Tensor out(out_.data(), case_.dtype, q_shape_);
    if (case_.kind == Kind::kAttention) return Attention(q, k, v, options_, out);
    CaptureRequest request;
    request.top_k = 16;
    request.entropy = request.received = true;
    capture_ = AttentionWithCapture(q, k, v, options_, request, out);
  }

  double operations() const override { return AttentionOperations(case_); }
  std::vector<float> Result() const override { return out_.AsFloat(); }
  int64_t copies() const override { return static_cast<int64_t>(k_.size()); }

 private:
  Case case_;
  Shape q_shape_, kv_shape_;
  AttentionOptions options_;
  Elements q_, out_;
  std::vector<Elements> k_, v_;
  Capture capture_;
  size_t turn_ = 0;
};

class BackwardWorkload : public Workload {
 public:
  explicit BackwardWorkload(const Case& one)
      : case_(one),
        q_shape_{one.batch, one.q_heads, one.queries, one.d},
        kv_shape_{one.batch, one.kv_heads, one.keys, one.d},
        lse_(DType::kF32, one.batch * one.q_heads * one.queries) {
    options_.causal = one.causal;
    for (const Shape& shape : {q_shape_, kv_shape_, kv_shape_, q_shape_}) {
      inputs_.emplace_back(one.dtype, shape.elements()).Fill(static_cast<uint32_t>(inputs_.size() - 1));
    }
    for (const Shape& shape : {q_shape_, q_shape_, kv_shape_, kv_shape_}) {
      outputs_.emplace_back(one.dtype, shape.elements());
    }
  }

  void Run() override {
    const auto view = [&](Elements& elements, const Shape& shape) {
      return Tensor(elements.data(), case_.dtype, shape);
    };
    const Tensor q = view(inputs_[0], q_shape_), k = view(inputs_[1], kv_shape_),
                 v = view(inputs_[2], kv_shape_);
    const Tensor out = view(outputs_[0], q_shape_);
    const Tensor lse(lse_.data(), DType::kF32, {case_.batch, case_.q_heads, case_.queries});
    Attention(q, k, v, options_, out, &lse);
    AttentionBackward(
        view(inputs_[3], q_shape_), q, k, v, out, lse, options_,
        {view(outputs_[1], q_shape_), view(outputs_[2], kv_shape_), view(outputs_[3], kv_shape_), {}, {}});
  }

  double operations() const override { return BackwardOperations(case_); }
  std::vector<float> Result() const override {  // dq, dk, dv
    std::vector<float> all;
    for (size_t n = 1; n < outputs_.size(); ++n) {
      const std::vector<float> one = outputs_[n].AsFloat();
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

 private:
  Case case_;
  Shape q_shape_, kv_shape_;
  AttentionOptions options_;
  Elements lse_;
  std::vector<Elements> inputs_, outputs_;  // q, k, v, dout; out, dq, dk, dv
};

class LayerWorkload : public Workload {
 public:
  explicit LayerWorkload(const Case& one)
      : case_(one),
        width_(one.q_heads * one.d),
        layer_(MakeLayer(one, width_)),
        x_(DType::kF32, one.batch * one.queries * width_),
        out_(static_cast<size_t>(one.batch * one.queries * width_)) {
    x_.Fill(0);
  }

  void Run() override {
    layer_.Forward(static_cast<const float*>(x_.data()), case_.batch, case_.queries, out_.data());
  }
  double operations() const override { return LayerOperations(case_); }
  std::vector<float> Result() const override { return out_; }

 private:
  static MultiHeadAttention MakeLayer(const Case& one, int64_t width) {
    MultiHeadConfig config;
    config.d_in = config.d_out = width;
    config.num_heads = one.q_heads;
    config.output_bias = false;
    config.dtype = one.dtype;
    MultiHeadParameters parameters;
    const float scale = 1.0f / std::sqrt(static_cast<float>(width));
    uint32_t stream = 1;
    for (std::vector<float>* matrix : {&parameters.w_q, &parameters.w_k, &parameters.w_v, &parameters.w_o}) {
      matrix->resize(static_cast<size_t>(width * width));
      ParallelFor(width, [&](int64_t row, int) {
        for (int64_t i = row * width; i < (row + 1) * width; ++i) {
          (*matrix)[static_cast<size_t>(i)] = scale * ValueAt(stream, static_cast<uint32_t>(i));
        }
      });
      ++stream;
    }
    return MultiHeadAttention(config, parameters);
  }

  Case case_;
  int64_t width_;
  MultiHeadAttention layer_;
  Elements x_;
  std::vector<float> out_;
};

class ModelWorkload : public Workload {
 public:
  explicit ModelWorkload(const Case& one)
      : case_(one),
        model_(LoadModel(one.model, {one.dtype})),
        ids_(static_cast<size_t>(one.batch * one.queries)) {
    // Ordinary tokens of any vocabulary of some size.
    const int64_t vocab = model_->info().vocab, first = std::min<int64_t>(1000, vocab / 2);
    for (size_t i = 0; i < ids_.size(); ++i) {
      ids_[i] = first + static_cast<int64_t>(i) * 7919 % std::min<int64_t>(20000, vocab - first);
    }
  }

  void Run() override { hidden_ = model_->Forward(ids_, case_.batch); }

  // A multiply-add for each token and each parameter that is not an embedding, and attention.
  double operations() const override {
    const ModelInfo& info = model_->info();
    const double parameters =
        static_cast<double>(info.parameters - (info.vocab + info.max_tokens) * info.width);
    Case attention = case_;
    attention.q_heads = info.heads;
    attention.d = info.width / info.heads;
    return 2.0 * static_cast<double>(ids_.size()) * parameters +
           static_cast<double>(info.layers) * AttentionOperations(attention);
  }
  std::vector<float> Result() const override { return hidden_; }

 private:
  Case case_;
  std::unique_ptr<const Model> model_;
  std::vector<int64_t> ids_;
  std::vector<float> hidden_;
};

double BytesNeeded(const Case& one) {
  if (one.kind == Kind::kLayer) {  // parameters as given and packed
    const double width = static_cast<double>(one.q_heads * one.d);
    return 2.0 * 4.0 * width * width * sizeof(float);
  }
  const double rows = static_cast<double>(one.batch * one.q_heads * one.queries * one.d);
  // Inputs, out, and keys and values packed as float32.
  const double packed = BytesRead(one) / static_cast<double>(SizeOf(one.dtype)) * sizeof(float);
  if (one.kind == Kind::kBackward) {  // q, k, v and out with their gradients, and dq as float32
    return 2.0 * BytesRead(one) + rows * (4.0 * static_cast<double>(SizeOf(one.dtype)) + sizeof(float));
  }
  return BytesRead(one) + packed + 2.0 * rows * static_cast<double>(SizeOf(one.dtype));
}

int64_t CopiesFor(const Case& one, const Machine& machine) {
  if (LimitOf(one) != Limit::kMemory) return 1;
  const double bytes =
      std::min(static_cast<double>(machine.beyond_caches), static_cast<double>(machine.memory) / 4);
  return std::max<int64_t>(2, static_cast<int64_t>(std::ceil(bytes / BytesRead(one))));
}

}  // namespace

float ValueAt(uint32_t stream, uint32_t i) {
  uint32_t bits = i * 0x9e3779b1u + stream * 0x85ebca77u;  // then mixed as MurmurHash3 finishes
  bits = (bits ^ (bits >> 16)) * 0x85ebca6bu;
  bits = (bits ^ (bits >> 13)) * 0xc2b2ae35u;
  bits ^= bits >> 16;
  constexpr float kWidth = 3.4641016f;  // sqrt(12): of a uniform distribution of variance 1
  return (static_cast<float>(bits >> 8) * 0x1p-24f - 0.5f) * kWidth;
}

std::unique_ptr<Workload> MakeWorkload(const Case& one, const Machine& machine) {
  if (one.kind == Kind::kModel) return std::make_unique<ModelWorkload>(one);
  const int64_t copies = CopiesFor(one, machine);
  const double bytes = BytesNeeded(one) + static_cast<double>(copies - 1) * BytesRead(one);
  if (machine.memory > 0 && bytes > static_cast<double>(machine.memory)) {
    throw Error(ErrorCode::kOutOfMemory, "too large for the free memory", one.name,
                std::to_string(machine.memory >> 20) + " MiB or less",
                std::to_string(static_cast<int64_t>(bytes) >> 20) + " MiB");
  }
  if (one.kind == Kind::kBackward) return std::make_unique<BackwardWorkload>(one);
  if (one.kind == Kind::kLayer) return std::make_unique<LayerWorkload>(one);
  return std::make_unique<AttentionWorkload>(one, copies);
}

}  // namespace qkv::bench
