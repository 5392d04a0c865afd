#include "arrays.h"
#include "bindings.h"

#include <nanobind/ndarray.h>

#include "qkv/attention_backward.h"
#include "runtime/threads.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

// The package has checked the names.
qkv::RowKind RowKindFrom(const std::optional<std::string>& scores) {
  return scores == "raw"          ? qkv::RowKind::kRawScores
         : scores == "softcapped" ? qkv::RowKind::kSoftcappedScores
         : scores == "biased"     ? qkv::RowKind::kBiasedScores
                                  : qkv::RowKind::kWeights;
}

// The vector's memory, handed to numpy without a copy.
template <class T> nb::object ToNumpy(std::vector<T>&& values, const std::vector<int64_t>& shape) {
  auto* owned = new std::vector<T>(std::move(values));
  nb::capsule owner(owned, [](void* memory) noexcept { delete static_cast<std::vector<T>*>(memory); });
  std::vector<size_t> sizes(shape.begin(), shape.end());
  return nb::cast(nb::ndarray<nb::numpy, T>(owned->data(), sizes.size(), sizes.data(), owner));
}

nb::dict ToPython(qkv::Capture&& capture, const qkv::CaptureRequest& request) {
  const std::vector<int64_t> rows{capture.batch, capture.heads, capture.queries};
  nb::dict result;
  if (request.top_k > 0) {
    std::vector<int64_t> top = rows;
    top.push_back(capture.top_k);
    result["top_keys"] = ToNumpy(std::move(capture.top_keys), top);
    result["top_weights"] = ToNumpy(std::move(capture.top_weights), top);
  }
  if (request.entropy) result["entropy"] = ToNumpy(std::move(capture.entropy), rows);
  if (!capture.sink_weight.empty()) result["sink_weight"] = ToNumpy(std::move(capture.sink_weight), rows);
  if (request.received) {
    result["received"] = ToNumpy(std::move(capture.received), {capture.batch, capture.heads, capture.keys});
  }
  if (request.rows) {
    const int64_t count = static_cast<int64_t>(capture.rows.size());
    result["rows"] = ToNumpy(std::move(capture.row_values), {capture.batch, capture.heads, count, capture.keys});
  }
  return result;
}

}  // namespace

qkv::AttentionOptions OptionsFrom(const nb::dict& given) {
  qkv::AttentionOptions options;
  options.progress = SignalProgress();
  if (given.size() == 0) return options;
  const auto take = [&](const char* name, auto& to) {
    using T = std::remove_reference_t<decltype(to)>;
    if (given.contains(name)) to = nb::cast<T>(given[name]);
  };
  const auto take_tensor = [&](const char* name, std::optional<qkv::ConstTensor>& to) {
    if (given.contains(name)) to = TensorFrom(name, nb::cast<ArrayDescription>(given[name]));
  };
  std::string causal;
  take("causal", causal);
  options.causal = causal == "top_left"       ? qkv::Causal::kTopLeft
                   : causal == "bottom_right" ? qkv::Causal::kBottomRight
                                              : qkv::Causal::kNone;
  take("window_left", options.window.left);
  take("window_right", options.window.right);
  take("scale", options.scale);
  take("softcap", options.softcap);
  take("q_lengths", options.q_lengths);
  take("kv_lengths", options.kv_lengths);
  take("cu_q", options.cu_q);
  take("cu_kv", options.cu_kv);
  take("offset", options.offset);
  take("seed", options.seed);
  take("dropout_p", options.dropout_p);
  take_tensor("mask", options.mask);
  take_tensor("bias", options.bias);
  take_tensor("alibi_slopes", options.alibi_slopes);
  take_tensor("sink", options.sink);
  return options;
}

