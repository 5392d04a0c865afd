#include "qkv/kv_cache.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "attention/forward.h"
#include "attention/memory_error.h"
#include "attention/page_pool.h"
#include "attention/plan.h"
#include "attention/problem.h"
#include "attention/validate.h"
#include "kernels/load.h"

namespace qkv {
namespace {

void CheckConfig(const KVCacheConfig& config) {
  const auto at_least_one = [](const char* name, int64_t value) {
    if (value < 1) FailArgument(name, "too small", "at least 1", std::to_string(value));
  };
  at_least_one("batch", config.batch);
  at_least_one("kv_heads", config.kv_heads);
  at_least_one("d", config.d);
  at_least_one("dv", config.dv);
  at_least_one("capacity", config.capacity);
  if (config.page) at_least_one("page", *config.page);
  if (config.window) {
    at_least_one("window", *config.window);
    if (*config.window > config.capacity) {
      FailArgument("window", "larger than the capacity", "at most " + std::to_string(config.capacity),
                   std::to_string(*config.window));
    }
  }
  switch (config.dtype) {
    case DType::kF32: case DType::kBF16: case DType::kF16: case DType::kI8: return;
    default: FailType("dtype", "float32, bfloat16, float16 or int8", config.dtype);
  }
}

// A product of positive sizes; overflow is out of memory, as no machine has so much.
int64_t Product(std::initializer_list<int64_t> sizes) {
  int64_t product = 1;
  for (int64_t size : sizes) {
    if (__builtin_mul_overflow(product, size, &product)) {
      throw Error(ErrorCode::kOutOfMemory, "out of memory", "KVCache", "sizes that fit in memory", "more");
    }
  }
  return product;
}

int64_t KeysPerPage(const KVCacheConfig& config) {
  return std::min(config.page.value_or(config.capacity), config.capacity);
}
int64_t PagesPerSequence(const KVCacheConfig& config) {
  return (config.capacity - 1) / KeysPerPage(config) + 1;
}

// K of all heads, V of all heads, then the scales of K and of V; each part begins at a multiple of 64 bytes.
struct PageLayout {
  CachedKeys::Part k, v;
  int64_t bytes = 0;

  explicit PageLayout(const KVCacheConfig& config) {
    const int64_t keys = KeysPerPage(config), size = static_cast<int64_t>(SizeOf(config.dtype));
    const auto take = [this](int64_t count) {
      const int64_t at = bytes;
      bytes += (count + 63) / 64 * 64;
      return at;
    };
    const auto part = [&](int64_t width) {
      CachedKeys::Part result;
      result.width = width;
      result.head_bytes = Product({keys, width, size});
      result.offset = take(Product({result.head_bytes, config.kv_heads}));
      if (config.dtype == DType::kI8) {
        result.scale_head_bytes = keys * static_cast<int64_t>(sizeof(float));
        result.scales = take(Product({result.scale_head_bytes, config.kv_heads}));
      }
      return result;
    };
    Product({keys, config.kv_heads, config.d + config.dv, 16});  // the sums below stay far from overflow
    k = part(config.d);
    v = part(config.dv);
  }
};

// One token's head: elements `channel` apart, of float32 or the cache's own type, into its place.
void StoreToken(const void* from, DType from_dtype, int64_t channel, const CachedKeys::Part& part, DType dtype,
                int64_t head, int64_t slot, std::byte* page) {
  const int64_t size = static_cast<int64_t>(SizeOf(dtype));
  std::byte* to = page + part.offset + head * part.head_bytes + slot * part.width * size;
  if (from_dtype == dtype && channel == 1) {
    std::memcpy(to, from, static_cast<size_t>(part.width * size));
    return;
  }
  if (dtype != DType::kI8) {
    for (int64_t c = 0; c < part.width; ++c) StoreDouble(LoadDouble(from, from_dtype, c * channel), to, dtype, c);
    return;
  }
  float largest = 0;
  for (int64_t c = 0; c < part.width; ++c) {
    largest = std::max(largest, std::abs(LoadFloat(from, from_dtype, c * channel)));
  }
  const float scale = largest / 127.0f;
  reinterpret_cast<float*>(page + part.scales + head * part.scale_head_bytes)[slot] = scale;
  for (int64_t c = 0; c < part.width; ++c) {
    const float x = LoadFloat(from, from_dtype, c * channel);
    const float whole = scale > 0 ? std::nearbyint(x / scale) : 0.0f;
    reinterpret_cast<int8_t*>(to)[c] = static_cast<int8_t>(std::clamp(whole, -127.0f, 127.0f));
  }
}

}  // namespace

struct KVCache::State {
  explicit State(const KVCacheConfig& c)
      : config(c),
        layout(c),
        pool(Product({c.batch, PagesPerSequence(c)}), layout.bytes),
        lengths(static_cast<size_t>(c.batch), 0),
        firsts(static_cast<size_t>(c.batch), 0),
        tables(static_cast<size_t>(c.batch)) {
    for (PageTable& table : tables) table.keys_per_page = KeysPerPage(c);
  }

