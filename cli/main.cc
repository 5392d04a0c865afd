// The command `qkv`: picks the subcommand, runs it, and turns what happened into an exit status.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/exit_status.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "qkv/error.h"

namespace qkv::cli {
namespace {

constexpr std::string_view kHint = "(see qkv --help)";

std::string Help() {
  std::string text = "qkv: exact self-attention on the CPU\nUsage: qkv COMMAND [OPTIONS]\n\nCommands:\n";
  for (const Command* command : Commands())
    text += fmt::format("  {:<12}{}\n", command->name, command->summary);
  text +=
      "\nOptions:\n  -h, --help  Print this help; qkv COMMAND --help prints a command's\n"
      "  --version   Print the version\n\n"
      "Example:\n  qkv look \"The chicken didn't cross the road because it was too tired\" --token it\n";
  return text;
}

// Before or instead of a command there are only these.
void RunWithoutCommand(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("no command {}", kHint));
  }
  const std::string& first = arguments.front();
  if (first == "-h" || first == "--help") return PrintText(Help());
  if (first == "--version") return PrintText("qkv " QKV_VERSION "\n");
  const char* kind = first.starts_with('-') ? "unknown option" : "unknown command";
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{} {} {}", kind, Quote(first), kHint));
}

// A file opened later must not become standard output by its number.
void OccupyStandardDescriptors() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) < 0 && open("/dev/null", O_RDONLY) < 0) return;
  }
}

int Main(int count, char** values) {
  OccupyStandardDescriptors();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is an error like a full disk
  InstallInterruptHandler();
  std::string_view name;
  try {
    const std::vector<std::string> arguments(values + (count > 0 ? 1 : 0), values + count);
    const Command* command = arguments.empty() ? nullptr : FindCommand(arguments.front());
    if (command == nullptr) {
      RunWithoutCommand(arguments);
    } else {
      name = command->name;
      CheckThreadVariable();
      Run(*command, {arguments.begin() + 1, arguments.end()});
    }
    return kDone;
  } catch (...) {
    return Report(name, std::current_exception());
  }
}

}  // namespace
}  // namespace qkv::cli

int main(int count, char** values) { return qkv::cli::Main(count, values); }
