#include "qkv/error.h"
#include "qkv/view.h"
#include "view/page_assets.h"
#include "view/payload.h"

namespace qkv {
namespace {

std::string_view PartNamed(std::string_view name, std::string_view data) {
  if (name == "style") return view::kPageStyle;
  if (name == "script") return view::kPageScript;
  if (name == "data") return data;
  throw Error(ErrorCode::kInternal, "the page's text names an unknown part", std::string(name));
}

}  // namespace

std::string Page(const ModelCapture& capture, const ViewOptions& options) {
  const view::Rows rows(capture, options);
  const std::string data = view::Payload(rows, options);
  std::string page;
  page.reserve(view::kPageHtml.size() + view::kPageStyle.size() + view::kPageScript.size() + data.size());
  std::string_view left = view::kPageHtml;
  for (size_t open = left.find("{{"); open != left.npos; open = left.find("{{")) {
    const size_t close = left.find("}}", open);
    page += left.substr(0, open);
    page += PartNamed(left.substr(open + 2, close - open - 2), data);  // put in as it is, never searched again
    left.remove_prefix(close + 2);
  }
  page += left;
  return page;
}

}  // namespace qkv
