#include "trainer_core/text/sft_sample.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/data/shard.h"
#include "trainer_core/text/document_text.h"
#include "trainer_core/text/json_limits.h"

namespace muster::trainer {
namespace {

using nlohmann::ordered_json;

absl::Status bad_sample(const std::string& what) { return absl::InvalidArgumentError(what); }

std::string shown_fields(const ordered_json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) {
    if (names.size() == kNamesShown) break;
    names.push_back(absl::StrCat(
        "\"", escape_controls(name.substr(0, kNameBytesShown), Layout::kOneLine), "\""));
  }
  return names.empty() ? "no field" : absl::StrJoin(names, ", ");
}

// Returns the weight of a sample or message; 1 if it states none.
absl::StatusOr<float> weight_of(const ordered_json& object) {
  const auto found = object.find("weight");
  if (found == object.end() || found->is_null()) return 1.0F;
  const double weight = found->is_number() ? found->get<double>() : -1;
  if (weight >= 0 && weight <= double{kWeightMax}) return static_cast<float>(weight);
  return bad_sample(absl::StrCat("has the weight ", show_json(*found), "; a number from 0 to ",
                                 kWeightMax, " is required"));
}

bool is_answer(const ordered_json& message) {
  const auto role = message.find("role");
  return role != message.end() && role->is_string() && *role == "assistant";
}

absl::Status check_messages(const ordered_json& messages, const std::string& field) {
  if (!messages.is_array())
    return bad_sample(absl::StrCat("has a field \"", field, "\" that is no list of messages"));
  if (messages.size() > kMessagesMax)
    return bad_sample(
        absl::StrCat("has ", messages.size(), " messages; at most ", kMessagesMax, " are read"));
  for (size_t i = 0; i < messages.size(); ++i) {
    const ordered_json& message = messages[i];
    const auto role = message.is_object() ? message.find("role") : message.end();
    if (!message.is_object() || role == message.end() || !role->is_string())
      return bad_sample(absl::StrCat("has a message ", i + 1, " in \"", field,
                                     "\" that is no object with a text \"role\""));
    if (!message.contains("content") && !message.contains("tool_calls"))
      return bad_sample(
          absl::StrCat("has a message ", i + 1, " in \"", field, "\" without \"content\""));
  }
  return absl::OkStatus();
}

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

// A sample of messages. The answers from message `first` on are completions.
class Conversation {
 public:
  Conversation(const chat::ChatTemplate& chat, const ordered_json& messages,
               const ordered_json& tools, size_t first, float weight, size_t bytes)
      : chat_(chat),
        messages_(messages),
        tools_(tools),
        first_(first),
        weight_(weight),
        bytes_(bytes) {}

  absl::StatusOr<SftText> text() {
    for (size_t i = first_; i < messages_.size(); ++i) {
      if (!is_answer(messages_[i])) continue;
      const auto weight = weight_of(messages_[i]);
      if (!weight.ok()) return weight.status();
      answers_.push_back({i, *weight * weight_});
    }
    if (answers_.empty())
      return bad_sample("has no completion: no message has the role \"assistant\"");
    if (!chat_.marks_generated() && answers_.size() > kAnswerBytesMax / bytes_)
      return too_much(absl::StrCat(kAnswerBytesMax, " bytes"));
    auto whole = render(messages_.size(), false);
    if (!whole.ok()) return whole.status();
    whole_ = *std::move(whole);
    SftText out;
    out.is_rendered = true;
    const absl::Status found =
        chat_.marks_generated() ? use_marks(out.spans) : compare_prefixes(out.spans);
    if (!found.ok()) return found;
    out.text = std::move(whole_.text);
    return out;
  }

 private:
  struct Answer {
    size_t message;
    float weight;
  };

  absl::StatusOr<chat::Rendered> render(size_t count, bool add_generation_prompt) {
    chat::RenderOptions options;
    const bool is_last = work_left_ < options.work_max;
    if (is_last) options.work_max = work_left_;
    auto rendered =
        count == messages_.size()
            ? chat_.render(messages_, tools_, add_generation_prompt, options)
            : chat_.render(ordered_json(messages_.begin(),
                                        messages_.begin() + static_cast<ptrdiff_t>(count)),
                           tools_, add_generation_prompt, options);
    if (rendered.ok()) {
      work_left_ -= rendered->work;
      return rendered;
    }
    if (is_last && absl::IsResourceExhausted(rendered.status()))
      return too_much(absl::StrCat(kSampleWorkMax, " units of work"));
    return bad_sample(
        absl::StrCat("cannot be rendered by ", chat_.path(), ", ", rendered.status().message()));
  }

  absl::Status too_much(const std::string& limit) const {
    return bad_sample(absl::StrCat(
        "takes too much work: ", chat_.path(), " is rendered twice for each of ", answers_.size(),
        " answers in ", bytes_, " bytes, which exceeds ", limit,
        "; mark what the model generates by {% generation %} … {% endgeneration %} in the "
        "template, or make a sample of each answer"));
  }

