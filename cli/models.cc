// qkv models: the models that are known by name.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/output.h"
#include "qkv/model.h"

namespace qkv::cli {
namespace {

struct ModelsOptions {
  bool json = false;
};

const char* StateOf(const KnownModel& model) {
  if (model.ships) return model.installed ? "ships with qkv" : "missing, though it ships with qkv";
  return model.installed ? "installed" : "not installed; make models gets it";
}

std::string AsText(const std::vector<KnownModel>& models) {
  std::string text = fmt::format("Models in {}:\n", ModelsFolder().string());
  for (const KnownModel& model : models) {
    text += fmt::format("\n{}{}\n", model.name, model.name == kDefaultModel ? " (default)" : "");
    const auto row = [&](const char* name, const std::string& value) {
      if (!value.empty()) text += fmt::format("  {:<9} {}\n", name, value);
    };
    row("what", model.description);
    row("state", StateOf(model));
    row("licence", model.licence);
    row("sha256", model.checksum);
    row("path", model.path.string());
  }
  return text;
}

std::string AsJson(const std::vector<KnownModel>& models) {
  using nlohmann::ordered_json;
  ordered_json list = ordered_json::array();
  for (const KnownModel& model : models) {
    list.push_back({{"name", model.name},
                    {"description", model.description},
                    {"default", model.name == kDefaultModel},
                    {"installed", model.installed},
                    {"ships", model.ships},
                    {"licence", model.licence},
                    {"sha256", model.checksum},
                    {"path", model.path.string()}});
  }
  return list.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Action Declare(CLI::App& parser) {
  const auto options = std::make_shared<ModelsOptions>();
  parser.add_flag("--json", options->json, "Print them as JSON")->disable_flag_override();
  return [options] {
    const std::vector<KnownModel> models = KnownModels();
    PrintText(options->json ? AsJson(models) : AsText(models));
  };
}

}  // namespace

const Command kModels{
    "models", "List the models that are known by name, and which are installed",
    "Models live in $QKV_MODELS, else $XDG_DATA_HOME/qkv/models, else ~/.local/share/qkv/models.\n"
    "Any folder in the same format works too: qkv look --model PATH.\n"
    "Example:\n"
    "  qkv models",
    Declare};

}  // namespace qkv::cli
