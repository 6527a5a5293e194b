// The rows behind all_keys(). Used by keys.cc only.
#pragma once

#include <span>

#include "jobspec/keys.h"

namespace muster::jobspec {

std::span<const Key> key_table();

}  // namespace muster::jobspec
