// Stands in for linear_onednn.cc in builds without oneDNN.
#include "layers/linear_backend.h"
#include "qkv/error.h"

namespace qkv {

bool OneDnnRuns() { return false; }
bool OneDnnRunsBFloat16() { return false; }

std::unique_ptr<const LinearBackend> MakeOneDnnBackend(const LinearParameters&) {
  throw Error(ErrorCode::kInternal, "this build has no oneDNN");
}

}  // namespace qkv
