// The global functions.
#include <algorithm>
#include <array>
#include <ctime>

#include <absl/strings/str_cat.h>

#include "common/text/escape.h"
#include "trainer_core/chat/evaluator.h"
#include "trainer_core/chat/limit_error.h"

namespace muster::trainer::chat {
namespace {

// The maximum number of items of range(), as in Jinja's sandbox.
constexpr int64_t kRangeMax = 100'000;
// The maximum bytes that strftime_now() returns.
constexpr size_t kTimeBytesMax = 4096;
// The maximum bytes of a message of raise_exception() that is shown.
constexpr size_t kMessageBytesMax = 1000;

Value call_range(Evaluator& evaluator, const CallArguments& arguments) {
  const auto given = arguments.bind("range", {"start", "stop", "step"}, 1);
  const auto at = [&](size_t i, int64_t otherwise) {
    if (given[i] == nullptr) return otherwise;
    if (!given[i]->is_integer()) throw TemplateError("range needs integers");
    return given[i]->as_integer();
  };
  const bool has_start = given[1] != nullptr;
  const int64_t begin = has_start ? at(0, 0) : 0;
  const int64_t end = has_start ? at(1, 0) : at(0, 0);
  const int64_t step = at(2, 1);
  if (step == 0) throw TemplateError("range has a step of 0");
  const __int128 distance = step > 0 ? __int128{end} - begin : __int128{begin} - end;
  const __int128 stride = step > 0 ? __int128{step} : -__int128{step};
  if (distance > kRangeMax * stride)
    throw LimitError(absl::StrCat("a range has more than ", kRangeMax, " items"));
  std::vector<Value> items;
  for (__int128 i = begin; step > 0 ? i < end : i > end; i += step) {
    evaluator.count_items(1);
    items.push_back(Value::integer(static_cast<int64_t>(i)));
  }
  return Value::list(std::move(items));
}

Value call_namespace(Evaluator& evaluator, const CallArguments& arguments) {
  Namespace* const space = evaluator.make_namespace();
  if (arguments.positional.size() > 1) throw TemplateError("namespace takes one dict");
  if (!arguments.positional.empty()) {
    const Dict* const dict = arguments.positional[0].as_dict();
    if (dict == nullptr) throw TemplateError("namespace takes one dict");
    for (const auto& [key, value] : dict->entries)
      space->attributes.emplace_back(evaluator.text_of(key), value);
  }
  for (const auto& [name, value] : arguments.named) {
    std::erase_if(space->attributes, [&](const auto& entry) { return entry.first == name; });
    space->attributes.emplace_back(name, value);
  }
  return Value(Value::Data(space));
}

Value call_dict(Evaluator& evaluator, const CallArguments& arguments) {
  std::vector<std::pair<Value, Value>> entries;
  if (!arguments.positional.empty()) {
    const Dict* const dict = arguments.positional[0].as_dict();
    if (dict == nullptr) throw TemplateError("dict takes one dict and named values");
    evaluator.count_items(2 * dict->entries.size());
    entries = dict->entries;
  }
  for (const auto& [name, value] : arguments.named) {
    evaluator.count_work(entries.size());
    const auto found = std::ranges::find_if(
        entries, [&](const auto& entry) { return equal(entry.first, Value::text(name)); });
    if (found != entries.end()) {
      found->second = value;
    } else {
      entries.emplace_back(Value::text(name), value);
    }
  }
  return Value::dict(std::move(entries));
}

Value call_strftime(Evaluator& evaluator, const CallArguments& arguments) {
  const auto given = arguments.bind("strftime_now", {"format"}, 1);
  if (given[0]->as_text() == nullptr) throw TemplateError("strftime_now needs a str");
  const std::string& format = *given[0]->as_text();
  const std::time_t now = *evaluator.options().now;
  std::tm parts{};
  localtime_r(&now, &parts);
  std::array<char, kTimeBytesMax> buffer{};
  const size_t size = std::strftime(buffer.data(), buffer.size(), format.c_str(), &parts);
  if (size == 0 && !format.empty())
    throw TemplateError(
        absl::StrCat("strftime_now gives nothing, or more than ", kTimeBytesMax, " bytes"));
  return evaluator.text(std::string(buffer.data(), size));
}

}  // namespace

bool has_function(const Evaluator& evaluator, std::string_view name) {
  if (name == "strftime_now") return evaluator.options().now.has_value();
  return name == "range" || name == "namespace" || name == "dict" || name == "raise_exception";
}

Value call_function(Evaluator& evaluator, const std::string& name, const CallArguments& arguments) {
  if (name == "range") return call_range(evaluator, arguments);
  if (name == "namespace") return call_namespace(evaluator, arguments);
  if (name == "dict") return call_dict(evaluator, arguments);
  if (name == "strftime_now") return call_strftime(evaluator, arguments);
  const auto given = arguments.bind("raise_exception", {"message"}, 1);
  throw TemplateError(absl::StrCat(
      "the template refuses the conversation: ",
      escape_controls(evaluator.text_of(*given[0]).substr(0, kMessageBytesMax), Layout::kOneLine)));
}

}  // namespace muster::trainer::chat
