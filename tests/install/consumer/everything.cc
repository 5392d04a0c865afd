// A program outside the project that uses the whole library, and catches its exception across the boundary.
#include <qkv/qkv.h>

#include <cstdio>

int main() {
  std::printf("default model %s\n", qkv::KnownModels().front().name.c_str());
  try {
    qkv::LoadModel("./no/such/model");
  } catch (const qkv::Error& error) {
    std::printf("%s\n", error.what());
  }
}
