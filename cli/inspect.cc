// qkv inspect: what a model file holds.
#include "formats/inspect.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/output.h"

namespace qkv::cli {
namespace {

Action Declare(CLI::App& parser) {
  const auto file = std::make_shared<std::string>();
  parser.add_option("FILE", *file, "The file: .safetensors or .gguf, or a model's folder")
      ->type_name("FILE")
      ->option_text(" ")
      ->required();
  return [file] { PrintText(InspectFile(*file)); };
}

}  // namespace

const Command kInspect{"inspect",
                       "Show what a model file holds: metadata, and tensors with types, shapes and sizes",
                       "Example:\n  qkv inspect ~/.local/share/qkv/models/minilm/model.safetensors", Declare};

}  // namespace qkv::cli
