#include "arrays.h"
#include "bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string_view.h>

#include <string_view>
#include <tuple>
#include <unordered_map>

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
template <class T>
nb::object ToNumpy(std::vector<T>&& values, const std::vector<int64_t>& shape) {
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
    result["rows"] =
        ToNumpy(std::move(capture.row_values), {capture.batch, capture.heads, count, capture.keys});
  }
  return result;
}

// One option of the library's, set from what the package made of the caller's.
template <auto kMember>
void Set(qkv::AttentionOptions& options, nb::handle value) {
  auto& member = options.*kMember;
  member = nb::cast<std::remove_reference_t<decltype(member)>>(value);
}

template <auto kMember>
void SetTensor(qkv::AttentionOptions& options, nb::handle value) {
  options.*kMember = nb::cast<const qkv::Tensor&>(value);
}

// The package has checked the names.
void SetCausal(qkv::AttentionOptions& options, nb::handle value) {
  const auto causal = nb::cast<std::string_view>(value);
  options.causal = causal == "top_left"       ? qkv::Causal::kTopLeft
                   : causal == "bottom_right" ? qkv::Causal::kBottomRight
                                              : qkv::Causal::kNone;
}

void SetWindow(qkv::AttentionOptions& options, nb::handle value) {
  using Side = std::optional<int64_t>;
  std::tie(options.window.left, options.window.right) = nb::cast<std::pair<Side, Side>>(value);
}

const std::unordered_map<std::string_view, void (*)(qkv::AttentionOptions&, nb::handle)> kSetters{
    {"causal", &SetCausal},
    {"window", &SetWindow},
    {"scale", &Set<&qkv::AttentionOptions::scale>},
    {"softcap", &Set<&qkv::AttentionOptions::softcap>},
    {"mask", &SetTensor<&qkv::AttentionOptions::mask>},
    {"bias", &SetTensor<&qkv::AttentionOptions::bias>},
    {"alibi_slopes", &SetTensor<&qkv::AttentionOptions::alibi_slopes>},
    {"sink", &SetTensor<&qkv::AttentionOptions::sink>},
    {"q_lengths", &Set<&qkv::AttentionOptions::q_lengths>},
    {"kv_lengths", &Set<&qkv::AttentionOptions::kv_lengths>},
    {"cu_q", &Set<&qkv::AttentionOptions::cu_q>},
    {"cu_kv", &Set<&qkv::AttentionOptions::cu_kv>},
    {"offset", &Set<&qkv::AttentionOptions::offset>},
    {"dropout_p", &Set<&qkv::AttentionOptions::dropout_p>},
    {"seed", &Set<&qkv::AttentionOptions::seed>},
    {"chunked", &Set<&qkv::AttentionOptions::chunked>},
};

}  // namespace

qkv::AttentionOptions OptionsFrom(const nb::dict& given) {
  qkv::AttentionOptions options;
  options.progress = SignalProgress();
  for (const auto& [name, value] : given) kSetters.at(nb::cast<std::string_view>(name))(options, value);
  return options;
}

void BindOperator(nb::module_& module) {
  nb::class_<qkv::Tensor>(module, "Array");
  module.def(
      "describe",
      [](const std::string& name, nb::handle array, bool writable) {
        return Describe(name, array, writable ? Access::kWrite : Access::kRead);
      },
      "name"_a, "array"_a.none(), "writable"_a = false);

  module.def(
      "attention",
      [](const qkv::Tensor& q, const qkv::Tensor& k, const qkv::Tensor& v, const nb::dict& given,
         const qkv::Tensor& out, const qkv::Tensor* lse) {
        const qkv::AttentionOptions options = OptionsFrom(given);
        const nb::gil_scoped_release unlocked;
        qkv::Attention(q, k, v, options, out, lse);
      },
      "q"_a, "k"_a, "v"_a, "options"_a, "out"_a, "lse"_a.none());

  module.def(
      "attention_with_capture",
      [](const qkv::Tensor& q, const qkv::Tensor& k, const qkv::Tensor& v, const nb::dict& given, int64_t top_k,
         const std::optional<std::vector<int64_t>>& rows, bool entropy, bool received,
         const std::optional<std::string>& scores, const qkv::Tensor& out, const qkv::Tensor* lse) {
        qkv::CaptureRequest request;
        request.top_k = top_k;
        request.rows = rows;
        request.entropy = entropy;
        request.received = received;
        request.row_kind = RowKindFrom(scores);
        const qkv::AttentionOptions options = OptionsFrom(given);
        qkv::Capture capture;
        {
          const nb::gil_scoped_release unlocked;
          capture = qkv::AttentionWithCapture(q, k, v, options, request, out, lse);
        }
        return ToPython(std::move(capture), request);
      },
      "q"_a, "k"_a, "v"_a, "options"_a, "top_k"_a, "rows"_a.none(), "entropy"_a, "received"_a,
      "scores"_a.none(), "out"_a, "lse"_a.none());

  module.def(
      "attention_backward",
      [](const qkv::Tensor& q, const qkv::Tensor& k, const qkv::Tensor& v, const nb::dict& given,
         const qkv::Tensor& dout, const qkv::Tensor& out, const qkv::Tensor& lse, const qkv::Tensor* dlse,
         const qkv::Tensor& dq, const qkv::Tensor& dk, const qkv::Tensor& dv, const qkv::Tensor* dbias,
         const qkv::Tensor* dsink) {
        const qkv::AttentionOptions options = OptionsFrom(given);
        qkv::AttentionGradients gradients{dq, dk, dv, {}, {}};
        if (dbias != nullptr) gradients.dbias = *dbias;
        if (dsink != nullptr) gradients.dsink = *dsink;
        const nb::gil_scoped_release unlocked;
        qkv::AttentionBackward(dout, q, k, v, out, lse, options, gradients, dlse);
      },
      "q"_a, "k"_a, "v"_a, "options"_a, "dout"_a, "out"_a, "lse"_a, "dlse"_a.none(), "dq"_a, "dk"_a, "dv"_a,
      "dbias"_a.none(), "dsink"_a.none());

  module.def("alibi_slopes", &qkv::AlibiSlopes, "n"_a);
  module.def("get_num_threads", &qkv::Threads);
  module.def("set_num_threads", &qkv::SetThreads, "count"_a);
}
