// The page's own text: page.html with the places {{style}}, {{data}} and {{script}}, page.css, and
// page_data.js, page_draw.js and page.js in this order.
#pragma once

#include <string_view>

namespace qkv::view {

extern const std::string_view kPageHtml, kPageStyle, kPageScript;

}  // namespace qkv::view
