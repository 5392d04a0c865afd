// qkv look: what the tokens of a text attend to in a real model.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
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
#include "cli/output.h"
#include "cli/terminal.h"
#include "cli/token_choice.h"
#include "qkv/error.h"
#include "qkv/model.h"
#include "qkv/view.h"
#include "runtime/write_file.h"

namespace qkv::cli {
namespace {

// The options as they were given.
struct LookOptions {
  std::optional<std::string> text, file, token, layers, heads, top, threads, dtype;
  std::string model{kDefaultModel};
  std::vector<std::string> outputs;
  bool json = false, truncate = false, skip_first = false;
};

// What they mean, as far as that can be said before the model is there.
struct LookPlan {
  IndexList layers, heads;
  int64_t top_k = 0;
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

DType ParseDType(const std::string& name) {
  if (name == "f32") return DType::kF32;
  if (name == "bf16") return DType::kBF16;
  throw Error(ErrorCode::kInvalidArgument, "unknown type", "--dtype", "f32 or bf16", Quote(name));
}

LookPlan MakePlan(const LookOptions& options) {
  LookPlan plan;
  if (options.layers) plan.layers = IndexList("--layer", *options.layers);
  if (options.heads) plan.heads = IndexList("--head", *options.heads);
  if (options.top) plan.top_k = ParseCount("--top", *options.top, 1, INT64_MAX);
  if (options.dtype) plan.model.dtype = ParseDType(*options.dtype);
  if (options.threads) UseThreads(*options.threads);
  if (options.skip_first && options.json && options.outputs.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "changes the pictures, which --json alone does not draw",
                "--skip-first");
  }
  plan.outputs = CheckOutputs(options.outputs);
  return plan;
}

// The special tokens that the tokenizer put behind the text.
size_t ClosingTokens(const Encoding& encoding) {
  size_t count = 0;
  for (size_t token = encoding.ids.size(); token-- > 0; ++count) {
    const auto [first, last] = encoding.span[token];
    if (!encoding.special[token] || first < last) break;
  }
  return count;
}

template <class T>
void KeepEnds(std::vector<T>& values, size_t front, size_t back) {
  values.erase(values.begin() + front, values.end() - back);
}

// As transformers truncates: the text loses its end, the closing special tokens stay.
void Truncate(Encoding& encoding, size_t limit) {
  const size_t back = std::min(ClosingTokens(encoding), limit);
  const size_t front = limit - back;
  KeepEnds(encoding.ids, front, back);
  KeepEnds(encoding.tokens, front, back);
  KeepEnds(encoding.labels, front, back);
  KeepEnds(encoding.continues, front, back);
  KeepEnds(encoding.special, front, back);
  KeepEnds(encoding.span, front, back);
}

bool HasTextToken(const Encoding& encoding) {
  for (size_t token = 0; token < encoding.ids.size(); ++token) {
    if (!encoding.special[token] || encoding.span[token].first < encoding.span[token].second) return true;
  }
  return false;
}

// What to say on standard error once all has gone well; a failure says its one line only.
using Notes = std::vector<std::string>;

Encoding Encode(const Model& model, const std::string& text, const LookOptions& options, Notes& notes) {
  Encoding encoding = model.tokenizer().Encode(text);
  if (!HasTextToken(encoding)) {
    throw Error(ErrorCode::kInvalidArgument, "the text is empty: it has no tokens to look at");
  }
  const size_t count = encoding.ids.size(), limit = static_cast<size_t>(model.info().max_tokens);
  if (count <= limit) return encoding;
  if (!options.truncate) {
    throw Error(ErrorCode::kInvalidArgument, "the text is too long for the model (--truncate cuts it)", "",
                fmt::format("at most {} tokens", limit), std::to_string(count));
  }
  Truncate(encoding, limit);
  notes.push_back(fmt::format("the text was cut from {} tokens to {}", count, limit));
  return encoding;
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

void CheckJsonSize(const ModelInfo& info, const LookRequest& request, int64_t queries, int64_t tokens) {
  const auto chosen = [](const std::vector<int64_t>& ids, int64_t all) {
    return ids.empty() ? all : static_cast<int64_t>(ids.size());
  };
  const int64_t keys = request.top_k > 0 ? request.top_k : tokens;
  const int64_t weights =
      chosen(request.layers, info.layers) * chosen(request.heads, info.heads) * queries * keys;
  if (weights > kMostJsonWeights) {
    throw Error(ErrorCode::kInvalidArgument,
                "too many weights for one answer: choose some with --layer, --head, --token or --top", "--json",
                fmt::format("at most {}", kMostJsonWeights), std::to_string(weights));
  }
}

// The views draw them as 0 and JSON has null in their place.
bool HasNaN(const ModelCapture& capture) {
  const auto in = [](const std::vector<float>& weights) {
    return std::any_of(weights.begin(), weights.end(), [](float weight) { return std::isnan(weight); });
  };
  return in(capture.weights) || in(capture.top_weights);
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
      notes.push_back(fmt::format("{}: {}", file.string(), warning));
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

void Look(const LookOptions& options) {
  const LookPlan plan = MakePlan(options);
  const std::string text = ReadText(options.text, options.file);
  Notes notes;
  const auto model = LoadModel(options.model, plan.model);
  LookRequest request;
  request.layers = plan.layers.Resolve(model->info().layers, "layers");
  request.heads = plan.heads.Resolve(model->info().heads, "heads");
  const Encoding encoding = Encode(*model, text, options, notes);
  const int64_t tokens = static_cast<int64_t>(encoding.ids.size());
  request.top_k = std::min(plan.top_k, tokens);

  ViewOptions view;
  view.text = text;
  view.skip_first = options.skip_first;
  if (options.token) view.focus = TokensOf(ChooseTokens(encoding, text, *options.token));
  // Every view ranks heads by what they do for all words, and pictures show the whole heat map; JSON alone needs no
  // more than its rows.
  if (options.json && plan.outputs.empty()) request.queries = view.focus;
  if (options.json) {
    const int64_t queries = view.focus.empty() ? tokens : static_cast<int64_t>(view.focus.size());
    CheckJsonSize(model->info(), request, queries, tokens);
  }

  const ModelCapture capture = Capture(*model, encoding, request);
  if (HasNaN(capture)) notes.push_back("some weights are not numbers: the model's parameters may be damaged");
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
  add("--model", options->model, "NAME|PATH", "An installed model (qkv models) or a model's folder [minilm]");
  add("--token", options->token, "T", "A word, a piece (##ing) or an index; =12 is the word 12");
  add("--layer", options->layers, "LIST", "Layers, counted from 0: 3,5-7 [all]");
  add("--head", options->heads, "LIST", "Heads, counted from 0: 3,5-7 [all]");
  add("--top", options->top, "K", "Keep the K strongest keys of each token only");
  add("--output", options->outputs, "FILE", "Write a picture: .html .svg .png .pdf; may repeat")
      ->allow_extra_args(false);
  const auto flag = [&](const char* name, bool& value, const char* help) {
    parser.add_flag(name, value, help)->disable_flag_override();
  };
  flag("--json", options->json, "Print the weights as JSON");
  flag("--truncate", options->truncate, "Cut a text that is too long for the model");
  flag("--skip-first", options->skip_first, "Leave the first token out, which often draws most weight");
  add("--threads", options->threads, "N", "Threads to use [QKV_NUM_THREADS, else all processors]");
  add("--dtype", options->dtype, "f32|bf16", "What the model is multiplied in [f32]");
  return [options] { Look(*options); };
}

}  // namespace

const Command kLook{"look", "Show what the tokens of a text attend to in a real model",
                    "Examples:\n"
                    "  qkv look \"The chicken didn't cross the road because it was too tired\" --token it\n"
                    "  qkv look --file text.txt --layer 5 --head 11 --output look.html --output look.png\n"
                    "  echo \"a text\" | qkv look - --token text --json",
                    Declare};

}  // namespace qkv::cli
