// qkv completion: scripts for shells, made from the commands' own parsers, so that they know what the parsers
// know.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cctype>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/exit_status.h"
#include "cli/output.h"
#include "qkv/error.h"
#include "qkv/model.h"

namespace qkv::cli {
namespace {

// An option or, without names, a positional argument, and what can stand in its place.
struct Argument {
  std::vector<std::string> names;  // with their dashes
  std::string help, type;
  bool valued = false;
  bool files = false;
  std::vector<std::string> words;
};

struct CommandArguments {
  const Command* command;
  std::vector<Argument> arguments;
};

std::string ReplaceAll(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string SingleQuoted(const std::string& text) {
  return fmt::format("'{}'", ReplaceAll(text, "'", "'\\''"));
}

// The type in an option's help tells: FILE and PATH are files, NAME a model's name, small letters are choices.
void DescribeValues(Argument& argument) {
  for (const std::string& type : CLI::detail::split(argument.type, '|')) {
    if (type == "FILE" || type == "PATH") {
      argument.files = true;
    } else if (type == "NAME") {
      for (const KnownModel& model : KnownModels()) argument.words.push_back(model.name);
    } else if (!type.empty() && std::islower(static_cast<unsigned char>(type[0])) != 0) {
      argument.words.push_back(type);
    }
  }
}

std::vector<CommandArguments> CollectArguments() {
  std::vector<CommandArguments> all;
  for (const Command* command : Commands()) {
    const Parser parser = MakeParser(*command);
    CommandArguments entry{command, {}};
    for (const CLI::Option* option : std::as_const(*parser.app).get_options({})) {
      Argument argument;
      argument.help = option->get_description();
      argument.type = option->get_type_name();
      for (const std::string& name : option->get_snames()) argument.names.push_back("-" + name);
      for (const std::string& name : option->get_lnames()) argument.names.push_back("--" + name);
      argument.valued = option->get_items_expected_max() > 0;
      if (argument.valued) DescribeValues(argument);
      entry.arguments.push_back(std::move(argument));
    }
    all.push_back(std::move(entry));
  }
  return all;
}

std::string CommandNames() {
  std::string names;
  for (const Command* command : Commands())
    names += fmt::format("{}{}", names.empty() ? "" : " ", command->name);
  return names;
}

std::string BashValues(const Argument& argument) {
  return fmt::format("words='{}' files={}", fmt::join(argument.words, " "), argument.files ? "yes" : "");
}

std::string BashCommand(const CommandArguments& entry) {
  std::string names, places, values;
  for (const Argument& argument : entry.arguments) {
    if (argument.names.empty()) {
      places += fmt::format("        {}\n", BashValues(argument));
    } else {
      names += fmt::format("{}{}", names.empty() ? "" : " ", fmt::join(argument.names, " "));
      if (argument.valued) {
        values += fmt::format("          {}) {} ;;\n", fmt::join(argument.names, "|"), BashValues(argument));
      }
    }
  }
  std::string text = fmt::format("      {})\n{}", entry.command->name, places);
  text += fmt::format("        [[ $current == -* ]] && words='{}' files=\n", names);
  if (!values.empty()) text += fmt::format("        case $previous in\n{}        esac\n", values);
  return text + "        ;;\n";
}

std::string BashScript(const std::vector<CommandArguments>& commands) {
  std::string text =
      "# Completion of qkv for bash. Load it with: source <(qkv completion bash)\n"
      "_qkv() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} words= files=\n"
      "  if ((COMP_CWORD == 1)); then\n";
  text += fmt::format("    words='{} --help --version'\n  else\n", CommandNames());
  text += "    case ${COMP_WORDS[1]} in\n";
  for (const CommandArguments& entry : commands) text += BashCommand(entry);
  text +=
      "    esac\n"
      "  fi\n"
      "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
      "  [[ -z $files ]] && return\n"
      "  mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- \"$current\")\n"
      "  compopt -o filenames 2>/dev/null\n"
      "}\n"
      "complete -F _qkv qkv\n";
  return text;
}

// A help text inside a specification of zsh's _arguments.
std::string ZshHelp(std::string text) {
  for (const char* special : {"\\", "[", "]", ":"})
    text = ReplaceAll(text, special, std::string("\\") + special);
  return text;
}

std::string ZshValue(const Argument& argument) {
  if (!argument.valued) return "";
  const std::string name = ZshHelp(argument.type.empty() ? "text" : argument.type);
  if (argument.files && !argument.words.empty()) {
    return fmt::format(":{}:_alternative \"names:name:({})\" \"files:file:_files\"", name,
                       fmt::join(argument.words, " "));
  }
  if (argument.files) return fmt::format(":{}:_files", name);
  return fmt::format(":{}:({})", name, fmt::join(argument.words, " "));
}

std::string ZshScript(const std::vector<CommandArguments>& commands) {
  std::string text =
      "#compdef qkv\n"
      "# Completion of qkv for zsh. Load it with: source <(qkv completion zsh)\n"
      "_qkv() {\n"
      "  if ((CURRENT == 2)); then\n"
      "    local -a commands=(\n";
  for (const auto& [command, arguments] : commands) {
    text += fmt::format("      {}\n", SingleQuoted(fmt::format("{}:{}", command->name, command->summary)));
  }
  text +=
      "    )\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  shift words\n"
      "  ((CURRENT--))\n"
      "  case $words[1] in\n";
  for (const auto& [command, arguments] : commands) {
    text += fmt::format("    {})\n      _arguments", command->name);
    for (const Argument& argument : arguments) {
      if (argument.names.empty()) text += " \\\n        " + SingleQuoted(ZshValue(argument));
      for (const std::string& name : argument.names) {
        const std::string specification =
            fmt::format("*{}[{}]{}", name, ZshHelp(argument.help), ZshValue(argument));
        text += " \\\n        " + SingleQuoted(specification);
      }
    }
    text += "\n      ;;\n";
  }
  return text +
         "  esac\n"
         "}\n"
         "if [[ $funcstack[1] == _qkv ]]; then _qkv \"$@\"; else compdef _qkv qkv; fi\n";
}

std::string FishNames(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  return text;
}

std::string FishScript(const std::vector<CommandArguments>& commands) {
  std::string text =
      "# Completion of qkv for fish. Load it with: qkv completion fish | source\n"
      "complete -c qkv -f\n"
      "complete -c qkv -n __fish_use_subcommand -s h -l help -d 'Print this help'\n"
      "complete -c qkv -n __fish_use_subcommand -l version -d 'Print the version'\n";
  for (const auto& [command, arguments] : commands) {
    text += fmt::format("complete -c qkv -n __fish_use_subcommand -a {} -d \"{}\"\n", command->name,
                        command->summary);
    for (const Argument& argument : arguments) {
      if (argument.names.empty() && !argument.files && argument.words.empty()) continue;
      text += fmt::format("complete -c qkv -n '__fish_seen_subcommand_from {}'{}", command->name,
                          FishNames(argument.names));
      if (!argument.names.empty() && argument.valued) text += " -r";
      if (argument.files) text += " -F";
      if (!argument.words.empty()) text += fmt::format(" -a '{}'", fmt::join(argument.words, " "));
      if (!argument.names.empty()) text += fmt::format(" -d \"{}\"", argument.help);
      text += "\n";
    }
  }
  return text;
}

using Script = std::string (*)(const std::vector<CommandArguments>&);
const std::map<std::string, Script> kScripts{{"bash", BashScript}, {"zsh", ZshScript}, {"fish", FishScript}};

Action Declare(CLI::App& parser) {
  const auto shell = std::make_shared<std::string>();
  parser.add_option("SHELL", *shell, "The shell: bash, zsh or fish")
      ->required()
      ->option_text(" ")
      ->type_name("bash|zsh|fish");
  return [shell] {
    const auto script = kScripts.find(*shell);
    if (script == kScripts.end()) {
      throw Error(ErrorCode::kInvalidArgument, "unknown shell", "SHELL", "bash, zsh or fish", Quote(*shell));
    }
    PrintText(script->second(CollectArguments()));
  };
}

}  // namespace

const Command kCompletion{"completion", "Print a script that completes qkv's arguments in a shell",
                          "Example:\n  source <(qkv completion bash)", Declare};

}  // namespace qkv::cli