void BindOperator(nb::module_& module) {
  module.def("attention", [](const ArrayDescription& q, const ArrayDescription& k, const ArrayDescription& v,
                             const nb::dict& given, const ArrayDescription& out,
                             const std::optional<ArrayDescription>& lse) {
    const qkv::AttentionOptions options = OptionsFrom(given);
    const qkv::Tensor to = TensorFrom("out", out), lse_to = lse ? TensorFrom("lse", *lse) : qkv::Tensor();
    const qkv::ConstTensor from_q = TensorFrom("q", q), from_k = TensorFrom("k", k), from_v = TensorFrom("v", v);
    const nb::gil_scoped_release unlocked;
    qkv::Attention(from_q, from_k, from_v, options, to, lse ? &lse_to : nullptr);
  }, "q"_a, "k"_a, "v"_a, "options"_a, "out"_a, "lse"_a.none());

  module.def("attention_with_capture",
             [](const ArrayDescription& q, const ArrayDescription& k, const ArrayDescription& v,
                const nb::dict& given, int64_t top_k, const std::optional<std::vector<int64_t>>& rows, bool entropy,
                bool received, const std::optional<std::string>& scores, const ArrayDescription& out,
                const std::optional<ArrayDescription>& lse) {
    qkv::CaptureRequest request;
    request.top_k = top_k;
    request.rows = rows;
    request.entropy = entropy;
    request.received = received;
    request.row_kind = RowKindFrom(scores);
    const qkv::AttentionOptions options = OptionsFrom(given);
    const qkv::Tensor to = TensorFrom("out", out), lse_to = lse ? TensorFrom("lse", *lse) : qkv::Tensor();
    const qkv::ConstTensor from_q = TensorFrom("q", q), from_k = TensorFrom("k", k), from_v = TensorFrom("v", v);
    qkv::Capture capture;
    {
      const nb::gil_scoped_release unlocked;
      capture = qkv::AttentionWithCapture(from_q, from_k, from_v, options, request, to, lse ? &lse_to : nullptr);
    }
    return ToPython(std::move(capture), request);
  }, "q"_a, "k"_a, "v"_a, "options"_a, "top_k"_a, "rows"_a.none(), "entropy"_a, "received"_a, "scores"_a.none(),
     "out"_a, "lse"_a.none());

  module.def("attention_backward",
             [](const ArrayDescription& q, const ArrayDescription& k, const ArrayDescription& v, const nb::dict& given,
                const ArrayDescription& dout, const ArrayDescription& out, const ArrayDescription& lse,
                const std::optional<ArrayDescription>& dlse, const ArrayDescription& dq, const ArrayDescription& dk,
                const ArrayDescription& dv, const std::optional<ArrayDescription>& dbias,
                const std::optional<ArrayDescription>& dsink) {
    const qkv::AttentionOptions options = OptionsFrom(given);
    qkv::AttentionGradients gradients{TensorFrom("dq", dq), TensorFrom("dk", dk), TensorFrom("dv", dv), {}, {}};
    if (dbias) gradients.dbias = TensorFrom("dbias", *dbias);
    if (dsink) gradients.dsink = TensorFrom("dsink", *dsink);
    const qkv::ConstTensor from_q = TensorFrom("q", q), from_k = TensorFrom("k", k), from_v = TensorFrom("v", v);
    const qkv::ConstTensor by_out = TensorFrom("dout", dout), of_out = TensorFrom("out", out);
    const qkv::ConstTensor of_lse = TensorFrom("lse", lse), by_lse = dlse ? TensorFrom("dlse", *dlse) : qkv::Tensor();
    const nb::gil_scoped_release unlocked;
    qkv::AttentionBackward(by_out, from_q, from_k, from_v, of_out, of_lse, options, gradients,
                           dlse ? &by_lse : nullptr);
  }, "q"_a, "k"_a, "v"_a, "options"_a, "dout"_a, "out"_a, "lse"_a, "dlse"_a.none(), "dq"_a, "dk"_a, "dv"_a,
     "dbias"_a.none(), "dsink"_a.none());

  module.def("alibi_slopes", &qkv::AlibiSlopes, "n"_a);
  module.def("get_num_threads", &qkv::Threads);
  module.def("set_num_threads", &qkv::SetThreads, "count"_a);
}
