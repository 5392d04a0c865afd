#include "models/look.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "models/finite.h"
#include "qkv/attention.h"
#include "qkv/error.h"

namespace qkv {
namespace {

// The chosen ones in ascending order, each once; all of them where none is named.
std::vector<int64_t> Chosen(std::vector<int64_t> chosen, int64_t count, const char* what) {
  if (chosen.empty()) {
    chosen.resize(static_cast<size_t>(count));
    std::iota(chosen.begin(), chosen.end(), 0);
  }
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  for (int64_t index : chosen) {
    if (index >= 0 && index < count) continue;
    throw Error(ErrorCode::kInvalidArgument, std::string("no such ") + what, what,
                "0 to " + std::to_string(count - 1), std::to_string(index));
  }
  return chosen;
}

// One head of a (1, H, T, D) tensor.
template <class AnyTensor>
AnyTensor Head(AnyTensor tensor, int64_t head) {
  tensor.data = static_cast<const char*>(tensor.data) +
                head * tensor.stride[1] * static_cast<int64_t>(SizeOf(tensor.dtype));
  tensor.shape.size[1] = 1;
  return tensor;
}

}  // namespace

void CheckLengths(const std::vector<int64_t>* lengths, int64_t batch, int64_t length) {
  if (lengths == nullptr) return;
  if (static_cast<int64_t>(lengths->size()) != batch) {
    throw Error(ErrorCode::kInvalidArgument, "wrong number of lengths", "lengths", std::to_string(batch),
                std::to_string(lengths->size()));
  }
  for (size_t b = 0; b < lengths->size(); ++b) {
    const int64_t real = (*lengths)[b];
    if (real >= 0 && real <= length) continue;
    throw Error(ErrorCode::kInvalidArgument, "bad length", "lengths[" + std::to_string(b) + "]",
                "0 to " + std::to_string(length), std::to_string(real));
  }
}

LookRecorder::LookRecorder(const ModelInfo& model, const Encoding& text, const LookRequest& request) {
  if (request.top_k < 0) {
    throw Error(ErrorCode::kInvalidArgument, "bad number of keys", "top_k", "0 or more",
                std::to_string(request.top_k));
  }
  const auto tokens = static_cast<int64_t>(text.ids.size());
  capture_.model = model.name;
  capture_.tokens = text.tokens;
  capture_.labels = text.labels;
  capture_.continues = text.continues;
  capture_.special = text.special;
  capture_.spans = text.span;
  capture_.ids = text.ids;
  capture_.layers = model.layers;
  capture_.heads = model.heads;
  capture_.layer_ids = Chosen(request.layers, model.layers, "layer");
  capture_.head_ids = Chosen(request.heads, model.heads, "head");
  capture_.query_ids = Chosen(request.queries, tokens, "query");
  capture_.causal = model.causal;
  capture_.top_k = request.top_k;
  const size_t rows = capture_.layer_ids.size() * capture_.head_ids.size() * capture_.query_ids.size();
  if (request.top_k == 0) capture_.weights.reserve(rows * text.ids.size());
}

void LookRecorder::Attend(int64_t layer, const LayerAttention& attention, const AttentionOptions& options) {
  const auto& [q, k, v, out] = attention;
  const auto& layers = capture_.layer_ids;
  if (!std::binary_search(layers.begin(), layers.end(), layer)) return Attention(q, k, v, options, out);

  CaptureRequest request;
  request.top_k = capture_.top_k;
  if (capture_.top_k == 0) request.rows = capture_.query_ids;
  if (static_cast<int64_t>(capture_.head_ids.size()) == capture_.heads) {
    return Record(AttentionWithCapture(q, k, v, options, request, out));
  }
  // Only the chosen heads are captured: memory grows with what was asked for, not with the model.
  Attention(q, k, v, options, out);
  const int64_t sharing = q.size(1) / k.size(1);
  for (int64_t h : capture_.head_ids) {
    Record(AttentionWithCapture(Head(q, h), Head(k, h / sharing), Head(v, h / sharing), options, request,
                                Head(out, h)));
  }
}

void LookRecorder::Record(const Capture& layer) {
  CheckFinite(layer.row_values, capture_.model);
  capture_.weights.insert(capture_.weights.end(), layer.row_values.begin(), layer.row_values.end());
  if (layer.top_k == 0) return;
  for (int64_t h = 0; h < layer.heads; ++h) {
    for (int64_t query : capture_.query_ids) {
      const int64_t row = (h * layer.queries + query) * layer.top_k;
      const auto keys = layer.top_keys.begin() + row;
      if (*keys < 0) FailNotFinite(capture_.model);  // a token sees itself at least, and only NaN is left out
      const auto weights = layer.top_weights.begin() + row;
      capture_.top_keys.insert(capture_.top_keys.end(), keys, keys + layer.top_k);
      capture_.top_weights.insert(capture_.top_weights.end(), weights, weights + layer.top_k);
    }
  }
}

}  // namespace qkv
