#include "text/bpe_json.h"

#include <algorithm>
#include <utility>

#include "runtime/printable.h"
#include "text/bpe_tokenizer.h"

namespace qkv {
namespace {

void ExpectNothing(const JsonNode& model, std::string_view key) {
  const auto node = model.Find(key);
  if (node && !(node->is_string() && node->String().empty())) node->Fail("unsupported", "null");
}

bool BoolOr(const JsonNode& node, std::string_view key, bool otherwise) {
  const auto member = node.Find(key);
  return member ? member->Bool() : otherwise;
}

// What is put into a text or looked for in it. Real ones are one or two characters.
const std::string& ReadShort(const JsonNode& node) {
  constexpr size_t kMostBytes = 64;
  const std::string& text = node.String();
  if (text.empty() || text.size() > kMostBytes)
    node.Fail("wrong length", "1 to " + std::to_string(kMostBytes) + " bytes", std::to_string(text.size()));
  return text;
}

// A merge is written as ["a", "b"] or, in older files, as "a b".
class MergeReader {
 public:
  MergeReader(const JsonNode& merges, const Vocabulary& vocabulary)
      : merges_(merges), vocabulary_(vocabulary) {}

  MergeTable Read() {
    const nlohmann::json::array_t& items = merges_.Array();
    MergeTable table;
    table.Reserve(items.size());
    for (rank_ = 0; rank_ < items.size(); ++rank_) {
      const auto [left, right] = Sides(items[rank_]);
      joined_.assign(left).append(right);
      const int32_t first = Id(left), second = Id(right);
      table.Add(first, second, {static_cast<int32_t>(rank_), Id(joined_)});
    }
    return table;
  }

 private:
  [[noreturn]] void Fail(const char* reason, const std::string& expected, const std::string& got) const {
    merges_.Item(rank_).Fail(reason, expected, got);
  }

  std::pair<std::string_view, std::string_view> Sides(const nlohmann::json& item) const {
    if (item.is_string()) {
      const std::string& text = item.get_ref<const std::string&>();
      const auto sides = SplitMerge(text);
      if (!sides) Fail("no merge", "two pieces with a space between", Quoted(text));
      return *sides;
    }
    if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_string())
      Fail("no merge", "two pieces", item.type_name());
    return {item[0].get_ref<const std::string&>(), item[1].get_ref<const std::string&>()};
  }

  int32_t Id(std::string_view piece) const {
    const auto id = vocabulary_.ids.Find(piece);
    if (!id) Fail("not in the vocabulary", "", Quoted(piece));
    return static_cast<int32_t>(*id);
  }

  const JsonNode& merges_;
  const Vocabulary& vocabulary_;
  size_t rank_ = 0;
  std::string joined_;
};

void ReadModel(const JsonNode& model, BpeSettings& settings) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) ExpectNothing(model, key);
  if (const auto dropout = model.Find("dropout"); dropout && !dropout->is_zero())
    dropout->Fail("unsupported", "null or 0");
  BpeRules& rules = settings.rules;
  rules.byte_fallback = BoolOr(model, "byte_fallback", false);
  rules.ignore_merges = BoolOr(model, "ignore_merges", false);
  rules.unknowns = BoolOr(model, "fuse_unk", false) ? Unknowns::kFused : Unknowns::kEach;
  if (const auto unknown = model.Find("unk_token")) {
    const auto id = settings.vocabulary.ids.Find(unknown->String());
    if (!id) unknown->Fail("not in the vocabulary", "", Quoted(unknown->String()));
    rules.unknown = static_cast<int32_t>(*id);
  }
  const JsonNode merges = model.At("merges");
  rules.merges = MergeReader(merges, settings.vocabulary).Read();
}

void ReadNormalizer(const JsonNode& node, Normalizer& normalizer) {
  const JsonNode type = node.At("type");
  const std::string& name = type.String();
  if (name == "Sequence") {
    for (const JsonNode& item : node.At("normalizers").Items()) ReadNormalizer(item, normalizer);
  } else if (name == "NFC") {
    normalizer.emplace_back(ComposeNfc{});
  } else if (name == "Prepend") {
    normalizer.emplace_back(PrependText{ReadShort(node.At("prepend"))});
  } else if (name == "Replace") {
    const JsonNode from = node.At("pattern").At("String"), to = node.At("content");
    normalizer.emplace_back(ReplaceText{ReadShort(from), ReadShort(to)});
  } else {
    type.Fail("unsupported", "NFC, Prepend, Replace or Sequence", Printable(name));
  }
}

Metaspace ReadMetaspace(const JsonNode& node) {
  Metaspace metaspace;
  metaspace.replacement = ReadShort(node.At("replacement"));
  using enum Metaspace::Prepend;
  if (const auto scheme = node.Find("prepend_scheme")) {
    const std::string& name = scheme->String();
    if (name != "always" && name != "first" && name != "never")
      scheme->Fail("unsupported", "always, first or never", Printable(name));
    metaspace.prepend = name == "always" ? kAlways : name == "first" ? kFirst : kNever;
  } else {
    metaspace.prepend = BoolOr(node, "add_prefix_space", true) ? kAlways : kNever;
  }
  metaspace.words = BoolOr(node, "split", true) ? Metaspace::Words::kCut : Metaspace::Words::kWhole;
  return metaspace;
}

class PreTokenizerReader {
 public:
  explicit PreTokenizerReader(BpeSettings& settings) : steps_(settings.pre_tokenizer) {}

  BpeAlphabet Read(const std::optional<JsonNode>& node) {
    if (node) ReadStep(*node);
    return alphabet_;
  }

