// Matrix products on oneDNN, in the layouts in which the operands lie: measured at 93 to 100 % of the speed of
// operands packed ahead, and packing changing weights costs more than that.
#include <compare>
#include <unordered_map>

#include "layers/matmul.h"
#include "layers/onednn.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

using dnnl::memory;

// What generated code depends on.
struct Key {
  int64_t m, n, k;
  Layout a, b;
  DType dtype, c_dtype;
  Into into;
  bool biased;
  int threads;
  auto operator<=>(const Key&) const = default;
};

struct Multiply {
  dnnl::matmul primitive;
  memory::desc a, b, c, bias, scratch;
};

memory::desc Describe(int64_t rows, int64_t columns, DType dtype, Layout layout) {
  const auto tag = layout == Layout::kRows ? memory::format_tag::ab : memory::format_tag::ba;
  return {{rows, columns}, onednn::TypeOf(dtype), tag};
}

Multiply Create(const Key& key) {
  const memory::desc a = Describe(key.m, key.k, key.dtype, key.a), b = Describe(key.k, key.n, key.dtype, key.b);
  const memory::desc c = Describe(key.m, key.n, key.c_dtype, Layout::kRows);
  const memory::desc bias = key.biased ? Describe(1, key.n, DType::kF32, Layout::kRows) : memory::desc();
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.into == Into::kAdd) {
    dnnl::post_ops steps;
    steps.append_sum(1);
    attributes.set_post_ops(steps);
  }
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc described(onednn::Cpu(), a, b, bias, c, attributes);
#else
  const dnnl::matmul::primitive_desc described(dnnl::matmul::desc(a, b, bias, c), attributes, onednn::Cpu());
#endif
  return {dnnl::matmul(described), a, b, c, bias, described.scratchpad_desc()};
}

}  // namespace

void OneDnnMatMul(const Matrix& a, const Matrix& b, const Product& c) try {
  static onednn::PrimitiveCache<Key, Multiply> cache(Create);
  const auto multiply =
      cache.Get({c.m, c.n, c.k, a.layout, b.layout, a.dtype, c.dtype, c.into, c.bias != nullptr, Threads()});
  const auto view = [](const memory::desc& shape, const void* data) {
    return memory(shape, onednn::Cpu(), const_cast<void*>(data));
  };
  std::unordered_map<int, memory> arguments{
      {DNNL_ARG_SRC, view(multiply->a, a.data)},
      {DNNL_ARG_WEIGHTS, view(multiply->b, b.data)},
      {DNNL_ARG_DST, view(multiply->c, c.data)},
      {DNNL_ARG_SCRATCHPAD, view(multiply->scratch, onednn::ThreadScratch(multiply->scratch.get_size()))}};
  if (c.bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, view(multiply->bias, c.bias));
  multiply->primitive.execute(onednn::ThreadStream(), arguments);
  onednn::ThreadStream().wait();
} catch (const dnnl::error& error) {
  onednn::Rethrow(error, "multiply of (" + std::to_string(c.m) + ", " + std::to_string(c.k) + ") by (" +
                             std::to_string(c.k) + ", " + std::to_string(c.n) + ")");
}

}  // namespace qkv
