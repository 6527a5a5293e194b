#include "trainer_core/text/dpo_sample.h"

#include <algorithm>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "trainer_core/data/dpo_samples.h"
#include "trainer_core/data/utf8.h"
#include "trainer_core/text/json_limits.h"

namespace muster::trainer {
namespace {

using nlohmann::ordered_json;

absl::Status bad_pair(const std::string& what) { return absl::InvalidArgumentError(what); }

// Makes a list of a single message.
void make_list(ordered_json& value) {
  if (value.is_object()) value = ordered_json::array({value});
}

// Returns the text with which both answers begin. As in TRL, a blank before the difference belongs
// to the answers, and if one text continues the other, the last character of the shorter one does.
std::string common_text(const std::string& a, const std::string& b) {
  auto end = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  const bool differs = end < std::min(a.size(), b.size());
  if (!differs && end > 0) --end;
  const auto continues = [&](const std::string& text) {
    return end < text.size() && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80;
  };
  while (end > 0 && (continues(a) || continues(b))) --end;  // a character is not divided
  if (differs && end > 0 && a[end - 1] == ' ') --end;
  return a.substr(0, end);
}

// Moves what both answers begin with to "prompt".
absl::Status extract_prompt(ordered_json& pair) {
  ordered_json &chosen = pair["chosen"], &rejected = pair["rejected"];
  if (chosen.is_string()) {
    auto& a = chosen.get_ref<std::string&>();
    auto& b = rejected.get_ref<std::string&>();
    const std::string prompt = common_text(a, b);
    a.erase(0, prompt.size());
    b.erase(0, prompt.size());
    pair["prompt"] = prompt;
    return absl::OkStatus();
  }
  const size_t shorter = std::min(chosen.size(), rejected.size());
  size_t count = 0;
  while (count + 1 < shorter && chosen[count] == rejected[count]) ++count;
  if (count == 0)
    return bad_pair(
        "has no \"prompt\" of messages, and \"chosen\" and \"rejected\" do not begin with the same "
        "message");
  const auto end = static_cast<ptrdiff_t>(count);
  ordered_json prompt(ordered_json::array());
  for (size_t i = 0; i < count; ++i) prompt.push_back(chosen[i]);
  chosen.erase(chosen.begin(), chosen.begin() + end);
  rejected.erase(rejected.begin(), rejected.begin() + end);
  pair["prompt"] = std::move(prompt);  // may move the other fields
  return absl::OkStatus();
}

absl::StatusOr<SftText> answer_text(const ordered_json& pair, const char* name, size_t bytes,
                                    const SftFormat& format) {
  ordered_json sample = {{"prompt", pair["prompt"]}, {"completion", pair[name]}};
  if (pair.contains("tools")) sample["tools"] = pair["tools"];
  auto text = sft_text(sample, bytes, format);
  if (!text.ok())
    return bad_pair(absl::StrCat("has a \"", name, "\" answer that ", text.status().message()));
  for (const WeightedSpan& span : text->spans) {
    if (span.weight == 0 || span.weight == 1) continue;
    return bad_pair(absl::StrCat("has a message with the \"weight\" ", span.weight, " in \"", name,
                                 "\"; preference tuning allows 0 and 1"));
  }
  return text;
}

}  // namespace

absl::StatusOr<DpoTexts> dpo_texts(std::string_view json, const SftFormat& format) {
  if (auto status = check_json_limits(json); !status.ok()) return status;
  auto pair = ordered_json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (pair.is_discarded()) return bad_pair("is not JSON, or not UTF-8");
  if (!pair.is_object()) return bad_pair("is JSON, but no object");
  for (const char* name : {"chosen", "rejected"}) {
    if (!pair.contains(name)) return bad_pair(absl::StrCat("has no field \"", name, "\""));
    make_list(pair[name]);
  }
  if (pair.contains("weight") && pair["weight"] != 1) {
    return bad_pair(absl::StrCat("has the \"weight\" ", pair["weight"].dump(),
                                 "; pairs have no weights: leave it out"));
  }
  const ordered_json &chosen = pair["chosen"], &rejected = pair["rejected"];
  const bool are_texts = chosen.is_string() && rejected.is_string();
  if (!are_texts && !(chosen.is_array() && rejected.is_array()))
    return bad_pair(
        "has a \"chosen\" and a \"rejected\" that are neither two texts nor two lists of messages");
  if (chosen == rejected)
    return bad_pair("has a \"chosen\" and a \"rejected\" that are equal: there is no preference");
  // Data sets of whole conversations often repeat the first message as a text in "prompt".
  const bool repeats = pair.contains("prompt") && pair["prompt"].is_string() && !are_texts;
  if (pair.contains("prompt") && !repeats) {
    make_list(pair["prompt"]);
  } else if (auto status = extract_prompt(pair); !status.ok()) {
    return status;
  }
  auto chosen_text = answer_text(pair, "chosen", json.size(), format);
  if (!chosen_text.ok()) return chosen_text.status();
  auto rejected_text = answer_text(pair, "rejected", json.size(), format);
  if (!rejected_text.ok()) return rejected_text.status();
  return DpoTexts{*std::move(chosen_text), *std::move(rejected_text)};
}

absl::Status append_pair(SftEncoder& encoder, const DpoTexts& pair, std::vector<int32_t>& ids,
                         std::vector<float>& marks) {
  const size_t ids_before = ids.size(), begin = marks.size();
  absl::Status status = encoder.append(pair.chosen, ids, marks);
  const size_t middle = marks.size();
  if (status.ok()) status = encoder.append(pair.rejected, ids, marks);
  if (!status.ok()) {
    ids.resize(ids_before);
    marks.resize(begin);
    return status;
  }
  for (size_t i = begin; i < marks.size(); ++i) marks[i] = marks[i] > 0 ? 1 : 0;
  marks[begin] = kChosenBegins;
  marks[middle] = kRejectedBegins;
  return absl::OkStatus();
}

}  // namespace muster::trainer
