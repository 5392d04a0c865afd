// A Linear on oneDNN, of versions 2 and 3.
#include <algorithm>
#include <compare>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/pairs.h"
#include "kernels/triple_matmul.h"
#include "layers/linear_backend.h"
#include "layers/onednn.h"
#include "layers/panels.h"
#include "runtime/task_runs.h"
#include "qkv/error.h"
#include "runtime/aligned.h"
#include "runtime/cpu.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

using dnnl::memory;
constexpr auto kFloat = memory::data_type::f32;

using onednn::Cpu;
using onednn::Rethrow;
using onednn::ThreadScratch;
using onednn::ThreadStream;
using onednn::TypeOf;

// What generated code depends on. Threads: oneDNN divides the work, and sizes its scratch memory, at creation.
struct MultiplyKey {
  int64_t rows, inputs, outputs;
  Into into;
  bool biased;
  DType dtype, y_dtype;  // of x and the weight, of y
  int threads;
  auto operator<=>(const MultiplyKey&) const = default;
};

// A multiply for one number of rows. Const use is safe from many threads at once: scratch memory is the
// caller's.
struct Multiply {
  dnnl::matmul primitive;
  memory::desc x, weight, y, scratch;
};

memory::desc BiasShape(int64_t outputs) { return {{1, outputs}, kFloat, memory::format_tag::ab}; }

dnnl::matmul::primitive_desc Describe(const MultiplyKey& key, const memory::desc& x, const memory::desc& y) {
  dnnl::post_ops steps;
  if (key.into == Into::kAdd) steps.append_sum(1);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(steps);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const memory::desc weight({key.inputs, key.outputs}, TypeOf(key.dtype), memory::format_tag::any);
  const memory::desc bias = key.biased ? BiasShape(key.outputs) : memory::desc();
#if DNNL_VERSION_MAJOR >= 3
  return {Cpu(), x, weight, bias, y, attributes};
#else
  return {dnnl::matmul::desc(x, weight, bias, y), attributes, Cpu()};
#endif
}

Multiply CreateMultiply(const MultiplyKey& key) {
  const memory::desc x({key.rows, key.inputs}, TypeOf(key.dtype), memory::format_tag::ab);
  const memory::desc y({key.rows, key.outputs}, TypeOf(key.y_dtype), memory::format_tag::ab);
  const auto described = Describe(key, x, y);
  return {dnnl::matmul(described), x, described.weights_desc(), y, described.scratchpad_desc()};
}

onednn::PrimitiveCache<MultiplyKey, Multiply>& Cache() {
  static onednn::PrimitiveCache<MultiplyKey, Multiply> cache(CreateMultiply);
  return cache;
}

// A weight in the layouts that the multiplies ask for: one on most processors whatever the number of rows, so
// another one is made from it only when it is first needed.
class PackedWeight {
 public:
  PackedWeight(const LinearParameters& p, const memory::desc& layout) {
    Packed packed = Allocate(layout);
    if (!PackParts(p, packed)) PackStacked(p, packed);
    packed_.push_back(std::move(packed));
  }

  // The first layout's, which never moves.
  const void* data() const { return packed_.front().storage.data(); }

  // Whether the first layout is that of kernels/project_pairs.h.
  bool IsInPairPanels(int64_t inputs, int64_t outputs) const {
    const memory::desc panels({inputs, outputs}, memory::data_type::bf16, memory::format_tag::BA16a64b2a);
    return packed_.front().view.get_desc() == panels;
  }

  // Whether the first layout is that of kernels/project.h: 64 outputs for each input in turn, inputs not padded.
  bool IsInPanels(int64_t inputs, int64_t outputs, int64_t columns) const {
    const memory::desc panels({inputs, outputs}, kFloat, memory::format_tag::BA16a64b);
    return columns == 64 && inputs % 16 == 0 && packed_.front().view.get_desc() == panels;
  }

  memory In(const memory::desc& layout) const {
    const std::lock_guard lock(mutex_);
    for (const Packed& packed : packed_) {
      if (packed.view.get_desc() == layout) return packed.view;
    }
    Packed packed = Allocate(layout);
    Reorder(packed_.front().view, packed.view);
    packed_.push_back(std::move(packed));
    return packed_.back().view;
  }