  int64_t kept() const { return PagesPerSequence(config) * KeysPerPage(config); }  // tokens that the pages hold

  // The page that token j of a sequence is written to, the sequence's own.
  std::byte* PageFor(size_t sequence, int64_t j) {
    std::vector<std::byte*>& pages = tables[sequence].pages;
    const size_t turn = static_cast<size_t>(j / KeysPerPage(config));
    if (turn >= static_cast<size_t>(PagesPerSequence(config))) {  // a ring comes round again
      std::byte*& page = pages[turn % pages.size()];
      return page = pool.MakeOwn(page);
    }
    if (turn == pages.size()) pages.push_back(pool.Take());
    return pages[turn] = pool.MakeOwn(pages[turn]);
  }

  void Release(size_t sequence, size_t from_page) {
    std::vector<std::byte*>& pages = tables[sequence].pages;
    while (pages.size() > from_page) {
      pool.Release(pages.back());
      pages.pop_back();
    }
  }

  KVCacheConfig config;
  PageLayout layout;
  PagePool pool;
  std::vector<int64_t> lengths, firsts;  // firsts: tokens before it have been dropped
  std::vector<PageTable> tables;
};

KVCache::KVCache(const KVCacheConfig& config) {
  CheckConfig(config);
  state_ = WithTypedMemoryError("KVCache", [&] { return std::make_unique<State>(config); });
}
KVCache::~KVCache() = default;
KVCache::KVCache(KVCache&&) noexcept = default;
KVCache& KVCache::operator=(KVCache&&) noexcept = default;

const KVCacheConfig& KVCache::config() const { return state_->config; }
const std::vector<int64_t>& KVCache::lengths() const { return state_->lengths; }
int64_t KVCache::bytes() const { return state_->pool.bytes(); }

namespace {

void CheckAppend(const KVCacheConfig& config, const char* name, const ConstTensor& tensor, int64_t width,
                 int64_t tokens) {
  CheckTensor(name, tensor);
  if (tensor.rank() != 4) FailArgument(name, "wrong rank", "(B, Hkv, T, D)", ToString(tensor.shape));
  CheckShape(name, tensor, {config.batch, config.kv_heads, tokens, width});
  if (tensor.dtype != DType::kF32 && (config.dtype == DType::kI8 || tensor.dtype != config.dtype)) {
    FailType(name, config.dtype == DType::kI8 || config.dtype == DType::kF32
                       ? "float32" : std::string("float32 or ") + NameOf(config.dtype), tensor.dtype);
  }
}

const std::byte* TokenAt(const ConstTensor& tensor, int64_t b, int64_t head, int64_t t) {
  return static_cast<const std::byte*>(tensor.data) +
         (b * tensor.stride[0] + head * tensor.stride[1] + t * tensor.stride[2]) *
             static_cast<int64_t>(SizeOf(tensor.dtype));
}

void CheckFinite(const char* name, const ConstTensor& tensor, const std::vector<int64_t>& counts) {
  for (int64_t b = 0; b < tensor.size(0); ++b) {
    for (int64_t head = 0; head < tensor.size(1); ++head) {
      for (int64_t t = 0; t < counts[static_cast<size_t>(b)]; ++t) {
        for (int64_t c = 0; c < tensor.size(3); ++c) {
          const float x = LoadFloat(TokenAt(tensor, b, head, t), tensor.dtype, c * tensor.stride[3]);
          if (!std::isfinite(x)) FailArgument(name, "not finite", "finite numbers, to round to int8", std::to_string(x));
        }
      }
    }
  }
}

}  // namespace

void KVCache::Append(const ConstTensor& k, const ConstTensor& v, const std::vector<int64_t>* counts) {
  const KVCacheConfig& config = state_->config;
  const int64_t tokens = k.rank() == 4 ? k.size(2) : 0;
  CheckAppend(config, "k", k, config.d, tokens);
  CheckAppend(config, "v", v, config.dv, tokens);
  if (counts != nullptr) CheckLengths("counts", *counts, config.batch, tokens);
  const std::vector<int64_t> taken =
      counts != nullptr ? *counts : std::vector<int64_t>(static_cast<size_t>(config.batch), tokens);
  for (size_t b = 0; b < taken.size(); ++b) {
    const int64_t room = config.window ? std::numeric_limits<int64_t>::max() : config.capacity;
    if (state_->lengths[b] > room - taken[b]) {
      FailArgument("k", "the cache is full", "at most " + std::to_string(config.capacity - state_->lengths[b]) +
                   " more tokens for sequence " + std::to_string(b), std::to_string(taken[b]));
    }
  }
  if (config.dtype == DType::kI8) {
    CheckFinite("k", k, taken);
    CheckFinite("v", v, taken);
  }
  for (size_t b = 0; b < taken.size(); ++b) {
    const int64_t old = state_->lengths[b], end = old + taken[b];
    for (int64_t t = 0; t < taken[b]; ++t) {
      std::byte* page = state_->PageFor(b, old + t);
      const int64_t slot = (old + t) % KeysPerPage(config), batch = static_cast<int64_t>(b);
      for (int64_t head = 0; head < config.kv_heads; ++head) {
        StoreToken(TokenAt(k, batch, head, t), k.dtype, k.stride[3], state_->layout.k, config.dtype, head, slot, page);
        StoreToken(TokenAt(v, batch, head, t), v.dtype, v.stride[3], state_->layout.v, config.dtype, head, slot, page);
      }
    }
    state_->lengths[b] = end;
    state_->firsts[b] = std::max(state_->firsts[b], end - state_->kept());
  }
}

namespace {

void CheckAttend(const KVCacheConfig& config, const ConstTensor& q, const AttentionOptions& options) {
  CheckTensor("q", q);
  if (q.rank() != 4) FailArgument("q", "wrong rank", "(B, Hq, Tq, D)", ToString(q.shape));
  if (q.size(0) != config.batch || q.size(3) != config.d) {
    FailArgument("q", "wrong shape", "(" + std::to_string(config.batch) + ", Hq, Tq, " + std::to_string(config.d) + ")",
                 ToString(q.shape));
  }
  if (config.dtype == DType::kI8) {
    if (q.dtype == DType::kF64) FailType("q", "float32, bfloat16 or float16", q.dtype);
  } else if (q.dtype != DType::kF32 && q.dtype != config.dtype) {
    FailType("q", std::string("float32 or the cache's type, ") + NameOf(config.dtype), q.dtype);
  }
  const auto refuse = [](const char* name, bool given) {
    if (given) FailArgument(name, "given with a cache", "none: the cache knows its lengths", "lengths");
  };
  refuse("kv_lengths", options.kv_lengths.has_value());
  refuse("cu_q", options.cu_q.has_value());
  refuse("cu_kv", options.cu_kv.has_value());
  if (config.window && options.window.left) {
    FailArgument("window.left", "given with a windowed cache", "none: the cache has its window",
                 std::to_string(*options.window.left));
  }
}

}  // namespace

void KVCache::Attend(const ConstTensor& q, const AttentionOptions& options, const Tensor& out,
                     const Tensor* lse) const {
  const KVCacheConfig& config = state_->config;
  CheckAttend(config, q, options);
  AttentionOptions own = options;
  own.kv_lengths = state_->lengths;
  if (config.window) own.window.left = *config.window - 1;
  // The operator's checks see K and V as tensors of the longest length; their elements come from the pages.
  const int64_t longest = *std::max_element(state_->lengths.begin(), state_->lengths.end());
  const DType seen = config.dtype == DType::kI8 ? q.dtype : config.dtype;
  const ConstTensor k(state_->pool.data(), seen, {config.batch, config.kv_heads, longest, config.d}, {0, 0, 0, 0});
  const ConstTensor v(state_->pool.data(), seen, {config.batch, config.kv_heads, longest, config.dv}, {0, 0, 0, 0});
  WithTypedMemoryError("KVCache", [&] {
    Problem problem = MakeProblem(q, k, v, own, out, lse);
    std::vector<CachedKeys> keys;
    keys.reserve(problem.sequences.size());
    for (Sequence& sequence : problem.sequences) {
      const size_t b = static_cast<size_t>(sequence.batch);
      keys.push_back({&state_->tables[b], config.dtype, state_->layout.k, state_->layout.v, state_->firsts[b]});
      sequence.cache = &keys.back();
    }
    RunForward(problem, MakeJobs(problem), nullptr, options.progress);
  });
}

namespace {

void CheckSequence(const char* name, int64_t sequence, int64_t batch) {
  if (sequence < 0 || sequence >= batch) {
    FailArgument(name, "no such sequence", "0 to " + std::to_string(batch - 1), std::to_string(sequence));
  }
}

}  // namespace

void KVCache::Fork(int64_t from, int64_t to) {
  CheckSequence("from", from, state_->config.batch);
  CheckSequence("to", to, state_->config.batch);
  if (from == to) return;
  const size_t source = static_cast<size_t>(from), copy = static_cast<size_t>(to);
  state_->Release(copy, 0);
  state_->tables[copy].pages = state_->tables[source].pages;
  for (std::byte* page : state_->tables[copy].pages) state_->pool.Share(page);
  state_->lengths[copy] = state_->lengths[source];
  state_->firsts[copy] = state_->firsts[source];
}

void KVCache::Trim(int64_t sequence, int64_t length) {
  CheckSequence("sequence", sequence, state_->config.batch);
  const size_t b = static_cast<size_t>(sequence);
  if (length < state_->firsts[b] || length > state_->lengths[b]) {
    FailArgument("length", "out of range",
                 std::to_string(state_->firsts[b]) + " to " + std::to_string(state_->lengths[b]),
                 std::to_string(length));
  }
  state_->lengths[b] = length;
  if (state_->firsts[b] > 0) return;  // a ring's pages stay in their turn
  const int64_t keys = KeysPerPage(state_->config);
  state_->Release(b, static_cast<size_t>((length + keys - 1) / keys));
}

}  // namespace qkv
