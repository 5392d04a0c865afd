#include "view/template.h"

namespace qkv::view {

std::string FillTemplate(std::string_view text, const std::function<std::string_view(std::string_view)>& part) {
  std::string page;
  for (size_t open = text.find("{{"); open != text.npos; open = text.find("{{")) {
    const size_t close = text.find("}}", open);
    page += text.substr(0, open);
    page += part(text.substr(open + 2, close - open - 2));
    text.remove_prefix(close + 2);
  }
  page += text;
  return page;
}

}  // namespace qkv::view
