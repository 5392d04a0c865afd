#include "runtime/memory.h"

#include <cstdio>
#include <fstream>
#include <string>

#include "qkv/error.h"

namespace qkv {
namespace {

std::string InGigabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g GB", bytes * 1e-9);
  return text;
}

}  // namespace

int64_t AvailableMemory() {
  std::ifstream lines("/proc/meminfo");
  int64_t kib = 0;
  for (std::string name; lines >> name;) {
    if (name == "MemAvailable:" && lines >> kib) return kib * 1024;
    std::getline(lines, name);
  }
  return 0;
}

void RequireMemory(double bytes, const char* what) {
  const auto available = static_cast<double>(AvailableMemory());
  if (available == 0 || bytes <= available) return;
  throw Error(ErrorCode::kOutOfMemory, "does not fit in memory", what, InGigabytes(available) + " at most",
              InGigabytes(bytes));
}

}  // namespace qkv
