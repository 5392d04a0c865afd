#include "runtime/json.h"

#include <utility>
#include <vector>

#include "qkv/error.h"
#include "runtime/mapped_file.h"
#include "runtime/printable.h"

namespace qkv {
namespace {

using nlohmann::json;

// Builds the value as the parser reports its parts, and stops at the first that breaks a rule. The library's
// own builder would keep the last of two equal keys and set no limits.
class Builder : public nlohmann::json_sax<json> {
 public:
  Builder(const std::string& where, const JsonLimits& limits, const JsonVocabulary* vocabulary)
      : where_(where), limits_(limits), vocabulary_(vocabulary) {}

  json Take() { return std::move(root_); }

  bool null() override { return Leaf(nullptr); }
  bool boolean(bool value) override { return Leaf(value); }
  bool number_integer(number_integer_t value) override { return Leaf(value); }
  bool number_unsigned(number_unsigned_t value) override {
    return InVocabulary() && value <= INT64_MAX ? Take(static_cast<int64_t>(value)) : Leaf(value);
  }
  bool number_float(number_float_t value, const string_t&) override { return Leaf(value); }
  bool string(string_t& value) override { return Leaf(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // not part of JSON text

  bool start_object(size_t) override { return Open(json::object()); }
  bool start_array(size_t) override { return Open(json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    if (InVocabulary()) {
      member_name_ = std::move(name);
      return true;
    }
    const auto [place, added] = open_.back()->get_ref<json::object_t&>().try_emplace(std::move(name));
    if (!added) Fail("duplicate key '" + Printable(place->first) + "'");
    member_ = &place->second;
    const bool in_parent = open_.size() == 2 && vocabulary_ != nullptr && open_.back() == parent_;
    next_is_vocabulary_ = in_parent && place->first == vocabulary_->key;
    if (open_.size() == 1 && vocabulary_ != nullptr && place->first == vocabulary_->parent) parent_ = member_;
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    std::string_view what = error.what();
    what.remove_prefix(what.find("] ") + 2);  // the library's error number
    Fail("not valid JSON (" + Printable(what) + ")");
  }

 private:
  [[noreturn]] void Fail(std::string reason, std::string expected = {}) const {
    throw Error(ErrorCode::kFile, std::move(reason), where_, std::move(expected));
  }

  bool InVocabulary() const { return vocabulary_object_ != nullptr && open_.back() == vocabulary_object_; }

  bool Take(int64_t value) {
    Count();
    vocabulary_->take(member_name_, value);
    return true;
  }

  void Count() {
    if (++values_ > limits_.max_values) Fail("too many values in JSON", LimitText(limits_.max_values));
  }

  // Puts the value where it belongs and returns its place. A place stays put while its value is open: the array
  // or object that holds it cannot grow meanwhile.
  json* Place(json value) {
    if (InVocabulary()) FailMember(value);
    Count();
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back()->is_object()) return &(*member_ = std::move(value));
    return &open_.back()->get_ref<json::array_t&>().emplace_back(std::move(value));
  }

  bool Leaf(json value) {
    Place(std::move(value));
    return true;
  }

  bool Open(json value) {
    if (open_.size() == limits_.max_depth)
      Fail("JSON nested too deep", LimitText(limits_.max_depth) + " levels");
    const bool is_vocabulary = std::exchange(next_is_vocabulary_, false) && value.is_object();
    open_.push_back(Place(std::move(value)));
    if (is_vocabulary) vocabulary_object_ = open_.back();
    return true;
  }

  bool Close() {
    if (InVocabulary()) vocabulary_object_ = nullptr;
    open_.pop_back();
    return true;
  }

  [[noreturn]] void FailMember(const json& value) const {
    const std::string got = value.is_number() ? value.dump() : value.type_name();
    throw Error(ErrorCode::kFile, "no valid id",
                where_ + ": " + std::string(vocabulary_->parent) + "." + std::string(vocabulary_->key) + "." +
                    Printable(member_name_),
                "an integer from 0", got);
  }

  static std::string LimitText(size_t limit) { return "at most " + std::to_string(limit); }

  const std::string& where_;
  const JsonLimits& limits_;
  const JsonVocabulary* vocabulary_;  // null: there is none
  json root_;
  std::vector<json*> open_;
  json* member_ = nullptr;  // of the innermost object: where the value of the last key goes
  size_t values_ = 0;

  const json* parent_ = nullptr;             // where the vocabulary is expected
  const json* vocabulary_object_ = nullptr;  // while it is open
  bool next_is_vocabulary_ = false;          // the last key was the vocabulary's
  std::string member_name_;                  // the last key in it
};

json Parse(std::string_view text, const std::string& where, const JsonLimits& limits,
           const JsonVocabulary* vocabulary) {
  if (text.size() > limits.max_bytes) {
    throw Error(ErrorCode::kFile, "JSON too large", where,
                "at most " + std::to_string(limits.max_bytes) + " bytes", std::to_string(text.size()));
  }
  // The parser takes a NUL for the end of the text and would not look behind it.
  if (const size_t at = text.find('\0'); at != std::string_view::npos) {
    throw Error(ErrorCode::kFile, "not valid JSON (NUL at byte " + std::to_string(at) + ")", where);
  }
  Builder builder(where, limits, vocabulary);
  json::sax_parse(text.begin(), text.end(), &builder);
  return builder.Take();
}

}  // namespace

nlohmann::json ParseJson(std::string_view text, const std::string& where, const JsonLimits& limits) {
  return Parse(text, where, limits, nullptr);
}

nlohmann::json ParseJson(std::string_view text, const std::string& where, const JsonVocabulary& vocabulary,
                         const JsonLimits& limits) {
  return Parse(text, where, limits, &vocabulary);
}

nlohmann::json ReadJsonFile(const std::filesystem::path& path, const JsonLimits& limits) {
  const MappedFile file(path);
  const std::string_view text = file.text();
  return ParseJson(text, path.string(), limits);
}

std::string QuoteJson(const json& value) {
  if (value.is_string()) return "'" + Printable(value.get_ref<const std::string&>(), 60) + "'";
  if (value.is_primitive()) return value.dump();
  return std::string("an ") + value.type_name();
}

}  // namespace qkv