 private:
  struct Packed {
    AlignedBuffer<unsigned char> storage;
    memory view;
  };

  static Packed Allocate(const memory::desc& layout) {
    Packed packed{AlignedBuffer<unsigned char>(static_cast<int64_t>(layout.get_size())), {}};
    packed.view = memory(layout, Cpu(), packed.storage.data());
    return packed;
  }

  static void Reorder(memory from, memory to) {
    dnnl::reorder(from, to).execute(ThreadStream(), from, to);
    ThreadStream().wait();
  }

  static memory Plain(const float* weight, int64_t inputs, int64_t outputs) {
    return {{{inputs, outputs}, kFloat, memory::format_tag::ba}, Cpu(), const_cast<float*>(weight)};
  }

  // Each part to its place among the outputs. False where the layout has blocks that two parts would share.
  static bool PackParts(const LinearParameters& p, const Packed& packed) {
    std::vector<memory> places;
    int64_t first = 0;
    for (const LinearPart& part : p.parts) {
      const memory::desc place =
          packed.view.get_desc().submemory_desc({p.inputs, part.outputs}, {0, first}, /*allow_empty=*/true);
      if (!place) return false;
      places.emplace_back(place, Cpu(), packed.view.get_data_handle());
      first += part.outputs;
    }
    for (size_t i = 0; i < places.size(); ++i) {
      Reorder(Plain(p.parts[i].weight, p.inputs, p.parts[i].outputs), places[i]);
    }
    return true;
  }

  static void PackStacked(const LinearParameters& p, const Packed& packed) {
    const int64_t outputs = p.outputs();
    AlignedBuffer<float> stacked(outputs * p.inputs);
    for (int64_t n = 0; n < outputs; ++n) std::copy_n(p.Row(n), p.inputs, stacked.data() + n * p.inputs);
    Reorder(Plain(stacked.data(), p.inputs, outputs), packed.view);
  }

  mutable std::mutex mutex_;
  mutable std::vector<Packed> packed_;
};

class OneDnnBackend : public LinearBackend {
 public:
  explicit OneDnnBackend(const LinearParameters& p)
      : inputs_(p.inputs),
        outputs_(p.outputs()),
        dtype_(p.dtype),
        bias_(p.biased() ? p.Bias() : AlignedBuffer<float>()),
        weight_(p, Cache().Get(Key(kUsualRows, Into::kOverwrite, p.dtype, Threads()))->weight) {
    if (p.biased()) bias_view_ = memory(BiasShape(outputs_), Cpu(), bias_.data());
    UsePanels();
  }

  void Run(ConstRows x, int64_t rows, Rows y, Into into) const override try {
    if (rows <= few_rows_) return MultiplyFew(x, rows, y, into);
    if (splits_) return Split().Multiply(x, rows, y, into);
    if (!on_tiles_) return MultiplyAtOnce(x, rows, y, into);
    MultiplyOnTiles(x, rows, y, into);
  } catch (const dnnl::error& error) {
    Rethrow(error, "multiply of (" + std::to_string(rows) + ", " + std::to_string(inputs_) + ") by (" +
                       std::to_string(inputs_) + ", " + std::to_string(outputs_) + ")");
  }

  DType operand() const override { return dtype_; }

 private:
  static constexpr int64_t kUsualRows = 64;  // whose layout is packed first
  // With few rows, reading the weight takes as long as multiplying. oneDNN does one and then the other, our tiles both
  // at once: they win up to about so many rows. In bfloat16 that depends on where the weight is read from: from about
  // 4 MiB on it is not in the second-level caches any more when it is needed again.
  static constexpr int64_t kFewRows = 64, kFewPairRows = 32, kFewPairRowsOfLarge = kPairPanelRows;
  static constexpr int64_t kLargeWeight = int64_t{4} << 20;  // bytes

