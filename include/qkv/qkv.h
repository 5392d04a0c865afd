// Everything. To use only the operator include qkv/attention.h and link qkv::attention.
#pragma once

#include "qkv/attention.h"
#include "qkv/attention_backward.h"
#include "qkv/capture.h"
#include "qkv/encode.h"
#include "qkv/error.h"
#include "qkv/explain.h"
#include "qkv/explanation.h"
#include "qkv/generate.h"
#include "qkv/kv_cache.h"
#include "qkv/layers.h"
#include "qkv/model.h"
#include "qkv/progress.h"
#include "qkv/rope.h"
#include "qkv/tensor.h"
#include "qkv/tokenizer.h"
#include "qkv/view.h"
