// What instructions this processor has, and which ones to use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qkv {

// Ordered: a later one contains the earlier ones of its family. kAmx is kAvx512Bf16 and AMX's bfloat16 tiles.
enum class Isa { kPortable, kSse4, kAvx2, kAvx512, kAvx512Bf16, kAmx, kNeon };

const char* NameOf(Isa isa);              // "portable", "sse4", "avx2", "avx512", "avx512bf16", "amx", "neon"
std::vector<Isa> SupportedIsas();         // what this machine can run, least first; never empty
// The fastest of what is supported: the last, but for Intel's processors whose tiles may not be used. Their vdpbf16ps
// takes four times as long as a float32 multiply-add for twice the work (174 against 349 GF/s, measured), while AMD's
// takes as long.
Isa PreferredIsa(const std::vector<Isa>& supported, std::string_view vendor);
// QKV_ISA where set (Error{kInvalidArgument} for an unknown or unsupported name), else the preferred one.
Isa ChosenIsa();
void ForceIsa(Isa isa);                   // for tests and benchmarks

}  // namespace qkv
