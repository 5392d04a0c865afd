set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo" FORCE)
endif()

# Warnings and sanitizers are ours alone: an INTERFACE target that is never exported.
add_library(qkv_settings INTERFACE)
target_compile_options(qkv_settings INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion
                       -ffp-contract=off  # a contraction chosen by the compiler would change bits
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)  # g++ 12 sees overlaps in "a" + std::string
if(QKV_SANITIZE)
  target_compile_options(qkv_settings INTERFACE -fsanitize=${QKV_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(qkv_settings INTERFACE -fsanitize=${QKV_SANITIZE})
endif()
