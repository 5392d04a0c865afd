#include "runtime/memory.h"

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "qkv/error.h"

namespace qkv {
namespace {

// "1.5 GB", "16 TB"
std::string SizeText(double bytes) {
  constexpr const char* kUnits[] = {"GB", "TB", "PB", "EB"};
  double size = bytes * 1e-9;
  size_t unit = 0;
  for (; size >= 999.5; size /= 1000) {  // what would print as 1e+03
    if (++unit == std::size(kUnits)) return "more than 999 EB";
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.3g %s", size, kUnits[unit]);
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
  throw Error(ErrorCode::kOutOfMemory, "does not fit in memory", what, SizeText(available) + " at most",
              SizeText(bytes));
}

}  // namespace qkv
