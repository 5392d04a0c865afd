// What the page knows of a capture: JSON that is safe inside <script>, weights as base64, bounded in size.
#pragma once

#include <string>

#include "view/rows.h"

namespace qkv::view {

// The most that the weights take, in bytes of the file. Over it the page holds only each row's strongest keys,
// then only the strongest heads, and says so.
inline constexpr int64_t kPayloadBytes = int64_t{12} << 20;

std::string Payload(const Rows& rows, const ViewOptions& options);

}  // namespace qkv::view
