#include "text/json_node.h"

#include "qkv/error.h"
#include "runtime/printable.h"

namespace qkv {

using nlohmann::json;

std::string Quoted(std::string_view text) {
  std::string quoted = "'";
  quoted += Printable(text);
  return quoted += "'";
}

void JsonNode::Fail(const std::string& reason, const std::string& expected, const std::string& got) const {
  throw Error(ErrorCode::kFile, reason, where_, expected, got);
}

void JsonNode::FailType(const std::string& expected) const {
  Fail("wrong type", expected, value_->type_name());
}

std::string JsonNode::Inside(std::string_view key) const {
  return where_ + (is_root_ ? ": " : ".") + Printable(key);
}

std::optional<JsonNode> JsonNode::Find(std::string_view key) const {
  const json::object_t& members = Object();
  const auto member = members.find(std::string(key));
  if (member == members.end() || member->second.is_null()) return {};
  return Member(key, member->second);
}

JsonNode JsonNode::Member(std::string_view key, const json& value) const {
  JsonNode node(value, Inside(key));
  node.is_root_ = false;
  return node;
}

JsonNode JsonNode::At(std::string_view key) const {
  if (auto node = Find(key)) return *node;
  throw Error(ErrorCode::kFile, "missing", Inside(key));
}

const json::array_t& JsonNode::Array() const {
  if (!value_->is_array()) FailType("array");
  return value_->get_ref<const json::array_t&>();
}

JsonNode JsonNode::Item(size_t index) const {
  JsonNode item(Array()[index], where_ + "[" + std::to_string(index) + "]");
  item.is_root_ = false;
  return item;
}

std::vector<JsonNode> JsonNode::Items() const {
  const size_t count = Array().size();
  std::vector<JsonNode> items;
  items.reserve(count);
  for (size_t i = 0; i < count; ++i) items.push_back(Item(i));
  return items;
}

const json::object_t& JsonNode::Object() const {
  if (!value_->is_object()) FailType("object");
  return value_->get_ref<const json::object_t&>();
}

const std::string& JsonNode::String() const {
  if (!value_->is_string()) FailType("string");
  return value_->get_ref<const std::string&>();
}

bool JsonNode::Bool() const {
  if (!value_->is_boolean()) FailType("boolean");
  return value_->get<bool>();
}

int64_t JsonNode::Integer(int64_t least, int64_t most) const {
  if (!value_->is_number_integer()) FailType("integer");
  const bool fits =
      !value_->is_number_unsigned() || value_->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
  const int64_t number = value_->get<int64_t>();
  if (!fits || number < least || number > most)
    Fail("out of range", std::to_string(least) + " to " + std::to_string(most), value_->dump());
  return number;
}

void JsonNode::ExpectOnly(std::string_view supported) const {
  if (String() != supported) Fail("unsupported", std::string(supported), Printable(String()));
}

}  // namespace qkv