  // The template marks the completions by {% generation %}. If there is a mark for each of the
  // conversation's answers, they have the answers' weights.
  absl::Status use_marks(std::vector<WeightedSpan>& spans) const {
    const auto answers = static_cast<size_t>(std::ranges::count_if(messages_, is_answer));
    const size_t earlier = answers - answers_.size();
    const bool one_each = whole_.generated.size() == answers;
    const bool are_equal = earlier == 0 && std::ranges::all_of(answers_, [&](const Answer& answer) {
                             return answer.weight == answers_[0].weight;
                           });
    if (!one_each && !are_equal) {
      return bad_sample(absl::StrCat("has weights of ", answers, " messages, but ", chat_.path(),
                                     " marks ", whole_.generated.size(), " generated texts"));
    }
    for (size_t i = 0; i < whole_.generated.size(); ++i) {
      if (one_each && i < earlier) continue;
      spans.push_back({whole_.generated[i].begin, whole_.generated[i].end,
                       one_each ? answers_[i - earlier].weight : answers_[0].weight,
                       /*takes_last_token=*/true});
    }
    return absl::OkStatus();
  }

  // A completion is what the text of the messages up to the answer has beyond the text of those
  // before it, with the prompt for an answer.
  absl::Status compare_prefixes(std::vector<WeightedSpan>& spans) {
    for (const Answer& answer : answers_) {
      const auto prompt = render(answer.message, true);
      if (!prompt.ok()) return prompt.status();
      const auto upto = render(answer.message + 1, false);
      if (!upto.ok()) return upto.status();
      const size_t begin = prompt->text.size();
      const size_t end = common_prefix(upto->text, whole_.text);
      if (common_prefix(prompt->text, whole_.text) < begin || end < begin) {
        return bad_sample(absl::StrCat(
            "cannot be divided into prompts and completions: ", chat_.path(),
            " renders what is before message ", answer.message + 1,
            " differently once that message or a later one follows; mark what the model generates "
            "by {% generation %} … {% endgeneration %} in the template, or make a sample of each "
            "answer"));
      }
      spans.push_back({begin, end, answer.weight});
    }
    return absl::OkStatus();
  }

