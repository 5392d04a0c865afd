// A command of `qkv`. Each has a file of its own and a parser of its own, so that nothing which it is given,
// such as a text that is the name of another command, can be taken for anything else.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace qkv::cli {

using Action = std::function<void()>;

struct Command {
  const char* name;
  const char* summary;
  const char* footer;                   // examples, shown at the end of its help
  Action (*declare)(CLI::App& parser);  // adds its options; the action runs once they have their values
};

extern const Command kLook, kExplain, kGenerate, kEncode, kTrain, kModels, kInspect, kTokenizer, kBench,
    kCompletion;

std::span<const Command* const> Commands();
const Command* FindCommand(std::string_view name);  // null where there is none

struct Parser {
  std::unique_ptr<CLI::App> app;
  Action action;
};
Parser MakeParser(const Command& command);

// Parses the arguments after the command's name and runs it, or prints its help.
// Error{kInvalidArgument} for arguments that make no sense, with a hint at the help.
void Run(const Command& command, std::vector<std::string> arguments);

}  // namespace qkv::cli
