// What the machine is and what it can do at best: what a measured speed is held against.
#pragma once

#include <cstdint>
#include <string>

namespace qkv::bench {

struct Machine {
  std::string processor;  // as the system names it
  std::string isa;        // the instruction set in use (runtime/cpu.h)
  int threads = 1;
  int64_t last_level_cache = 0;  // bytes; 0: unknown
  int64_t beyond_caches = 0;     // bytes that no cache holds a large part of: four times the last level's
  int64_t memory = 0;            // bytes that may still be taken
};
Machine DescribeMachine();

// Speeds of one kind of work; 0 where the machine has no such instruction.
struct Peaks {
  double f32 = 0;          // operations/s of float32 multiply-adds, 2 each
  double bf16_dot = 0;     // operations/s of the bfloat16 dot product (AVX512-BF16)
  double bf16_tiles = 0;   // operations/s of bfloat16 tiles (AMX)
  double read = 0;         // bytes/s read from memory, Machine::beyond_caches or a quarter of what is free
  int64_t read_bytes = 0;  // how much was read, by all threads

  double bf16() const;  // the best for bfloat16: tiles, dot products, else float32's
};
// Takes about half a second. Each thread works on its own data; the best of several tries counts.
Peaks MeasurePeaks(int threads);

// Asks the system for large pages, as numpy does for its arrays: reading them waits less for addresses.
void UseLargePages(void* memory, int64_t bytes);

}  // namespace qkv::bench
