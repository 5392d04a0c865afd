#include "cli/run_options.h"

#include "cli/arguments.h"
#include "cli/exit_status.h"
#include "qkv/error.h"

namespace qkv::cli {
namespace {

DType ParseDType(const std::string& name) {
  if (name == "f32") return DType::kF32;
  if (name == "bf16") return DType::kBF16;
  throw Error(ErrorCode::kInvalidArgument, "unknown type", "--dtype", "f32 or bf16", Quote(name));
}

}  // namespace

ModelOptions MakeModelOptions(const std::optional<std::string>& dtype, const std::optional<std::string>& threads) {
  if (threads) UseThreads(*threads);
  ModelOptions options;
  if (dtype) options.dtype = ParseDType(*dtype);
  return options;
}

}  // namespace qkv::cli
