// qkv generate: a causal model reads a text and writes on.
#include "qkv/generate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/run_options.h"
#include "cli/terminal.h"
#include "qkv/error.h"
#include "qkv/model.h"

namespace qkv::cli {
namespace {

// The options as they were given.
struct GenerateArguments {
  std::optional<std::string> text, file, model, threads, dtype;
  std::optional<std::string> max_tokens, temperature, top_k, top_p, min_p, penalty, seed;
  std::vector<std::string> stop;
  bool chat = false, allow_long = false;
};

// The library's errors name its fields: here they are options.
void CheckOptions(const Sampling& sampling) {
  try {
    CheckSampling(sampling);
  } catch (const Error& error) {
    std::string option = "--" + error.where();
    std::replace(option.begin(), option.end(), '_', '-');
    throw Error(error.code(), error.reason(), option, error.expected(), error.got());
  }
}

GenerateOptions MakeOptions(const GenerateArguments& arguments) {
  GenerateOptions options;
  const auto count = [](const char* name, const std::optional<std::string>& text, int64_t least,
                        int64_t fallback) {
    return text ? ParseCount(name, *text, least, INT64_MAX) : fallback;
  };
  const auto real = [](const char* name, const std::optional<std::string>& text, float fallback) {
    return text ? static_cast<float>(ParseReal(name, *text)) : fallback;
  };
  options.max_tokens = count("--max-tokens", arguments.max_tokens, 1, options.max_tokens);
  options.stop = arguments.stop;
  for (const std::string& text : options.stop) {
    if (text.empty()) throw Error(ErrorCode::kInvalidArgument, "empty: there is no text to end before", "--stop");
  }
  Sampling& sampling = options.sampling;
  sampling.temperature = real("--temperature", arguments.temperature, sampling.temperature);
  sampling.top_k = count("--top-k", arguments.top_k, 0, sampling.top_k);
  sampling.top_p = real("--top-p", arguments.top_p, sampling.top_p);
  sampling.min_p = real("--min-p", arguments.min_p, sampling.min_p);
  sampling.repetition_penalty = real("--repetition-penalty", arguments.penalty, sampling.repetition_penalty);
  sampling.seed = static_cast<uint64_t>(count("--seed", arguments.seed, 0, 0));
  CheckOptions(sampling);
  return options;
}

// The answer as it comes. What a terminal would take for commands is shown as a replacement character.
class AnswerPrinter {
 public:
  bool Add(std::string_view piece) {
    std::string shown(piece);
    if (is_terminal_) shown = WithoutControls(piece);
    ends_line_ = shown.ends_with('\n');
    output_.Write(shown);
    output_.Flush();
    return true;
  }
  void Finish() {
    if (ends_line_) return;
    output_.Write("\n");
    output_.Flush();
  }

 private:
  static std::string WithoutControls(std::string_view text) {
    std::string shown;
    for (char byte : text) {
      const auto code = static_cast<unsigned char>(byte);
      const bool control = (code < 0x20 && byte != '\n' && byte != '\t') || code == 0x7f;
      shown += control ? std::string("\xef\xbf\xbd") : std::string(1, byte);
    }
    return shown;
  }

