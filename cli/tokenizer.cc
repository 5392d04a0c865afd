// qkv tokenizer: makes a vocabulary.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/exit_status.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "qkv/error.h"
#include "runtime/mapped_file.h"
#include "runtime/write_file.h"
#include "text/bpe_trainer.h"

namespace qkv::cli {
namespace {

constexpr int64_t kLeastTokens = 257;  // the bytes and the end of a text
constexpr int64_t kMostTokens = 1'000'000;
constexpr const char* kDefaultTokens = "4096";

struct TokenizerOptions {
  std::string action;
  std::vector<std::string> texts;
  std::optional<std::string> tokens;
  std::string out;
};

WordCounts CountWords(const std::vector<std::string>& files) {
  WordCounts counts;
  for (const std::string& name : files) {
    const MappedFile file(name);
    counts.Add(file.text(), name);
  }
  if (counts.words().empty()) throw Error(ErrorCode::kInvalidArgument, "the text is empty", "TEXT");
  return counts;
}

void Write(const TrainedBpe& trained, const std::string& out) {
  const std::string json = ToTokenizerJson(trained);
  {
    const InterruptGuard guard;  // half a file would stay behind
    WriteWholeFile(out, json);
  }
  ThrowIfInterrupted();
}

void Train(const TokenizerOptions& options) {
  if (options.texts.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "no text: give at least one file (see qkv tokenizer --help)",
                "TEXT");
  }
  BpeTrainerOptions training;
  training.vocabulary_size =
      ParseCount("--vocab", options.tokens.value_or(kDefaultTokens), kLeastTokens, kMostTokens);
  CheckWritable(options.out);
  const WordCounts counts = CountWords(options.texts);
  TrainedBpe trained;
  {
    ProgressLine line("training");
    trained = TrainBpe(counts, training, line.Callback());
  }
  Write(trained, options.out);
  const auto size = static_cast<int64_t>(trained.special.size() + trained.tokens.size());
  if (size < training.vocabulary_size)
    PrintNote(fmt::format("{} tokens: nothing else occurs twice in this text", size));
  PrintText(fmt::format("{}: {} tokens; the text's {} bytes are {} of them, {:.2f} bytes each\n", options.out,
                        size, trained.text_bytes, trained.text_tokens,
                        static_cast<double>(trained.text_bytes) / static_cast<double>(trained.text_tokens)));
}

void WriteBytes(const TokenizerOptions& options) {
  if (!options.texts.empty() || options.tokens) {
    throw Error(ErrorCode::kInvalidArgument, "takes --out alone", "bytes");
  }
  CheckWritable(options.out);
  Write(ByteVocabulary(), options.out);
  PrintText(fmt::format("{}: 256 tokens, one for each byte\n", options.out));
}

const std::map<std::string, void (*)(const TokenizerOptions&)> kActions{{"train", Train},
                                                                        {"bytes", WriteBytes}};

Action Declare(CLI::App& parser) {
  const auto options = std::make_shared<TokenizerOptions>();
  parser
      .add_option("ACTION", options->action,
                  "train: learn a vocabulary from text; bytes: one token for each byte")
      ->required()
      ->option_text(" ")
      ->type_name("train|bytes");
  parser.add_option("TEXT", options->texts, "UTF-8 text files to learn from")
      ->option_text(" ")
      ->type_name("FILE");
  parser.add_option("--vocab", options->tokens, fmt::format("Tokens of the vocabulary [{}]", kDefaultTokens))
      ->type_name("N");
  parser.add_option("--out", options->out, "Write it here, as tokenizer.json")->type_name("FILE")->required();
  return [options] {
    const auto action = kActions.find(options->action);
    if (action == kActions.end()) {
      throw Error(ErrorCode::kInvalidArgument, "unknown action", "ACTION", "train or bytes",
                  Quote(options->action));
    }
    action->second(*options);
  };
}

}  // namespace

const Command kTokenizer{"tokenizer",
                         "Learn a byte-level vocabulary from text, for qkv and for Hugging Face's tokenizers",
                         "Example:\n"
                         "  qkv tokenizer train book.txt --vocab 4096 --out tokenizer.json",
                         Declare};

}  // namespace qkv::cli
