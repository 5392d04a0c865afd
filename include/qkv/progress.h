// Progress of long calls, and their cancellation.
#pragma once

#include <cstdint>
#include <functional>

namespace qkv {

// Called from the calling thread at least every 0.2 s of a long call with the work done and the work in all
// (in units of the call's choosing, `total` > 0). Returning false cancels: the call throws Error{kCancelled}.
using Progress = std::function<bool(int64_t done, int64_t total)>;

}  // namespace qkv
