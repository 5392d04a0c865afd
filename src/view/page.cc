#include "qkv/error.h"
#include "qkv/view.h"
#include "view/page_assets.h"
#include "view/payload.h"
#include "view/template.h"

namespace qkv {

std::string Page(const ModelCapture& capture, const ViewOptions& options) {
  const view::Rows rows(capture, options);
  const std::string data = view::Payload(rows, options);
  return view::FillTemplate(view::kPageHtml, [&](std::string_view name) -> std::string_view {
    if (name == "style") return view::kPageStyle;
    if (name == "script") return view::kPageScript;
    if (name == "data") return data;
    throw Error(ErrorCode::kInternal, "the page's text names an unknown part", std::string(name));
  });
}

}  // namespace qkv
