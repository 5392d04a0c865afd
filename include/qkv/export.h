// Marks what the shared libraries export; everything else is hidden.
#pragma once

#define QKV_API __attribute__((visibility("default")))
