// A program outside the project that uses the whole library, and catches its exception across the boundary.
#include <qkv/qkv.h>

#include <cstdio>
#include <string>

int main() {
  const std::string model = qkv::DefaultModel(qkv::ModelUse::kLook);
  std::printf("without others, %s of %lld layers\n", model.c_str(),
              static_cast<long long>(qkv::LoadModel(model)->info().layers));
  try {
    qkv::LoadModel("./no/such/model");
  } catch (const qkv::Error& error) {
    std::printf("%s\n", error.what());
  }
}
