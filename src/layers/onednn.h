// What all users of oneDNN share: the engine, a stream and scratch memory for each thread, and its failures as
// ours.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "qkv/tensor.h"

namespace qkv::onednn {

const dnnl::engine& Cpu();
dnnl::stream& ThreadStream();

[[noreturn]] void Rethrow(const dnnl::error& error, const std::string& what);

inline dnnl::memory::data_type TypeOf(DType dtype) {
  return dtype == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

// At least `bytes` of memory that no other thread uses, valid until the next call.
void* ThreadScratch(size_t bytes);

// The primitives of the process, by what their generated code depends on: layers of the same shape share them,
// and creating one takes 0.2 to 2 ms. What was not used for longest goes first.
template <class Key, class Primitive>
class PrimitiveCache {
 public:
  explicit PrimitiveCache(Primitive (*create)(const Key&)) : create_(create) {}

  std::shared_ptr<const Primitive> Get(const Key& key) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = entries_.find(key);
      if (found != entries_.end()) {
        found->second.last_use = ++uses_;
        return found->second.primitive;
      }
    }
    auto created = std::make_shared<const Primitive>(create_(key));  // unlocked: others go on meanwhile
    const std::lock_guard lock(mutex_);
    if (entries_.size() >= kCapacity) DropOldest();
    return entries_.insert_or_assign(key, Entry{std::move(created), ++uses_}).first->second.primitive;
  }

 private:
  // A BERT forward takes 4 a batch shape, so this remembers about 128 shapes of batches.
  static constexpr size_t kCapacity = 512;

  struct Entry {
    std::shared_ptr<const Primitive> primitive;
    uint64_t last_use;
  };

  void DropOldest() {
    auto oldest = entries_.begin();
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->second.last_use < oldest->second.last_use) oldest = entry;
    }
    entries_.erase(oldest);
  }

  Primitive (*create_)(const Key&);
  std::mutex mutex_;
  std::map<Key, Entry> entries_;
  uint64_t uses_ = 0;
};

}  // namespace qkv::onednn
