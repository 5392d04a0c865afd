#include "cli/run_options.h"

#include <fmt/format.h>

#include "cli/arguments.h"
#include "cli/exit_status.h"
#include "cli/output.h"
#include "qkv/error.h"

namespace qkv::cli {

ModelOptions MakeModelOptions(const std::optional<std::string>& dtype,
                              const std::optional<std::string>& threads) {
  if (threads) UseThreads(*threads);
  ModelOptions options;
  if (dtype) options.dtype = ParseDType("--dtype", *dtype);
  return options;
}

std::string ChooseModel(const std::optional<std::string>& named, ModelUse use) {
  if (named) return *named;
  const std::string usual = use == ModelUse::kLook ? std::string(kDefaultModel) : "smollm2";
  std::string model = DefaultModel(use);
  if (model == "tiny") {
    PrintNote(fmt::format(
        "no other model is installed: this is tiny, which ships with qkv and has read the King James "
        "Bible only; `make models` gets {}",
        usual));
  } else if (model != usual) {
    PrintNote(fmt::format("{} is not installed: this is {}", usual, model));
  }
  return model;
}

}  // namespace qkv::cli
