// What each file of the extension adds to the module.
#pragma once

#include <nanobind/nanobind.h>

#include "qkv/attention.h"

qkv::AttentionOptions OptionsFrom(const nanobind::dict& given);
void BindOperator(nanobind::module_& module);
void BindCache(nanobind::module_& module);
