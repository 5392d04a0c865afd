// qkv encode: texts as vectors, and how alike they are; a word's vectors in two texts, layer by layer.
#include "qkv/encode.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/exit_status.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/run_options.h"
#include "cli/terminal.h"
#include "cli/token_choice.h"
#include "models/finite.h"
#include "qkv/error.h"
#include "qkv/model.h"
#include "runtime/printable.h"

namespace qkv::cli {
namespace {

constexpr size_t kMostTexts = 10'000;
constexpr size_t kMostInTable = 20;  // texts whose similarities are printed

// The options as they were given.
struct EncodeArguments {
  std::vector<std::string> texts;
  std::optional<std::string> file, tokens, threads, dtype;
  std::string model{kDefaultModel};
  bool json = false;
};

bool IsBlank(const std::string& text) { return text.find_first_not_of(" \t\r\n") == std::string::npos; }

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (!IsBlank(line)) lines.push_back(std::move(line));
    begin = end + 1;
  }
  return lines;
}

// The arguments, or the lines of a file or of standard input.
std::vector<std::string> ReadTexts(const EncodeArguments& arguments) {
  const bool piped = arguments.texts.size() == 1 && arguments.texts.front() == "-";
  std::vector<std::string> texts = arguments.texts;
  if (arguments.file || piped || texts.empty()) {
    const std::optional<std::string> given = texts.empty() ? std::nullopt : std::optional(texts.front());
    texts = Lines(ReadText(given, arguments.file, "encode"));
  }
  const auto blank = std::find_if(texts.begin(), texts.end(), IsBlank);
  if (texts.empty() || blank != texts.end()) {
    throw Error(ErrorCode::kInvalidArgument, "the text is empty: it has no tokens",
                texts.size() > 1 ? fmt::format("text {}", blank - texts.begin() + 1) : "");
  }
  if (texts.size() > kMostTexts) {
    throw Error(ErrorCode::kInvalidArgument, "too many texts", "", fmt::format("at most {}", kMostTexts),
                std::to_string(texts.size()));
  }
  return texts;
}

// The texts' vectors, and their similarities.
struct Embedded {
  std::vector<std::string> texts;
  std::vector<float> vectors;
  size_t width;

  std::span<const float> at(size_t i) const { return std::span(vectors).subspan(i * width, width); }
  double similarity(size_t i, size_t j) const { return CosineSimilarity(at(i), at(j)); }
};

std::string SimilarityTable(const Embedded& embedded) {
  const size_t count = embedded.texts.size();
  std::string table = "     ";
  for (size_t j = 0; j < count; ++j) table += fmt::format("{:>6}", j + 1);
  table += "\n";
  for (size_t i = 0; i < count; ++i) {
    table += fmt::format("{:>4} ", i + 1);
    for (size_t j = 0; j < count; ++j) table += fmt::format("{:>6.2f}", embedded.similarity(i, j));
    table += "  " + Printable(embedded.texts[i], 60) + "\n";
  }
  return table;
}

std::string AsText(const Embedded& embedded) {
  const size_t count = embedded.texts.size();
  if (count == 1) {
    std::string text = fmt::format("{} numbers (--json prints them all):", embedded.width);
    for (size_t c = 0; c < std::min<size_t>(6, embedded.width); ++c) text += fmt::format(" {:.4f}", embedded.at(0)[c]);
    return text + " ...\n";
  }
  if (count <= kMostInTable) return "Cosine similarities:\n" + SimilarityTable(embedded);
  return fmt::format("{} vectors of {} numbers (--json prints them)\n", count, embedded.width);
}

nlohmann::ordered_json AsJson(const std::string& model, const Embedded& embedded) {
  nlohmann::ordered_json vectors = nlohmann::ordered_json::array();
  for (size_t i = 0; i < embedded.texts.size(); ++i) {
    vectors.push_back(std::vector<float>(embedded.at(i).begin(), embedded.at(i).end()));
  }
  return {{"model", model}, {"texts", embedded.texts}, {"embeddings", std::move(vectors)}};
}

