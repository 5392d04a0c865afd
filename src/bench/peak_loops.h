// Loops that do one thing only, in the widest instructions of their kind: multiply-adds on registers, and
// loads.
#pragma once

#include <cstdint>

namespace qkv::bench {

// Runs `steps` rounds of independent chains and returns the operations done.
using MultiplyLoop = double (*)(int64_t steps);

MultiplyLoop Float32Loop();      // never null
MultiplyLoop BFloat16DotLoop();  // null where the machine has no such instruction
MultiplyLoop BFloat16TileLoop();

// Adds up bytes / 8 words, several sums at a time, so that loads are all that is waited for. bytes: a multiple
// of 4096; the memory is aligned to 64.
using ReadLoop = uint64_t (*)(const void* memory, int64_t bytes);

ReadLoop WidestReadLoop();

}  // namespace qkv::bench
