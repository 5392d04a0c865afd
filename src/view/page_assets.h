// The pages' own text: page.html with the places {{style}}, {{data}} and {{script}}, page.css, and
// page_data.js, page_draw.js and page.js in this order; and
// explain.html with the places {{style}}, {{title}}, {{subject}} and {{steps}}, and explain.css.
#pragma once

#include <string_view>

namespace qkv::view {

extern const std::string_view kPageHtml, kPageStyle, kPageScript;
extern const std::string_view kExplainHtml, kExplainStyle;

}  // namespace qkv::view