 private:
  void ReadStep(const JsonNode& node) {
    const JsonNode type = node.At("type");
    const std::string& name = type.String();
    if (name == "Sequence") {
      for (const JsonNode& item : node.At("pretokenizers").Items()) ReadStep(item);
      return;
    }
    if (alphabet_ == BpeAlphabet::kBytes) node.Fail("unsupported after ByteLevel");
    if (name == "ByteLevel") {
      ReadByteLevel(node);
    } else if (name == "Split") {
      ReadSplit(node);
    } else if (name == "Digits") {
      const bool each = node.At("individual_digits").Bool();
      steps_.emplace_back(each ? DigitWords::kEachDigit : DigitWords::kRuns);
    } else if (name == "Metaspace") {
      steps_.emplace_back(ReadMetaspace(node));
    } else {
      type.Fail("unsupported", "ByteLevel, Split, Digits, Metaspace or Sequence", Printable(name));
    }
  }

  void ReadByteLevel(const JsonNode& node) {
    alphabet_ = BpeAlphabet::kBytes;
    if (node.At("add_prefix_space").Bool()) steps_.emplace_back(LeadingSpace{});
    if (BoolOr(node, "use_regex", true)) steps_.emplace_back(Gpt2Words{});
  }

  void ReadSplit(const JsonNode& node) {
    const JsonNode pattern = node.At("pattern").At("Regex");
    const RegexKeeps keeps = ReadBehavior(node);
    const std::string& text = pattern.String();
    const bool all = keeps != RegexKeeps::kRest;  // the patterns known by name leave no rest
    if (all && text == kGpt2Pattern) {
      steps_.emplace_back(Gpt2Words{});
    } else if (all && text == kLlama3Pattern) {
      steps_.emplace_back(Gpt4Words{3});
    } else if (all && text == kQwen2Pattern) {
      steps_.emplace_back(Gpt4Words{1});
    } else {
      steps_.emplace_back(RegexSplitter(text, keeps, pattern.where()));
    }
  }

  static RegexKeeps ReadBehavior(const JsonNode& node) {
    const JsonNode behavior = node.At("behavior");
    const bool invert = node.At("invert").Bool();
    if (behavior.String() == "Isolated") return RegexKeeps::kAll;
    if (behavior.String() == "Removed") return invert ? RegexKeeps::kMatches : RegexKeeps::kRest;
    behavior.Fail("unsupported", "Isolated or Removed", Printable(behavior.String()));
  }

  PreTokenizer& steps_;
  BpeAlphabet alphabet_ = BpeAlphabet::kCharacters;
};

// The decoder of a vocabulary of characters, or a step of it.
void ReadCharacterDecoder(const JsonNode& node, CharacterDecoder& decoder) {
  using enum CharacterDecoder::Start;
  const JsonNode type = node.At("type");
  const std::string& name = type.String();
  if (name == "Sequence") {
    for (const JsonNode& item : node.At("decoders").Items()) ReadCharacterDecoder(item, decoder);
  } else if (name == "Replace") {
    decoder.space = ReadShort(node.At("pattern").At("String"));
    node.At("content").ExpectOnly(" ");
  } else if (name == "ByteFallback") {
    decoder.joins_bytes = true;
  } else if (name == "Strip") {
    node.At("content").ExpectOnly(" ");
    node.At("stop").Integer(0, 0);
    decoder.start = node.At("start").Integer(0, 1) == 1 ? kOneSpaceDropped : kKept;
  } else if (name == "Metaspace") {
    const Metaspace metaspace = ReadMetaspace(node);
    decoder.space = metaspace.replacement;
    decoder.start = metaspace.prepend == Metaspace::Prepend::kNever ? kKept : kMarksDropped;
  } else if (name != "Fuse") {
    type.Fail("unsupported", "Replace, ByteFallback, Fuse, Strip, Metaspace or Sequence", Printable(name));
  }
}

void ReadDecoder(const JsonNode& node, BpeSettings& settings) {
  const bool bytes = settings.rules.alphabet == BpeAlphabet::kBytes;
  if (bytes) return node.At("type").ExpectOnly("ByteLevel");
  ReadCharacterDecoder(node, settings.decoder);
}

}  // namespace

std::unique_ptr<const Tokenizer> BpeFromJson(const JsonNode& root, std::vector<VocabularyEntry> entries,
                                             const std::string& where) {
  const JsonNode model = root.At("model");
  model.At("vocab").Object();
  BpeSettings settings;
  settings.vocabulary = OrderById(std::move(entries), where);
  ReadModel(model, settings);
  if (const auto normalizer = root.Find("normalizer")) ReadNormalizer(*normalizer, settings.normalizer);
  settings.rules.alphabet = PreTokenizerReader(settings).Read(root.Find("pre_tokenizer"));
  if (settings.rules.alphabet == BpeAlphabet::kBytes && settings.rules.byte_fallback)
    model.At("byte_fallback").Fail("unsupported with ByteLevel", "false");
  settings.added_tokens = ReadAddedTokens(root, settings.vocabulary);
  Frame frame =
      ReadPostProcessor(root.Find("post_processor"), CountIds(settings.vocabulary, settings.added_tokens));
  settings.before = std::move(frame.before);
  settings.after = std::move(frame.after);
  ReadDecoder(root.At("decoder"), settings);
  if (settings.rules.alphabet == BpeAlphabet::kCharacters) CutAtMarks(settings.decoder.space, settings);
  return std::make_unique<BpeTokenizer>(std::move(settings));
}

}  // namespace qkv
