// Any bytes as the config.json of a causal model: refused with an Error, or read as what it says.
#include <string_view>

#include "causal_config.h"
#include "formats/config.h"
#include "fuzz.h"
#include "qkv/error.h"

namespace qkv::test {
namespace {

// Whatever family the file says it is: each reader meets every file.
void TryFamily(const JsonObject& config, CausalConfig (*read)(const JsonObject&)) {
  try {
    const CausalConfig causal = read(config);
    CheckSettings(causal);
    for (const int64_t id : causal.end_ids) Check(id >= 0, "ids are not negative");
  } catch (const Error& error) {
    CheckFileError(error);
  }
}

}  // namespace
}  // namespace qkv::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace qkv;
  try {
    const JsonObject config = ParseConfig({reinterpret_cast<const char*>(bytes), size}, "fuzz");
    test::TryFamily(config, ReadLlamaConfig);
    test::TryFamily(config, ReadGpt2Config);
  } catch (const Error& error) {
    test::CheckFileError(error);
  }
  return 0;
}
