# What is used, why: docs/design.md. Every package comes from Debian; scripts/setup installs them.
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
find_package(nlohmann_json 3 CONFIG REQUIRED)
if(NOT QKV_OPERATOR_ONLY)
  find_package(PkgConfig REQUIRED)
  find_package(ICU 67 REQUIRED COMPONENTS uc i18n)
  find_package(fmt CONFIG REQUIRED)
  find_package(ZLIB REQUIRED)
  pkg_check_modules(PANGO REQUIRED IMPORTED_TARGET pangocairo cairo-svg cairo-pdf)
endif()
if(QKV_BUILD_CLI)
  find_package(CLI11 2 CONFIG REQUIRED)
endif()
if(QKV_BUILD_TESTS)
  if(CMAKE_CROSSCOMPILING)  # the installed library is this machine's; its package holds the sources too
    add_subdirectory(/usr/src/googletest ${PROJECT_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
  else()
    find_package(GTest REQUIRED)
  endif()
endif()

# Highway is used for its headers only: the choice of instructions at run time is runtime/cpu.h's.
find_path(HWY_INCLUDE_DIR hwy/highway.h REQUIRED)
add_library(qkv_highway INTERFACE)
target_include_directories(qkv_highway SYSTEM INTERFACE ${HWY_INCLUDE_DIR})
if(NOT is_x86_64)  # vectors without a fixed size, as SVE's, cannot be accumulators in an array
  target_compile_definitions(qkv_highway INTERFACE HWY_COMPILE_ONLY_STATIC)
endif()

# oneDNN's own CMake package demands OpenCL's development files, which nothing here uses.
if(QKV_WITH_ONEDNN AND NOT QKV_OPERATOR_ONLY)
  find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp REQUIRED)
  find_library(DNNL_LIBRARY dnnl REQUIRED)
  add_library(qkv_onednn INTERFACE)
  target_include_directories(qkv_onednn SYSTEM INTERFACE ${DNNL_INCLUDE_DIR})
  target_link_libraries(qkv_onednn INTERFACE ${DNNL_LIBRARY})
endif()