  StandardOutput output_;
  bool is_terminal_ = isatty(STDOUT_FILENO) != 0;
  bool ends_line_ = false;
};

// timed: the tokens that the seconds were spent on.
std::string Rate(int64_t tokens, int64_t timed, double seconds) {
  const std::string count = fmt::format("{} token{}", tokens, tokens == 1 ? "" : "s");
  if (timed < 1) return count;
  return fmt::format("{} in {:.2f} s ({:.0f} tokens/s)", count, seconds,
                     seconds > 0 ? static_cast<double>(timed) / seconds : 0.0);
}

std::string Summary(int64_t prompt, const Generated& answer) {
  const auto made = static_cast<int64_t>(answer.ids.size());
  std::string text = "prompt " + Rate(prompt, prompt, answer.prompt_seconds);
  // The first token came out of reading the prompt.
  text += ", answer " + Rate(made, made - 1, answer.generate_seconds);
  if (answer.reason == StopReason::kMaxTokens) text += "; cut by --max-tokens";
  if (answer.reason == StopReason::kSessionFull) text += "; cut: the model's context is full";
  return text;
}

std::vector<int64_t> EncodePrompt(const Model& model, const GenerateArguments& arguments,
                                  GenerateOptions& options) {
  std::string text = ReadText(arguments.text, arguments.file, "generate");
  if (arguments.chat) {
    const ChatPrompt chat = MakeChatPrompt(model.info(), text);
    text = chat.text;
    if (const auto end = model.tokenizer().IdOf(chat.end_token)) options.end_ids.push_back(*end);
  }
  std::vector<int64_t> prompt = model.tokenizer().Encode(text).ids;
  if (prompt.empty())
    throw Error(ErrorCode::kInvalidArgument, "the text is empty: there is nothing to continue");
  const auto tokens = static_cast<int64_t>(prompt.size());
  const int64_t most = model.info().max_tokens;
  const bool can_go_on = model.info().positions == Positions::kRotary;
  if (arguments.allow_long && can_go_on) {
    options.session.most_tokens = std::max(most, tokens + options.max_tokens);
  } else if (tokens > most) {
    const char* way = can_go_on ? "--allow-long reads it all the same" : "it has no more positions";
    throw Error(ErrorCode::kInvalidArgument, fmt::format("the text is too long for the model ({})", way), "",
                fmt::format("at most {} tokens", most), std::to_string(tokens));
  }
  return prompt;
}

void Run(const GenerateArguments& arguments) {
  GenerateOptions options = MakeOptions(arguments);
  const ModelOptions model_options = MakeModelOptions(arguments.dtype, arguments.threads);
  const auto model = LoadModel(ChooseModel(arguments.model, ModelUse::kGenerate), model_options);
  if (!model->info().causal) {
    throw Error(ErrorCode::kInvalidArgument, "the model does not read from the left and cannot continue a text",
                "--model", "a causal model such as smollm2", model->info().architecture);
  }
  const std::vector<int64_t> prompt = EncodePrompt(*model, arguments, options);
  AnswerPrinter printer;
  auto line = std::make_unique<ProgressLine>("reading");
  options.progress = line->Callback();
  options.on_text = [&](std::string_view piece) {
    line.reset();  // the answer takes its place
    return printer.Add(piece);
  };
  const Generated answer = Generate(*model, prompt, options);
  line.reset();
  printer.Finish();
  PrintNote(Summary(static_cast<int64_t>(prompt.size()), answer));
}

Action Declare(CLI::App& parser) {
  const auto arguments = std::make_shared<GenerateArguments>();
  const auto add = [&](const char* name, auto& value, const char* type, const char* help) {
    return parser.add_option(name, value, help)->type_name(type);
  };
  const auto flag = [&](const char* name, bool& value, const char* help) {
    parser.add_flag(name, value, help)->disable_flag_override();
  };
  add("TEXT", arguments->text, "", "The text; - reads standard input; behind -- it may start with a dash");
  add("--file", arguments->file, "FILE", "Read the text from a file");
  add("--model", arguments->model, "NAME|PATH",
      "An installed model (qkv models), a folder or GGUF file [smollm2, else tiny]");
  flag("--chat", arguments->chat, "Ask the text as a question, in the model's chat format");
  add("--max-tokens", arguments->max_tokens, "N", "Write at most N tokens [256]");
  add("--stop", arguments->stop, "TEXT", "End before this text; may repeat")->allow_extra_args(false);
  add("--temperature", arguments->temperature, "T",
      "0 is always the likeliest token, 1 the model's own chances [0]");
  add("--top-k", arguments->top_k, "K", "Choose among the K likeliest tokens only [0: all]");
  add("--top-p", arguments->top_p, "P", "Choose among the likeliest that hold probability P together [1]");
  add("--min-p", arguments->min_p, "P", "Leave out tokens under P times the likeliest one's chance [0]");
  add("--repetition-penalty", arguments->penalty, "R",
      "Above 1: tokens that the text has become less likely [1]");
  add("--seed", arguments->seed, "N", "Another seed chooses otherwise [0]");
  flag("--allow-long", arguments->allow_long, "Read on beyond the length that the model was trained for");
  add("--dtype", arguments->dtype, "f32|bf16",
      "What the model is multiplied in [f32; a quantised file's own types]");
  add("--threads", arguments->threads, "N", "Threads to use [QKV_NUM_THREADS, else all processors]");
  return [arguments] { Run(*arguments); };
}

}  // namespace

const Command kGenerate{
    "generate", "Continue a text with a causal model, or answer a question",
    "Examples:\n"
    "  qkv generate \"The keys to the cabinet are\" --max-tokens 20\n"
    "  qkv generate --chat \"Why is the sky blue?\" --temperature 0.7 --top-p 0.9 --seed 1\n"
    "  echo \"Once upon a time\" | qkv generate - --stop .",
    Declare};

}  // namespace qkv::cli
