#include "arrays.h"
#include "bindings.h"

#include "qkv/kv_cache.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

void Construct(qkv::KVCache* self, int64_t batch, int64_t kv_heads, int64_t d, int64_t dv,
               const std::string& dtype, int64_t capacity, std::optional<int64_t> page,
               std::optional<int64_t> window) {
  new (self) qkv::KVCache({batch, kv_heads, d, dv, DTypeFrom(dtype), capacity, page, window});
}

void Append(qkv::KVCache& cache, const qkv::Tensor& k, const qkv::Tensor& v,
            const std::optional<std::vector<int64_t>>& counts) {
  const nb::gil_scoped_release unlocked;
  cache.Append(k, v, counts ? &*counts : nullptr);
}

void Attend(const qkv::KVCache& cache, const qkv::Tensor& q, const nb::dict& given, const qkv::Tensor& out,
            const qkv::Tensor* lse) {
  const qkv::AttentionOptions options = OptionsFrom(given);
  const nb::gil_scoped_release unlocked;
  cache.Attend(q, options, out, lse);
}

}  // namespace

void BindCache(nb::module_& module) {
  nb::class_<qkv::KVCache>(module, "KVCache")
      .def("__init__", &Construct, "batch"_a, "kv_heads"_a, "d"_a, "dv"_a, "dtype"_a, "capacity"_a,
           "page"_a.none(), "window"_a.none())
      .def("append", &Append, "k"_a, "v"_a, "counts"_a.none())
      .def("attend", &Attend, "q"_a, "options"_a, "out"_a, "lse"_a.none())
      .def("fork", &qkv::KVCache::Fork, "source"_a, "target"_a)
      .def("trim", &qkv::KVCache::Trim, "sequence"_a, "length"_a)
      .def_prop_ro("lengths", &qkv::KVCache::lengths)
      .def_prop_ro("nbytes", &qkv::KVCache::bytes);
}