  // On tiles one in four numbers of rows takes oneDNN 2 to 14 times as long as its neighbours: those that cut into equal
  // blocks of 51 to 63 rows, it seems. Multiples of 64 are fast, and on one thread whole tiles up to kMostPartRows.
  static constexpr int64_t kTileRows = 16, kBlockRows = 64;
  // A part reads the whole weight, so it is large; but two thirds of what is left of a thread's share at most, since
  // others can take over only what has not begun. Shares of fewer rows than three blocks leave too little for that.
  static constexpr int64_t kMostPartRows = 256, kLeastShare = 3 * kBlockRows;
  static int64_t PartRows(int64_t rows_left) {
    int64_t rows = kMostPartRows;
    while (rows > kBlockRows && 3 * rows > 2 * rows_left) rows /= 2;
    return std::min(rows, rows_left);
  }

  void UsePanels() {
    const Isa isa = ChosenIsa();
    const PanelKernel kernel = ChosenPanelKernel();
    if (dtype_ == DType::kF32 && weight_.IsInPanels(inputs_, outputs_, kernel.columns)) {
      panels_ = {static_cast<const float*>(weight_.data()), bias_.data(), inputs_, outputs_, kernel};
      splits_ = HasTripleMatMul(isa);
      few_rows_ = splits_ ? kFewTripleLines : kFewRows;
    }
    if (dtype_ == DType::kBF16 && HasPairKernels(isa) && weight_.IsInPairPanels(inputs_, outputs_)) {
      const auto* packed = static_cast<const BFloat16*>(weight_.data());
      pairs_ = {packed, bias_.data(), inputs_, outputs_, PairPanelKernelFor(isa)};
      few_rows_ = inputs_ * outputs_ * int64_t{sizeof(BFloat16)} < kLargeWeight ? kFewPairRows : kFewPairRowsOfLarge;
      on_tiles_ = isa == Isa::kAmx;
    }
  }

  void MultiplyFew(ConstRows x, int64_t rows, Rows y, Into into) const {
    if (dtype_ == DType::kBF16) return MultiplyPanels(pairs_, x, rows, y, into);
    MultiplyPanels(panels_, x, rows, y, into);
  }

  // Made when it is first needed: many a model only ever sees few rows.
  const SplitPanels& Split() const {
    std::call_once(split_once_, [&] { split_.emplace(panels_); });
    return *split_;
  }

  void MultiplyOnTiles(ConstRows x, int64_t rows, Rows y, Into into) const {
    const bool divided = rows >= kLeastShare * Threads();
    const int64_t whole = rows - rows % (divided ? kTileRows : kBlockRows);
    if (whole < rows && rows <= kPairPanelRows) return MultiplyFew(x, rows, y, into);
    if (divided) MultiplyInParts(x, whole, y, into);
    if (!divided) MultiplyAtOnce(x, whole, y, into);
    if (whole < rows) MultiplyFew(x.From(whole * inputs_), rows - whole, y.From(whole * outputs_), into);
  }

  // oneDNN gives every thread the same share.
  void MultiplyAtOnce(ConstRows x, int64_t rows, Rows y, Into into) const {
    const auto multiply = Cache().Get(Key(rows, into, y.dtype, Threads()));
    Execute(*multiply, Convert(x, rows * inputs_, dtype_), y);
  }

  // Rows that one thread multiplies.
  struct Part {
    int64_t first;
    std::shared_ptr<const Multiply> multiply;
  };

  // Every thread has the same share, in parts that others take over when they are through with theirs: of two
  // processors that share tiles with strangers, one may have half the other's speed. rows: whole tiles.
  void MultiplyInParts(ConstRows x, int64_t rows, Rows y, Into into) const {
    const int threads = Threads();
    const ConstRows typed_x = Convert(x, rows * inputs_, dtype_);
    const OneThread one;
    std::vector<Part> parts;
    TaskRuns runs(threads);
    for (int thread = 0; thread < threads; ++thread) {
      const auto begin = static_cast<uint32_t>(parts.size());
      const int64_t tiles = rows / kTileRows, last = tiles * (thread + 1) / threads * kTileRows;
      for (int64_t first = tiles * thread / threads * kTileRows, count = 0; first < last; first += count) {
        count = PartRows(last - first);
        parts.push_back({first, Cache().Get(Key(count, into, y.dtype, 1))});
      }
      runs.Set(thread, begin, static_cast<uint32_t>(parts.size()));
    }
    const auto multiply = [&](int64_t, int thread) {
      const Part& part = parts[runs.Take(thread)];
      Execute(*part.multiply, typed_x.From(part.first * inputs_), y.From(part.first * outputs_));
    };
    ParallelFor(static_cast<int64_t>(parts.size()), multiply, {}, threads);
  }

