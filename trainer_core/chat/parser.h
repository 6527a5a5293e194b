// Parses a template (lexer.h) by Jinja 3.1's grammar.
#pragma once

#include <string_view>

#include "trainer_core/chat/nodes.h"

namespace muster::trainer::chat {

// The maximum bytes of a template. The largest in use have 30 KiB.
constexpr size_t kTemplateBytesMax = 1 << 20;
// The maximum nesting of expressions and statements. It bounds the stack of the parser and of the
// evaluator, for which an expression in parentheses takes about ten calls.
constexpr int kNestingMax = 100;

// Returns the statements of a template. Throws TemplateError with the line and what was expected.
Statements parse_template(std::string_view source);

}  // namespace muster::trainer::chat
