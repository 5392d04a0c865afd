// qkv explain: attention step by step, with the numbers of a text.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/exit_status.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "cli/token_choice.h"
#include "models/truncate.h"
#include "qkv/error.h"
#include "qkv/explain.h"
#include "qkv/view.h"
#include "runtime/write_file.h"

namespace qkv::cli {
namespace {

// The options as they were given.
struct ExplainOptions {
  std::optional<std::string> text, file, model, level, layer, head, token, dropout, seed, d_in, d_out, heads,
      output, threads;
  bool causal = false, truncate = false;
};

// What they mean, as far as that can be said before the text is read.
struct ExplainPlan {
  ExplainRequest request;
  std::optional<RandomLayerSizes> random;  // instead of a model
  int64_t layer = 0;
  std::optional<std::filesystem::path> output;
};

[[noreturn]] void Refuse(const char* what, const std::string& option, const std::string& expected = {},
                         const std::string& got = {}) {
  throw Error(ErrorCode::kInvalidArgument, what, option, expected, got);
}

ExplainLevel ParseLevel(const std::string& name) {
  if (name == "simplified") return ExplainLevel::kSimplified;
  if (name == "head") return ExplainLevel::kHead;
  if (name == "multi-head") return ExplainLevel::kMultiHead;
  Refuse("unknown level", "--level", "simplified, head or multi-head", Quote(name));
}

float ParseDropout(const std::string& text) {
  float p = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), p);
  if (error != std::errc() || end != text.data() + text.size() || !(p >= 0 && p < 1)) {
    Refuse("bad probability", "--dropout", "a number from 0 to 0.99999994, the last below 1", Quote(text));
  }
  return p;
}

// A random layer is what its sizes ask for.
std::optional<RandomLayerSizes> ParseSizes(const ExplainOptions& options) {
  if (!options.d_in && !options.d_out && !options.heads) return {};
  if (options.model) Refuse("a random layer is no model's: give one or the other", "--model");
  if (options.layer) Refuse("a random layer is the only one", "--layer");
  if (options.truncate) Refuse("a random layer takes texts of any length", "--truncate");
  constexpr int64_t kMost = 1 << 24;  // of one size; memory is what limits them together
  RandomLayerSizes sizes;
  if (options.d_in) sizes.d_in = ParseCount("--d-in", *options.d_in, 1, kMost);
  sizes.d_out = options.d_out ? ParseCount("--d-out", *options.d_out, 1, kMost) : sizes.d_in;
  sizes.heads = options.heads ? ParseCount("--heads", *options.heads, 1, kMost) : 1;
  if (sizes.d_out % sizes.heads != 0) {
    Refuse("cannot be divided among the heads", options.d_out ? "--d-out" : "--heads",
           fmt::format("d_out a multiple of {} heads", sizes.heads), fmt::to_string(sizes.d_out));
  }
  return sizes;
}

void RefuseWithoutParameters(const ExplainOptions& options) {
  const char* option = options.head      ? "--head"
                       : options.dropout ? "--dropout"
                       : options.heads   ? "--heads"
                       : options.d_out   ? "--d-out"
                                         : nullptr;
  if (option != nullptr) Refuse("--level simplified has no parameters and no heads", option);
}

ExplainPlan MakePlan(const ExplainOptions& options) {
  ExplainPlan plan;
  plan.request.level = ParseLevel(options.level.value_or("head"));
  if (plan.request.level == ExplainLevel::kSimplified) RefuseWithoutParameters(options);
  if (plan.request.level == ExplainLevel::kMultiHead && options.head)
    Refuse("--level multi-head shows all heads", "--head");
  if (options.head) plan.request.head = ParseCount("--head", *options.head, 0, INT64_MAX);
  if (options.layer) plan.layer = ParseCount("--layer", *options.layer, 0, INT64_MAX);
  if (options.dropout) plan.request.dropout_p = ParseDropout(*options.dropout);
  plan.random = ParseSizes(options);
  if (options.seed) {
    if (!plan.random && plan.request.dropout_p == 0)
      Refuse("nothing is random here", "--seed", "--dropout or --d-in with it");
    plan.request.seed = static_cast<uint64_t>(ParseCount("--seed", *options.seed, 0, INT64_MAX));
  }
  if (options.threads) UseThreads(*options.threads);
  if (options.output) {
    plan.output = *options.output;
    if (plan.output->extension() != ".html")
      Refuse("unknown kind of page", "--output", "a file name ending in .html", Quote(*options.output));
    CheckWritable(*plan.output);
  }
  return plan;
}

// Those that stand for something in the text.
std::vector<int64_t> TextTokens(const Encoding& encoding) {
  std::vector<int64_t> tokens;
  for (size_t token = 0; token < encoding.ids.size(); ++token) {
    if (encoding.span[token].first < encoding.span[token].second) tokens.push_back(static_cast<int64_t>(token));
  }
  return tokens;
}

void CheckText(const std::vector<int64_t>& tokens) {
  if (tokens.empty())
    throw Error(ErrorCode::kInvalidArgument, "the text is empty: it has no tokens to explain");
  if (tokens.size() < 2) {
    throw Error(ErrorCode::kInvalidArgument, "the text is too short: one token has no other to attend to", "",
                "at least 2 tokens", "1");
  }
}