  void Execute(const Multiply& multiply, ConstRows x, Rows y) const {
    std::unordered_map<int, memory> arguments{
        {DNNL_ARG_SRC, memory(multiply.x, Cpu(), const_cast<void*>(x.data))},
        {DNNL_ARG_WEIGHTS, weight_.In(multiply.weight)},
        {DNNL_ARG_DST, memory(multiply.y, Cpu(), y.data)},
        {DNNL_ARG_SCRATCHPAD, memory(multiply.scratch, Cpu(), ThreadScratch(multiply.scratch.get_size()))}};
    if (bias_.size() > 0) arguments.emplace(DNNL_ARG_BIAS, bias_view_);
    multiply.primitive.execute(ThreadStream(), arguments);
    ThreadStream().wait();
  }

  MultiplyKey Key(int64_t rows, Into into, DType y_dtype, int threads) const {
    return {rows, inputs_, outputs_, into, bias_.size() > 0, dtype_, y_dtype, threads};
  }

  int64_t inputs_, outputs_;
  DType dtype_;
  AlignedBuffer<float> bias_;
  PackedWeight weight_;
  memory bias_view_;
  bool on_tiles_ = false;  // AMX's
  bool splits_ = false;    // whether many rows are multiplied as triples of bfloat16, over the panels
  int64_t few_rows_ = 0;   // up to so many are multiplied by our tiles, over the same weight: one of these
  Panels<float> panels_;
  mutable std::once_flag split_once_;
  mutable std::optional<SplitPanels> split_;  // panels_, where it splits_
  PairPanels pairs_;
};

// oneDNN may use no better instructions than the rest. It takes the limit before its first use only.
void LimitInstructions() {
  switch (ChosenIsa()) {
    case Isa::kSse4: dnnl::set_max_cpu_isa(dnnl::cpu_isa::sse41); return;
    case Isa::kAvx2: dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2); return;
    case Isa::kAvx512: dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core); return;
    case Isa::kAvx512Bf16: dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16); return;
    default: return;
  }
}

// Generates code for a small multiply and runs it. Where executable memory is refused, generating it fails.
bool TryOneDnn() {
  try {
    LimitInstructions();
    constexpr int64_t kSize = 32;
    const std::vector<float> ones(kSize * kSize, 1.0f);
    std::vector<float> y(kSize * kSize);
    const LinearPart part{ones.data(), ones.data(), kSize};
    OneDnnBackend({kSize, std::span(&part, 1), DType::kF32})
        .Run(ones.data(), kSize, y.data(), Into::kOverwrite);
    return y.front() == kSize + 1.0f && y.back() == kSize + 1.0f;
  } catch (const dnnl::error&) {
    return false;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) return false;
    throw;
  }
}

}  // namespace

bool OneDnnRuns() {
  static const bool runs = TryOneDnn();
  return runs;
}

bool OneDnnRunsBFloat16() {
  const Isa isa = ChosenIsa();
  return (isa == Isa::kAvx512Bf16 || isa == Isa::kAmx) && OneDnnRuns();
}

std::unique_ptr<const LinearBackend> MakeOneDnnBackend(const LinearParameters& parameters) try {
  return std::make_unique<OneDnnBackend>(parameters);
} catch (const dnnl::error& error) {
  Rethrow(error, "packing a weight of (" + std::to_string(parameters.outputs()) + ", " +
                     std::to_string(parameters.inputs) + ")");
}

}  // namespace qkv
