#pragma once

#include "trainer_core/chat/value.h"

namespace muster::trainer::chat {

// A template exceeds the limits of its rendering.
class LimitError : public TemplateError {
 public:
  using TemplateError::TemplateError;
};

}  // namespace muster::trainer::chat
