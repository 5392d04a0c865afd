// Choosing, at run time, among the versions of a table that a file was compiled into, one per instruction set.
// Used in the HWY_ONCE part of such a file: QKV_PICK_TABLE(isa, kTable) returns the chosen one.
#pragma once

#include "runtime/cpu.h"

#ifndef HWY_TARGETS
#error "include hwy/highway.h first: which versions there are is read from its macros"
#endif

#if HWY_TARGETS & HWY_AVX3
#define QKV_CASE_AVX512(table) case Isa::kAvx512: case Isa::kAvx512Bf16: case Isa::kAmx: return N_AVX3::table;
#else
#define QKV_CASE_AVX512(table)
#endif
#if HWY_TARGETS & HWY_AVX2
#define QKV_CASE_AVX2(table) case Isa::kAvx2: return N_AVX2::table;
#else
#define QKV_CASE_AVX2(table)
#endif
#if HWY_TARGETS & HWY_SSE4
#define QKV_CASE_SSE4(table) case Isa::kSse4: return N_SSE4::table;
#else
#define QKV_CASE_SSE4(table)
#endif

// The static target is what the compiler may use anywhere: portable code on x86-64, NEON on arm64.
#define QKV_PICK_TABLE(isa, table)                 \
  switch (isa) {                                   \
    QKV_CASE_AVX512(table)                         \
    QKV_CASE_AVX2(table)                           \
    QKV_CASE_SSE4(table)                           \
    default: return HWY_STATIC_DISPATCH(table);    \
  }
