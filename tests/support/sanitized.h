// Whether this is a build with a sanitizer, which takes memory and address space of its own and ends the process where
// operator new would throw.
#pragma once

namespace qkv::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace qkv::test
