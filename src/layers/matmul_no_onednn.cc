// Stands in for matmul_onednn.cc in builds without oneDNN, where OneDnnMultiplies says no.
#include "layers/matmul.h"
#include "qkv/error.h"

namespace qkv {

void OneDnnMatMul(const Matrix&, const Matrix&, const Product&) {
  throw Error(ErrorCode::kInternal, "this build has no oneDNN");
}

}  // namespace qkv