  const chat::ChatTemplate& chat_;
  const ordered_json& messages_;
  const ordered_json& tools_;
  const size_t first_;
  const float weight_;
  const size_t bytes_;  // the sample's size
  uint64_t work_left_ = kSampleWorkMax;
  std::vector<Answer> answers_;
  chat::Rendered whole_;
};

absl::StatusOr<SftText> conversation_text(const ordered_json& sample, const ordered_json& messages,
                                          size_t first, float weight, size_t bytes,
                                          const SftFormat& format) {
  if (!format.chat)
    return bad_sample(absl::StrCat("has messages, but ", format.no_template.message()));
  static const ordered_json kNoTools;
  const auto tools = sample.find("tools");
  return Conversation(*format.chat, messages, tools != sample.end() ? *tools : kNoTools, first,
                      weight, bytes)
      .text();
}

absl::StatusOr<SftText> completion_text(const ordered_json& sample, float weight, size_t bytes,
                                        const SftFormat& format) {
  const ordered_json& prompt = sample["prompt"];
  const auto found = sample.find("completion");
  if (found == sample.end() || found->is_null())
    return bad_sample(absl::StrCat("has no completion: it has ", shown_fields(sample)));
  if (prompt.is_array() && found->is_array()) {
    if (auto status = check_messages(prompt, "prompt"); !status.ok()) return status;
    if (auto status = check_messages(*found, "completion"); !status.ok()) return status;
    ordered_json messages = prompt;
    messages.insert(messages.end(), found->begin(), found->end());
    return conversation_text(sample, messages, prompt.size(), weight, bytes, format);
  }
  if (!prompt.is_string() || !found->is_string())
    return bad_sample(
        "has a \"prompt\" and a \"completion\" that are neither two texts nor two lists "
        "of messages");
  if (found->get_ref<const std::string&>().empty())
    return bad_sample("has no completion: \"completion\" is an empty text");
  SftText out;
  out.text = prompt.get<std::string>() + found->get<std::string>();
  out.spans = {{prompt.get_ref<const std::string&>().size(), out.text.size(), weight}};
  return out;
}

size_t common_ids(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

absl::StatusOr<SftText> sft_text(std::string_view json, const SftFormat& format) {
  if (auto status = check_json_limits(json); !status.ok()) return status;
  const auto sample = ordered_json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (sample.is_discarded()) return bad_sample("is not JSON, or not UTF-8");
  if (!sample.is_object()) return bad_sample("is JSON, but no object");
  return sft_text(sample, json.size(), format);
}

absl::StatusOr<SftText> sft_text(const ordered_json& sample, size_t bytes,
                                 const SftFormat& format) {
  const auto weight = weight_of(sample);
  if (!weight.ok()) return weight.status();
  if (sample.contains("messages")) {
    if (auto status = check_messages(sample["messages"], "messages"); !status.ok()) return status;
    return conversation_text(sample, sample["messages"], 0, *weight, bytes, format);
  }
  if (sample.contains("prompt")) return completion_text(sample, *weight, bytes, format);
  const auto text = sample.find("text");
  if (text == sample.end())
    return bad_sample(absl::StrCat(
        "is no sample for fine-tuning: it has ", shown_fields(sample),
        ", but neither \"messages\", nor \"prompt\" and \"completion\", nor \"text\""));
  if (!text->is_string() || text->get_ref<const std::string&>().empty())
    return bad_sample("has a \"text\" that is no text, or is empty");
  SftText out;
  out.text = text->get<std::string>();
  out.spans = {{0, out.text.size(), *weight}};
  return out;
}

SftEncoder::SftEncoder(const Tokenizer& tokenizer, const SftFormat& format, bool add_eos)
    : tokenizer_(tokenizer),
      add_eos_(add_eos),
      bos_id_(begin_id(tokenizer, format)),
      encoder_(tokenizer) {}

absl::Status SftEncoder::append(const SftText& sample, std::vector<int32_t>& ids,
                                std::vector<float>& weights) {
  size_t prefix_bytes = 0;
  for (const WeightedSpan& span : sample.spans)
    prefix_bytes += span.begin + (span.end < sample.text.size() ? span.end : 0);
  if (prefix_bytes > kPrefixBytesMax) {
    return bad_sample(absl::StrCat(
        "takes too much work: the texts before the begins and ends of its ", sample.spans.size(),
        " completions have ", prefix_bytes, " bytes, and at most ", kPrefixBytesMax,
        " are tokenized; make several samples of it"));
  }
  whole_.clear();
  if (auto status = encoder_.append(sample.text, whole_); !status.ok()) return status;
  const size_t base = weights.size();
  const bool has_own = !whole_.empty() && whole_.front() == bos_id_;
  const bool has_bos = bos_id_ >= 0 && !sample.is_rendered && !has_own;
  if (has_bos) {
    ids.push_back(bos_id_);
    weights.push_back(0);
  }
  const size_t begin = weights.size();
  ids.insert(ids.end(), whole_.begin(), whole_.end());
  weights.resize(begin + whole_.size(), 0.0F);
  // The number of tokens up to a position: those that the text and its beginning have in common.
  const auto tokens_before = [&](size_t bytes) -> absl::StatusOr<size_t> {
    if (bytes == 0) return 0;
    if (bytes == sample.text.size()) return whole_.size();
    prefix_.clear();
    if (auto status = encoder_.append(std::string_view(sample.text).substr(0, bytes), prefix_);
        !status.ok())
      return status;
    return common_ids(prefix_, whole_);
  };
  float last_weight = 0;
  for (const WeightedSpan& span : sample.spans) {
    if (span.begin == span.end) continue;  // an empty {% generation %} block
    const auto from = tokens_before(span.begin);
    if (!from.ok()) return from.status();
    const auto to = tokens_before(span.end);
    if (!to.ok()) return to.status();
    const bool takes_next =
        span.takes_last_token && span.end < sample.text.size() && prefix_.size() > *to;
    const size_t end = std::min(*to + (takes_next ? 1 : 0), whole_.size());
    for (size_t i = *from; i < end; ++i) weights[begin + i] = span.weight;
    last_weight = span.weight;
  }
  if (add_eos_ && !sample.is_rendered) {
    ids.push_back(tokenizer_.eos_id());
    weights.push_back(last_weight);
  }
  const auto added = std::span(weights).subspan(base);
  // The first token of a sample is never predicted.
  const bool learns = added.size() > 1 && std::ranges::any_of(added.subspan(1), [](float weight) {
                        return weight > 0;
                      });
  if (learns) return absl::OkStatus();
  ids.resize(ids.size() - added.size());
  weights.resize(base);
  return bad_sample("has no completion: no token has a weight above 0");
}

int32_t begin_id(const Tokenizer& tokenizer, const SftFormat& format) {
  if (!format.add_bos) return -1;
  if (const auto control = tokenizer.control_tokens(); !control.empty())
    return sequence_token(tokenizer, /*begins=*/true).empty() ? -1 : control.front().second;
  const std::string bos_token = format.chat ? format.chat->special_token("bos_token") : "";
  for (const char* const name : {"<|begin_of_text|>", "<bos>", "<s>"}) {
    const std::string text = bos_token.empty() ? name : bos_token;
    const auto ids = tokenizer.encode(text);
    if (ids.ok() && ids->size() == 1) return ids->front();
  }
  return -1;
}

}  // namespace muster::trainer
