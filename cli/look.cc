// qkv look: what the tokens of a text attend to in a real model.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/exit_status.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/look_json.h"
#include "cli/look_text.h"
#include "cli/output.h"
#include "cli/run_options.h"
#include "cli/terminal.h"
#include "cli/token_choice.h"
#include "qkv/error.h"
#include "qkv/model.h"
#include "qkv/view.h"
#include "runtime/write_file.h"

namespace qkv::cli {
namespace {

constexpr int64_t kMostGenerated = 100'000;

// Weights that are kept in full; of more, each token's strongest keys only.
constexpr int64_t kMostFullWeights = 100'000'000;
constexpr int64_t kUsualTop = 8;

// The options as they were given.
struct LookOptions {
  std::optional<std::string> text, file, model, token, layers, heads, top, generate, threads, dtype;
  std::vector<std::string> outputs;
  bool json = false, truncate = false, allow_long = false, skip_first = false;
};

// What they mean, as far as that can be said before the model is there.
struct LookPlan {
  IndexList layers, heads;
  int64_t top_k = 0;
  LookTextOptions text;
  ModelOptions model;
  std::vector<std::filesystem::path> outputs;
};

std::string Ending(const std::filesystem::path& file) {
  std::string ending = file.extension().string();
  for (char& letter : ending) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return ending;
}

std::vector<std::filesystem::path> CheckOutputs(const std::vector<std::string>& names) {
  constexpr const char* kEndings[] = {".html", ".svg", ".png", ".pdf"};
  std::vector<std::filesystem::path> files(names.begin(), names.end());
  for (const auto& file : files) {
    if (std::find(std::begin(kEndings), std::end(kEndings), Ending(file)) == std::end(kEndings)) {
      throw Error(ErrorCode::kInvalidArgument, "unknown kind of picture", "--output",
                  "a file name ending in .html, .svg, .png or .pdf", Quote(file.string()));
    }
  }
  for (const auto& file : files) CheckWritable(file);
  return files;
}

LookPlan MakePlan(const LookOptions& options) {
  LookPlan plan;
  if (options.layers) plan.layers = IndexList("--layer", *options.layers);
  if (options.heads) plan.heads = IndexList("--head", *options.heads);
  if (options.top) plan.top_k = ParseCount("--top", *options.top, 1, INT64_MAX);
  if (options.truncate && options.allow_long) {
    throw Error(ErrorCode::kInvalidArgument, "--truncate and --allow-long exclude each other");
  }
  if (options.truncate) plan.text.too_long = TooLong::kTruncate;
  if (options.allow_long) plan.text.too_long = TooLong::kAllow;
  if (options.generate) plan.text.generate = ParseCount("--generate", *options.generate, 1, kMostGenerated);
  plan.model = MakeModelOptions(options.dtype, options.threads);
  if (options.skip_first && options.json && options.outputs.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "changes the pictures, which --json alone does not draw",
                "--skip-first");
  }
  plan.outputs = CheckOutputs(options.outputs);
  return plan;
}

std::vector<int64_t> TokensOf(const std::vector<TokenRun>& runs) {
  std::vector<int64_t> tokens;
  for (const TokenRun& run : runs) {
    for (int64_t token = run.first; token < run.last; ++token) {
      if (tokens.empty() || tokens.back() < token) tokens.push_back(token);
    }
  }
  return tokens;
}

// Of the chosen layers and heads, and of so many queries.
int64_t CountWeights(const ModelInfo& info, const LookRequest& request, int64_t queries, int64_t tokens) {
  const auto chosen = [](const std::vector<int64_t>& ids, int64_t all) {
    return ids.empty() ? all : static_cast<int64_t>(ids.size());
  };
  const int64_t keys = request.top_k > 0 ? request.top_k : tokens;
  return chosen(request.layers, info.layers) * chosen(request.heads, info.heads) * queries * keys;
}

void CheckJsonSize(int64_t weights) {
  if (weights <= kMostJsonWeights) return;
  throw Error(ErrorCode::kInvalidArgument,
              "too many weights for one answer: choose some with --layer, --head, --token or --top", "--json",
              fmt::format("at most {}", kMostJsonWeights), std::to_string(weights));
}

ModelCapture Capture(const Model& model, const Encoding& encoding, LookRequest request) {
  ProgressLine line("looking");
  request.progress = line.Callback();
  return model.Look(encoding, request);
}

void WritePictures(const ModelCapture& capture, const ViewOptions& view, const LookPlan& plan, Notes& notes) {
  for (const auto& file : plan.outputs) {
    const std::string page = Ending(file) == ".html" ? Page(capture, view) : "";
    const InterruptGuard guard;  // half a file would stay behind
    if (!page.empty()) {
      WriteWholeFile(file, page);
    } else if (const std::string warning = WriteFigure(capture, view, file); !warning.empty()) {
      notes.push_back(warning);
    }
    ThrowIfInterrupted();
    notes.push_back("wrote " + file.string());
  }
}

void PrintView(const ModelCapture& capture, const ViewOptions& view) {
  TerminalOptions terminal{view};
  terminal.color = UseColor();
  terminal.width = TerminalWidth();
  PrintText(TerminalView(capture, terminal));
}

void PrintJson(const ModelCapture& capture, const std::vector<int64_t>& focus) {
  StandardOutput output;
  WriteJson(capture, focus, output);
  output.Flush();
}

LookRequest MakeRequest(const LookPlan& plan, const ModelInfo& info) {
  LookRequest request;
  request.layers = plan.layers.Resolve(info.layers, "layers");
  request.heads = plan.heads.Resolve(info.heads, "heads");
  if (plan.text.too_long == TooLong::kAllow) request.length = LengthRule::kAny;
  return request;
}

void Look(const LookOptions& options) {
  const LookPlan plan = MakePlan(options);
  const std::string given = ReadText(options.text, options.file, "look");
  Notes notes;
  const auto model = LoadModel(ChooseModel(options.model, ModelUse::kLook), plan.model);
  const ModelInfo& info = model->info();
  LookRequest request = MakeRequest(plan, info);
  const LookText text = MakeLookText(*model, given, plan.text, notes);
  const int64_t tokens = static_cast<int64_t>(text.encoding.ids.size());
  request.top_k = std::min(plan.top_k, tokens);

  ViewOptions view;
  view.text = text.text;
  view.skip_first = options.skip_first;
  view.focus = text.generated;
  if (options.token) view.focus = TokensOf(ChooseTokens(text.encoding, text.text, *options.token));
  // Every view ranks heads by what they do for all words, and pictures show the whole heat map; JSON alone
  // needs no more than its rows.
  if (options.json && plan.outputs.empty()) request.queries = view.focus;
  if (options.json) {
    const int64_t queries = view.focus.empty() ? tokens : static_cast<int64_t>(view.focus.size());
    CheckJsonSize(CountWeights(info, request, queries, tokens));
  } else if (CountWeights(info, request, tokens, tokens) > kMostFullWeights && request.top_k == 0) {
    request.top_k = kUsualTop;
    notes.push_back(
        fmt::format("kept the {} strongest keys of each token only (--top chooses how many)", kUsualTop));
  }

  const ModelCapture capture = Capture(*model, text.encoding, request);
  WritePictures(capture, view, plan, notes);
  if (options.json) {
    PrintJson(capture, view.focus);
  } else {
    PrintView(capture, view);
  }
  for (const std::string& note : notes) PrintNote(note);
}

Action Declare(CLI::App& parser) {
  const auto options = std::make_shared<LookOptions>();
  const auto add = [&](const char* name, auto& value, const char* type, const char* help) {
    return parser.add_option(name, value, help)->type_name(type);
  };
  add("TEXT", options->text, "", "The text; - reads standard input; behind -- it may start with a dash");
  add("--file", options->file, "FILE", "Read the text from a file");
  add("--model", options->model, "NAME|PATH",
      "An installed model (qkv models), a folder or GGUF file [minilm, else tiny]");
  add("--token", options->token, "T", "A word, a piece (##ing) or an index; =12 is the word 12");
  add("--layer", options->layers, "LIST", "Layers, counted from 0: 3,5-7 [all]");
  add("--head", options->heads, "LIST", "Heads, counted from 0: 3,5-7 [all]");
  add("--top", options->top, "K", "Keep the K strongest keys of each token only");
  add("--generate", options->generate, "N",
      "Let the model write N tokens more, and look at what they attend to");
  add("--output", options->outputs, "FILE", "Write a picture: .html .svg .png .pdf; may repeat")
      ->allow_extra_args(false);
  const auto flag = [&](const char* name, bool& value, const char* help) {
    parser.add_flag(name, value, help)->disable_flag_override();
  };
  flag("--json", options->json, "Print the weights as JSON");
  flag("--truncate", options->truncate, "Cut a text that is too long for the model");
  flag("--allow-long", options->allow_long, "Look at a longer text than the model was trained for");
  flag("--skip-first", options->skip_first, "Leave the first token out, which often draws most weight");
  add("--threads", options->threads, "N", "Threads to use [QKV_NUM_THREADS, else all processors]");
  add("--dtype", options->dtype, "f32|bf16",
      "What the model is multiplied in [f32; a quantised file's own types]");
  return [options] { Look(*options); };
}

}  // namespace

const Command kLook{"look", "Show what the tokens of a text attend to in a real model",
                    "Examples:\n"
                    "  qkv look \"The chicken didn't cross the road because it was too tired\" --token it\n"
                    "  qkv look --file text.txt --layer 5 --head 11 --output look.html --output look.png\n"
                    "  qkv look \"The keys to the cabinet are\" --model smollm2 --skip-first --token are\n"
                    "  echo \"a text\" | qkv look - --token text --json",
                    Declare};

}  // namespace qkv::cli
