// A session of a CausalModel: one key/value cache a layer.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "models/causal_model.h"
#include "qkv/error.h"
#include "qkv/kv_cache.h"

namespace qkv {
namespace {

// Tokens that pass through the layers together: enough for multiplies at full speed, and memory stays small however
// long a prompt is.
constexpr int64_t kChunk = 1024;
constexpr int64_t kPage = 256;  // tokens of a cache's page, which takes memory once it is reached

class CausalSession : public Session {
 public:
  CausalSession(const CausalModel& causal, int64_t most_tokens) : model_(causal), most_tokens_(most_tokens) {
    const CausalConfig& config = causal.config();
    KVCacheConfig cache;
    cache.kv_heads = config.kv_heads;
    cache.d = cache.dv = config.head_width;
    cache.dtype = causal.attention_dtype();
    cache.capacity = most_tokens;
    cache.page = std::min(kPage, most_tokens);
    caches_.reserve(static_cast<size_t>(config.layers));
    for (int64_t layer = 0; layer < config.layers; ++layer) caches_.emplace_back(cache);
    logits_ = AlignedBuffer<float>(config.vocab);
  }

  int64_t length() const override { return length_; }

  std::span<const float> Read(std::span<const int64_t> ids, const Progress& progress) override {
    ReadChunks(ids, progress, [&](float* h, int64_t rows) {
      if (length_ < read_until_) return;  // only the last token's logits are wanted
      float* last = h + (rows - 1) * model_.config().width;
      model_.Normalise(last, 1);
      model_.Logits(last, 1, logits_.data());
    });
    return {logits_.data(), static_cast<size_t>(logits_.size())};
  }

  std::vector<float> ReadAll(std::span<const int64_t> ids, const Progress& progress) override {
    const int64_t vocab = model_.config().vocab;
    std::vector<float> logits(ids.size() * static_cast<size_t>(vocab));
    float* next = logits.data();
    ReadChunks(ids, progress, [&](float* h, int64_t rows) {
      model_.Normalise(h, rows);
      model_.Logits(h, rows, next);
      next += rows * vocab;
    });
    return logits;
  }

  void Trim(int64_t length) override {
    if (length < 0 || length > length_) {
      throw Error(ErrorCode::kInvalidArgument, "out of range", "length", "0 to " + std::to_string(length_),
                  std::to_string(length));
    }
    for (KVCache& cache : caches_) cache.Trim(0, length);
    length_ = length;
  }

 private:
  // Calls take(h, rows) with each chunk's rows after the last layer, once they are in the caches.
  void ReadChunks(std::span<const int64_t> ids, const Progress& progress,
                  const std::function<void(float* h, int64_t rows)>& take) {
    const auto count = static_cast<int64_t>(ids.size());
    model_.CheckTokens(ids, {1, count, length_}, most_tokens_);
    read_until_ = length_ + count;
    const int64_t layers = model_.config().layers, chunks = (count + kChunk - 1) / kChunk;
    Reserve(std::min(count, kChunk));
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const int64_t first = chunk * kChunk, rows = std::min(kChunk, count - first);
      const auto report = [&](int64_t done, int64_t) { return progress(chunk * layers + done, chunks * layers); };
      ReadChunk(ids.subspan(static_cast<size_t>(first), static_cast<size_t>(rows)),
                progress ? Progress(report) : Progress());
      take(buffers_.h.data(), rows);
    }
  }

  void ReadChunk(std::span<const int64_t> ids, const Progress& progress) try {
    const CausalModel::Passage passage{1, static_cast<int64_t>(ids.size()), length_};
    model_.Embed(ids, passage, buffers_);
    const auto attend = [&](int64_t layer, const LayerAttention& heads, const AttentionOptions& options) {
      KVCache& cache = caches_[static_cast<size_t>(layer)];
      cache.Append(heads.k, heads.v);
      cache.Attend(heads.q, options, heads.out);
    };
    model_.RunLayers(passage, model_.config().layers, attend, buffers_, progress);
    length_ += passage.length;
  } catch (...) {
    for (KVCache& cache : caches_) cache.Trim(0, length_);  // some have the chunk already
    throw;
  }

  void Reserve(int64_t rows) {
    if (rows <= reserved_rows_) return;
    buffers_ = model_.MakeBuffers(rows);
    reserved_rows_ = rows;
  }

  const CausalModel& model_;
  int64_t most_tokens_, length_ = 0, read_until_ = 0;
  std::vector<KVCache> caches_;
  CausalModel::Buffers buffers_;
  int64_t reserved_rows_ = 0;
  AlignedBuffer<float> logits_;
};

}  // namespace

std::unique_ptr<Session> StartSession(const Model& model, const SessionOptions& options) {
  const auto* causal = dynamic_cast<const CausalModel*>(&model);
  if (causal == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "the model does not read from the left and cannot continue a text",
                model.info().name, "a causal model", model.info().architecture);
  }
  const CausalConfig& config = causal->config();
  const int64_t most = options.most_tokens.value_or(config.max_tokens);
  const bool learned = !config.rope.has_value();
  if (most < 1 || (learned && most > config.max_tokens)) {
    throw Error(ErrorCode::kInvalidArgument, "bad number of tokens", "most_tokens",
                learned ? "1 to " + std::to_string(config.max_tokens) : "at least 1", std::to_string(most));
  }
  return std::make_unique<CausalSession>(*causal, most);
}

}  // namespace qkv
