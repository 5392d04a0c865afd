// A JSON value that knows where it stands, so that every error names file and key: "tokenizer.json:
// model.type".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace qkv {

// 'text', as it may stand in a message.
std::string Quoted(std::string_view text);

class JsonNode {
 public:
  // `value` must outlive the node; `where` is the file.
  JsonNode(const nlohmann::json& value, std::string where) : value_(&value), where_(std::move(where)) {}

  // Members of an object. Find gives nothing where the key is absent or null; At fails there.
  std::optional<JsonNode> Find(std::string_view key) const;
  JsonNode At(std::string_view key) const;

  // The node of a member that the caller has from Object().
  JsonNode Member(std::string_view key, const nlohmann::json& value) const;

  // The value as what it must be; the range is inclusive.
  std::vector<JsonNode> Items() const;
  const nlohmann::json::array_t& Array() const;  // for very many items, which get a node only where they fail
  JsonNode Item(size_t index) const;
  const nlohmann::json::object_t& Object() const;
  const std::string& String() const;
  bool Bool() const;
  int64_t Integer(int64_t least, int64_t most) const;

  // As String, but fails for anything else than `supported`.
  void ExpectOnly(std::string_view supported) const;

  [[noreturn]] void Fail(const std::string& reason, const std::string& expected = {},
                         const std::string& got = {}) const;
  [[noreturn]] void FailType(const std::string& expected) const;

  const std::string& where() const { return where_; }
  bool is_zero() const { return value_->is_number() && value_->get<double>() == 0; }
  bool is_string() const { return value_->is_string(); }

 private:
  std::string Inside(std::string_view key) const;

  const nlohmann::json* value_;
  std::string where_;
  bool is_root_ = true;
};

}  // namespace qkv