void CheckBelow(int64_t index, int64_t size, const char* option, const char* things) {
  if (index < size) return;
  Refuse("out of range", option, fmt::format("0 to {} (there are {} {})", size - 1, size, things),
         fmt::to_string(index));
}

// The text's tokens, as many as the model can take.
Encoding EncodeFor(const Model& model, const ExplainOptions& options, const std::string& text) {
  Encoding encoding = model.tokenizer().Encode(text);
  const auto count = encoding.ids.size(), limit = static_cast<size_t>(model.info().max_tokens);
  if (count <= limit) return encoding;
  if (!options.truncate) {
    Refuse("the text is too long for the model (--truncate cuts it)", "", fmt::format("at most {} tokens", limit),
           fmt::to_string(count));
  }
  Truncate(encoding, limit);
  PrintNote(fmt::format("the text was cut from {} tokens to {}", count, limit));
  return encoding;
}

// The layer for the text; sets the token to mark and checks what depends on either.
OpenLayer Open(const ExplainOptions& options, const std::string& text, ExplainPlan& plan) {
  std::unique_ptr<const Model> model;
  if (!plan.random) {
    // In float32, since that is what the steps are computed in.
    model = LoadModel(options.model.value_or(std::string(kDefaultModel)), {DType::kF32});
    CheckBelow(plan.layer, model->info().layers, "--layer", "layers");
  }
  const int64_t heads = model ? model->info().heads : plan.random->heads;
  CheckBelow(plan.request.head, heads, "--head", "heads");
  const Encoding encoding = model ? EncodeFor(*model, options, text) : EncodeWords(text);
  const std::vector<int64_t> tokens = TextTokens(encoding);
  CheckText(tokens);
  plan.request.token =
      options.token ? ChooseTokens(encoding, text, *options.token).front().first : tokens.back();
  return model ? model->Open(encoding, plan.layer) : RandomLayer(encoding, *plan.random, plan.request.seed);
}

void WritePage(const std::filesystem::path& file, const std::string& page) {
  const InterruptGuard guard;  // half a file would stay behind
  WriteWholeFile(file, page);
  ThrowIfInterrupted();
}

void ExplainText(const ExplainOptions& options) {
  ExplainPlan plan = MakePlan(options);
  const std::string text = ReadText(options.text, options.file, "explain");
  OpenLayer layer = Open(options, text, plan);
  if (options.causal) layer.config.causal = Causal::kTopLeft;
  const Explanation explanation = Explain(layer, plan.request);
  if (plan.output) {
    WritePage(*plan.output, ExplanationPage(explanation, text));
    PrintNote("wrote " + plan.output->string());
    return;
  }
  TerminalOptions terminal;
  terminal.text = text;
  terminal.color = UseColor();
  terminal.width = TerminalWidth();
  PrintText(TerminalExplanation(explanation, terminal));
}

Action Declare(CLI::App& parser) {
  const auto options = std::make_shared<ExplainOptions>();
  const auto add = [&](const char* name, auto& value, const char* type, const char* help) {
    return parser.add_option(name, value, help)->type_name(type);
  };
  add("TEXT", options->text, "", "The text; - reads standard input; behind -- it may start with a dash");
  add("--file", options->file, "FILE", "Read the text from a file");
  add("--level", options->level, "simplified|head|multi-head", "How much of a layer [head]");
  add("--token", options->token, "T", "Whose row to mark: a word, a piece or an index [the last]");
  add("--model", options->model, "NAME|PATH", "An installed model (qkv models), a folder or a GGUF file [minilm]");
  add("--layer", options->layer, "N", "Its layer, counted from 0 [0]");
  add("--head", options->head, "N", "The head, counted from 0 [0]");
  parser
      .add_flag("--causal", options->causal, "Let no token look ahead, as causal models and random layers do")
      ->disable_flag_override();
  parser.add_flag("--truncate", options->truncate, "Cut a text that is too long for the model")
      ->disable_flag_override();
  add("--d-in", options->d_in, "N", "A random causal layer instead of a model: its input's width [8]");
  add("--d-out", options->d_out, "N", "Its output's width [d-in]");
  add("--heads", options->heads, "N", "Its heads [1]");
  add("--dropout", options->dropout, "P", "Show training too, where weights are dropped with this probability");
  add("--seed", options->seed, "N", "Of the random layer and of dropout [0]");
  add("--output", options->output, "FILE", "Write a page, .html, instead");
  add("--threads", options->threads, "N", "Threads to use [QKV_NUM_THREADS, else all processors]");
  return [options] { ExplainText(*options); };
}

}  // namespace

const Command kExplain{
    "explain", "Go through attention step by step with the numbers of a text",
    "Examples:\n"
    "  qkv explain \"The chicken didn't cross the road because it was too tired\" --token it \\\n"
    "    --layer 5 --head 11 --output explain.html\n"
    "  qkv explain \"The keys to the cabinet are\" --model smollm2 --layer 9 --head 7\n"
    "  qkv explain \"your journey starts with one step\" --d-in 3 --level simplified\n"
    "  qkv explain \"a small layer\" --d-in 6 --d-out 4 --heads 2 --level multi-head --dropout 0.5",
    Declare};

}  // namespace qkv::cli
