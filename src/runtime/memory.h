// How much memory there is to take.
#pragma once

#include <cstdint>

namespace qkv {

// Bytes that the system can give without swapping, by its own estimate; 0 where it does not say.
int64_t AvailableMemory();

// Error{kOutOfMemory} naming `what` where `bytes` are more than that. A double, since sizes multiply beyond 63
// bits.
void RequireMemory(double bytes, const char* what);

}  // namespace qkv
