#include "trainer_core/chat/template.h"

#include <algorithm>
#include <new>
#include <utility>

#include <absl/strings/str_cat.h>

#include "trainer_core/chat/evaluator.h"
#include "trainer_core/chat/limit_error.h"
#include "trainer_core/chat/parser.h"
#include "trainer_core/data/utf8.h"

namespace muster::trainer::chat {
namespace {

bool has_generation(const Statements& statements) {
  return std::ranges::any_of(statements, [](const auto& node) {
    return node->kind == Statement::Kind::kGeneration || has_generation(node->body) ||
           has_generation(node->other);
  });
}

}  // namespace

class Template::Tree {
 public:
  explicit Tree(Statements parsed) : statements(std::move(parsed)) {}
  const Statements statements;
};

Template::Template(std::unique_ptr<Tree> tree)
    : tree_(std::move(tree)), marks_generated_(has_generation(tree_->statements)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

absl::StatusOr<Template> Template::parse(std::string_view source) {
  if (scan_utf8(source).invalid_bytes > 0)
    return absl::InvalidArgumentError("the template is not valid UTF-8");
  try {
    return Template(std::make_unique<Tree>(parse_template(source)));
  } catch (const TemplateError& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

absl::StatusOr<Rendered> Template::render(const nlohmann::ordered_json& variables,
                                          const RenderOptions& options) const {
  Value values;
  try {
    values = Value::of(variables);
  } catch (const TemplateError& error) {
    return absl::InvalidArgumentError(absl::StrCat("the variables: ", error.what()));
  }
  if (values.as_dict() == nullptr)
    return absl::InvalidArgumentError("the variables of a template are no object");
  Evaluator evaluator(tree_->statements, options);
  try {
    return evaluator.run(*values.as_dict());
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat("line ", evaluator.line(), ": there is not enough memory for the template"));
  } catch (const LimitError& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("line ", evaluator.line(), ": ", error.what()));
  } catch (const TemplateError& error) {
    return absl::InvalidArgumentError(absl::StrCat("line ", evaluator.line(), ": ", error.what()));
  }
}

}  // namespace muster::trainer::chat
