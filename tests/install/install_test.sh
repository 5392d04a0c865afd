#!/bin/bash
# Installs the library to a prefix of its own and builds and runs programs that find it there: through CMake and
# through pkg-config. Checks what the libraries export and what they need.
# usage: install_test.sh BUILD_FOLDER WORK_FOLDER, with CXX and CMAKE in the environment
set -euo pipefail
build=$1 work=$2
consumer=$(dirname "$(realpath "$0")")/consumer

fail() { printf 'install_test: %s\n' "$*" >&2; exit 1; }

expect() {  # expect WANTED COMMAND...: the command's output is this
  local wanted=$1 got
  shift
  got=$("$@") || fail "$* failed"
  [[ $got == "$wanted" ]] || fail "$*: expected '$wanted', got '$got'"
}

rm -rf "$work"
export QKV_MODELS=$work/no-models
"$CMAKE" --install "$build" --prefix "$work/first" --component library >/dev/null
mv "$work/first" "$work/moved"  # an installed tree may be moved
prefix=$work/moved
library_folder=$(dirname "$(find "$prefix" -name libqkv.so)")
attention_output="out 17.500"
everything_output="without others, tiny of 4 layers
./no/such/model: no such file or folder"

"$CMAKE" -S "$consumer" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Debug >/dev/null
"$CMAKE" --build "$work/cmake" >/dev/null
expect "$attention_output" "$work/cmake/attention"
expect "$everything_output" "$work/cmake/everything"

export PKG_CONFIG_PATH=$library_folder/pkgconfig
for program in attention:qkv-attention everything:qkv; do
  name=${program%:*} package=${program#*:}
  # shellcheck disable=SC2046  # flags are words
  "$CXX" -std=c++20 "$consumer/$name.cc" -o "$work/$name" $(pkg-config --cflags --libs "$package") \
    "-Wl,-rpath,$library_folder"
done
expect "$attention_output" "$work/attention"
expect "$everything_output" "$work/everything"

for library in libqkv-attention.so libqkv.so; do
  foreign=$(nm -D --defined-only "$library_folder/$library" | awk '{print $3}' | grep -vE '^(_ZNK?3qkv|_ZT[IVS]N3qkv|qkv_)' || true)
  [[ -z $foreign ]] || fail "$library exports what is not qkv's: $foreign"
  readelf -d "$library_folder/$library" | grep -qE "SONAME.*\[$library\.[0-9]+\.[0-9]+\]" || fail "$library has no versioned SONAME"
done
needed=$(readelf -d "$library_folder/libqkv-attention.so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
allowed='^(lib(gomp|omp|stdc\+\+|gcc_s|m|c|pthread|dl)\.so|ld-linux)'
surplus=$(grep -vE "$allowed" <<<"$needed" || true)
[[ -z $surplus ]] || fail "libqkv-attention.so needs $surplus"
