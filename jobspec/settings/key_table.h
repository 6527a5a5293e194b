// The table of keys. Used by keys.cc only; other files call all_keys().
#pragma once

#include <span>

#include "jobspec/settings/keys.h"

namespace muster::jobspec {

std::span<const Key> key_table();

}  // namespace muster::jobspec
