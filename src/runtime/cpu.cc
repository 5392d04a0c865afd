#include "runtime/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "qkv/error.h"

namespace qkv {
namespace {

std::string Names(const std::vector<Isa>& isas) {
  std::string text;
  for (Isa isa : isas) text += (text.empty() ? "" : ", ") + std::string(NameOf(isa));
  return text;
}

// The processor's maker as cpuid spells it; empty where there is no cpuid.
std::string Vendor() {
#if defined(__x86_64__)
  unsigned eax = 0, name[3] = {};
  if (__get_cpuid(0, &eax, &name[0], &name[2], &name[1]) != 0) {
    return {reinterpret_cast<const char*>(name), sizeof(name)};
  }
#endif
  return {};
}

Isa FromEnvironment() {
  const std::vector<Isa> supported = SupportedIsas();
  const char* name = std::getenv("QKV_ISA");
  if (name == nullptr || *name == '\0') return PreferredIsa(supported, Vendor());
  for (Isa isa : supported) {
    if (std::string(NameOf(isa)) == name) return isa;
  }
  throw Error(ErrorCode::kInvalidArgument, "unknown or unsupported instruction set", "QKV_ISA",
              "one of " + Names(supported), name);
}

#if defined(__x86_64__)
// Clang 14's __builtin_cpu_supports does not know this one.
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// Linux gives a process the tile registers when it asks (since 5.16); older kernels and some sandboxes refuse.
bool MayUseTiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool HasAmxBf16() {
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kAmxBf16) == 0 || (edx & kAmxTile) == 0) return false;
  static const bool may_use = MayUseTiles();
  return may_use;
}
#endif

std::atomic<int> g_isa{-1};  // -1: not chosen yet

}  // namespace

const char* NameOf(Isa isa) {
  switch (isa) {
    case Isa::kPortable: return "portable";
    case Isa::kSse4: return "sse4";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx512Bf16: return "avx512bf16";
    case Isa::kAmx: return "amx";
    case Isa::kNeon: return "neon";
  }
  return "unknown";
}

// The sets are those that Highway's targets of the same names compile for.
std::vector<Isa> SupportedIsas() {
  std::vector<Isa> isas{Isa::kPortable};
#if defined(__x86_64__)
  const auto has = [](auto... flags) { return (flags && ...); };
  const bool sse4 =
      has(__builtin_cpu_supports("sse4.2"), __builtin_cpu_supports("aes"), __builtin_cpu_supports("pclmul"));
  const bool avx2 = has(sse4, __builtin_cpu_supports("avx2"), __builtin_cpu_supports("fma"), HasF16c(),
                        __builtin_cpu_supports("bmi"), __builtin_cpu_supports("bmi2"));
  const bool avx512 = has(avx2, __builtin_cpu_supports("avx512f"), __builtin_cpu_supports("avx512bw"),
                          __builtin_cpu_supports("avx512cd"), __builtin_cpu_supports("avx512dq"),
                          __builtin_cpu_supports("avx512vl"));
  if (sse4) isas.push_back(Isa::kSse4);
  if (avx2) isas.push_back(Isa::kAvx2);
  if (avx512) isas.push_back(Isa::kAvx512);
  const bool avx512bf16 = has(avx512, __builtin_cpu_supports("avx512bf16"));
  if (avx512bf16) isas.push_back(Isa::kAvx512Bf16);
  if (avx512bf16 && HasAmxBf16()) isas.push_back(Isa::kAmx);
#elif defined(__aarch64__)
  isas.push_back(Isa::kNeon);
#endif
  return isas;
}

Isa PreferredIsa(const std::vector<Isa>& supported, std::string_view vendor) {
  const bool slow_pairs = supported.back() == Isa::kAvx512Bf16 && vendor == "GenuineIntel";
  return slow_pairs ? Isa::kAvx512 : supported.back();
}

Isa ChosenIsa() {
  int isa = g_isa.load(std::memory_order_relaxed);
  if (isa < 0) {
    isa = static_cast<int>(FromEnvironment());
    g_isa.store(isa, std::memory_order_relaxed);
  }
  return static_cast<Isa>(isa);
}

void ForceIsa(Isa isa) {
  const std::vector<Isa> supported = SupportedIsas();
  if (std::find(supported.begin(), supported.end(), isa) == supported.end()) {
    throw Error(ErrorCode::kInvalidArgument, "instruction set not supported here", "isa", Names(supported),
                NameOf(isa));
  }
  g_isa.store(static_cast<int>(isa), std::memory_order_relaxed);
}

}  // namespace qkv
