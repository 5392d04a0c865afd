#include "cli/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>

#include "cli/exit_status.h"
#include "cli/output.h"
#include "qkv/error.h"

namespace qkv::cli {
namespace {

constexpr std::array kCommands{&kLook,   &kExplain, &kGenerate,  &kEncode, &kTrain,
                               &kModels, &kInspect, &kTokenizer, &kBench,  &kCompletion};

[[noreturn]] void FailUsage(const Command& command, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{} (see qkv {} --help)", what, command.name));
}

// The parser takes "--name=" for "--name" and would swallow the next argument as the value.
void RefuseEmptyValues(const Command& command, const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") return;
    if (argument.size() > 3 && argument.starts_with("--") && argument.find('=') == argument.size() - 1) {
      FailUsage(command, argument.substr(0, argument.size() - 1) + ": empty value");
    }
  }
}

// The parser's words for a wrong number of values, in ours. They start with the option's name.
std::string Mismatch(std::string_view message) {
  const std::string_view option = message.substr(0, message.find_first_of(": "));
  if (message.ends_with("flag override")) return fmt::format("--{}: takes no value", option);
  if (message.ends_with("missing")) return fmt::format("{}: its value is missing", option);
  return fmt::format("{}: given more than once", option);
}

void Parse(const Command& command, CLI::App& app, std::vector<std::string> arguments) {
  RefuseEmptyValues(command, arguments);
  std::reverse(arguments.begin(), arguments.end());  // the parser takes them from the back
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::Success&) {
    throw;
  } catch (const CLI::ExtrasError&) {
    const std::string first = app.remaining().front();
    const char* kind = first.starts_with("-") ? "unknown option" : "unexpected argument";
    FailUsage(command, fmt::format("{} {}", kind, Quote(first)));
  } catch (const CLI::ArgumentMismatch& error) {
    FailUsage(command, Mismatch(error.what()));
  } catch (const CLI::ParseError& error) {
    FailUsage(command, error.what());
  }
}

}  // namespace

std::span<const Command* const> Commands() { return kCommands; }

const Command* FindCommand(std::string_view name) {
  const auto found = std::find_if(kCommands.begin(), kCommands.end(),
                                  [&](const Command* command) { return command->name == name; });
  return found == kCommands.end() ? nullptr : *found;
}

Parser MakeParser(const Command& command) {
  Parser parser{std::make_unique<CLI::App>(command.summary, command.name), {}};
  parser.app->set_help_flag("-h,--help", "Print this help");
  parser.app->footer(command.footer);
  parser.app->get_formatter()->column_width(26);
  parser.action = command.declare(*parser.app);
  return parser;
}

void Run(const Command& command, std::vector<std::string> arguments) {
  const Parser parser = MakeParser(command);
  try {
    Parse(command, *parser.app, std::move(arguments));
  } catch (const CLI::Success&) {
    PrintText(parser.app->help("qkv"));
    return;
  }
  parser.action();
}

}  // namespace qkv::cli