void PrintJsonLine(const nlohmann::ordered_json& value) {
  PrintText(value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

// A word in its text: the mean of its tokens' vectors, in each layer.
struct WordStates {
  std::string shown;                        // the text, the word in brackets
  std::vector<std::vector<float>> layers;   // (L + 1, C)
};

WordStates StatesOf(const Model& model, const std::string& text, const std::string& word,
                    const std::string& option) {
  const Encoding encoding = model.tokenizer().Encode(text);
  const TokenRun run = ChooseTokens(encoding, text, word, option).front();
  const auto [begin, end] = std::pair(encoding.span[run.first].first, encoding.span[run.last - 1].second);
  const size_t spaces = text.substr(begin, end - begin).find_first_not_of(' ');
  const size_t first = begin + (spaces == std::string::npos ? 0 : spaces);
  WordStates states;
  states.shown = text.substr(0, first) + "[" + text.substr(first, end - first) + "]" + text.substr(end);
  const std::vector<float> all = model.Layers(encoding.ids);
  CheckFinite(all, model.info().name);
  const int64_t width = model.info().width, tokens = static_cast<int64_t>(encoding.ids.size());
  for (int64_t layer = 0; layer <= model.info().layers; ++layer) {
    std::vector<float>& mean = states.layers.emplace_back(static_cast<size_t>(width));
    for (int64_t t = run.first; t < run.last; ++t) {
      const float* row = all.data() + (layer * tokens + t) * width;
      for (int64_t c = 0; c < width; ++c) mean[static_cast<size_t>(c)] += row[c];
    }
  }
  return states;
}

std::string Bar(double share, int width) {
  std::string bar;
  const int cells = static_cast<int>(std::clamp(share, 0.0, 1.0) * width + 0.5);
  for (int i = 0; i < width; ++i) bar += i < cells ? "█" : "░";
  return bar;
}

std::string LayersAsText(const WordStates& a, const WordStates& b, const std::vector<double>& similarities) {
  std::string text = fmt::format("1  {}\n2  {}\n\nlayer  similarity of the word's vectors\n", Printable(a.shown, 200),
                                 Printable(b.shown, 200));
  for (size_t layer = similarities.size(); layer-- > 0;) {
    const char* what = layer == 0 ? "  before any attention" : layer + 1 == similarities.size() ? "  in its context" : "";
    text += fmt::format("{:>5}  {:>5.2f}  {}{}\n", layer, similarities[layer], Bar(similarities[layer], 40), what);
  }
  return text;
}

void CompareWord(const EncodeArguments& arguments, const Model& model, const std::vector<std::string>& texts) {
  const std::string& word = *arguments.tokens;
  if (texts.size() != 2) {
    throw Error(ErrorCode::kInvalidArgument, "compares one word in two texts", "--tokens", "2 texts",
                std::to_string(texts.size()));
  }
  const WordStates a = StatesOf(model, texts[0], word, "--tokens, text 1");
  const WordStates b = StatesOf(model, texts[1], word, "--tokens, text 2");
  std::vector<double> similarities;
  for (size_t layer = 0; layer < a.layers.size(); ++layer) {
    similarities.push_back(CosineSimilarity(a.layers[layer], b.layers[layer]));
  }
  if (!arguments.json) return PrintText(LayersAsText(a, b, similarities));
  PrintJsonLine({{"model", arguments.model}, {"texts", texts}, {"word", word}, {"similarities", similarities}});
}

// What was cut, in one line: the first such text, and how many there are.
class CutNote {
 public:
  void Add(size_t text, int64_t tokens, int64_t kept) {
    if (count_++ == 0) text_ = text, tokens_ = tokens, kept_ = kept;
  }
  void Print(size_t texts) const {
    if (count_ == 0) return;
    const std::string which = texts == 1 ? "the text" : fmt::format("text {}", text_ + 1);
    const std::string others = count_ == 1 ? "" : fmt::format(" (and {} more were cut)", count_ - 1);
    PrintNote(fmt::format("{} was cut from {} tokens to {}{}", which, tokens_, kept_, others));
  }

 private:
  size_t count_ = 0, text_ = 0;
  int64_t tokens_ = 0, kept_ = 0;
};

void Run(const EncodeArguments& arguments) {
  const ModelOptions options = MakeModelOptions(arguments.dtype, arguments.threads);
  const std::vector<std::string> texts = ReadTexts(arguments);
  const auto model = LoadModel(arguments.model, options);
  if (arguments.tokens) return CompareWord(arguments, *model, texts);
  auto line = std::make_unique<ProgressLine>("encoding");
  CutNote cut;
  SentenceOptions sentences;
  sentences.progress = line->Callback();
  sentences.on_cut = [&](size_t text, int64_t tokens, int64_t kept) { cut.Add(text, tokens, kept); };
  const Embedded embedded{texts, EncodeSentences(*model, texts, sentences), static_cast<size_t>(model->info().width)};
  line.reset();
  cut.Print(texts.size());
  if (arguments.json) return PrintJsonLine(AsJson(arguments.model, embedded));
  PrintText(AsText(embedded));
}

Action Declare(CLI::App& parser) {
  const auto arguments = std::make_shared<EncodeArguments>();
  const auto add = [&](const char* name, auto& value, const char* type, const char* help) {
    return parser.add_option(name, value, help)->type_name(type);
  };
  add("TEXT", arguments->texts, "", "Texts; - reads them from standard input, one a line");
  add("--file", arguments->file, "FILE", "Read the texts from a file, one a line");
  add("--model", arguments->model, "NAME|PATH", "An installed model (qkv models), a folder or a GGUF file [minilm]");
  add("--tokens", arguments->tokens, "WORD", "Compare this word's vectors in two texts, layer by layer");
  parser.add_flag("--json", arguments->json, "Print the vectors as JSON")->disable_flag_override();
  add("--dtype", arguments->dtype, "f32|bf16", "What the model is multiplied in [f32; a quantised file's own types]");
  add("--threads", arguments->threads, "N", "Threads to use [QKV_NUM_THREADS, else all processors]");
  return [arguments] { Run(*arguments); };
}

}  // namespace

const Command kEncode{"encode", "Turn texts into vectors and print how alike they are",
                      "Examples:\n"
                      "  qkv encode \"A man rides a horse\" \"Someone is on horseback\" \"The soup is cold\"\n"
                      "  qkv encode --tokens bank \"We sat by the pond on the bank\" \"The bank lent me money\"",
                      Declare};

}  // namespace qkv::cli
