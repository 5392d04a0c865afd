// A case made ready to run: its inputs, and the call.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bench/case.h"

namespace qkv::bench {

// Number i of a stream of numbers that look random: uniform, of mean 0 and variance 1. bench/compare makes the
// same (bench/side_by_side/data.py).
float ValueAt(uint32_t stream, uint32_t i);

class Workload {
 public:
  virtual ~Workload() = default;
  virtual void Run() = 0;
  virtual double operations() const = 0;
  virtual std::vector<float> Result() const = 0;  // of the last run
  // How many equal inputs take turns, so that none is in a cache when its turn comes. 1: they may be.
  virtual int64_t copies() const { return 1; }
};

// Inputs are drawn from streams 0, 1, 2 ... in the order of the call's arguments. Memory-limited cases take
// turns on copies of k and v, Machine::beyond_caches together or a quarter of the free memory.
// Error{kOutOfMemory} naming the case where it would not fit; LoadModel's errors.
std::unique_ptr<Workload> MakeWorkload(const Case& one, const Machine& machine);

}  // namespace qkv::bench
