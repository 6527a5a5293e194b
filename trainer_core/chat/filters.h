// The table of filters.
#pragma once

#include <span>

#include "trainer_core/chat/evaluator.h"

namespace muster::trainer::chat {

struct Filter {
  const char* name;
  Value (*apply)(Evaluator&, const Value& input, const CallArguments&);
};

// The filters of texts and numbers, and those of lists.
std::span<const Filter> scalar_filters();
std::span<const Filter> list_filters();

}  // namespace muster::trainer::chat
