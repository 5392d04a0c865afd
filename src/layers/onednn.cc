#include "layers/onednn.h"

#include "qkv/error.h"
#include "runtime/aligned.h"

namespace qkv::onednn {

const dnnl::engine& Cpu() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& ThreadStream() {
  thread_local dnnl::stream stream(Cpu());
  return stream;
}

void Rethrow(const dnnl::error& error, const std::string& what) {
  if (error.status == dnnl_out_of_memory) throw Error(ErrorCode::kOutOfMemory, "out of memory", what);
  throw Error(ErrorCode::kInternal, "oneDNN failed", what, "success",
              std::string(error.what()) + " (status " + std::to_string(error.status) + ")");
}

void* ThreadScratch(size_t bytes) {
  thread_local AlignedBuffer<unsigned char> buffer;
  if (static_cast<size_t>(buffer.size()) < bytes)
    buffer = AlignedBuffer<unsigned char>(static_cast<int64_t>(bytes));
  return buffer.data();
}

}  // namespace qkv::onednn
