// Pairs of answers for preference tuning: a JSON object per pair, in one of TRL's forms.
//
//   {"prompt": "…", "chosen": "…", "rejected": "…"}
//   {"prompt": [messages], "chosen": [messages], "rejected": [messages]}
//   {"chosen": "…", "rejected": "…"}           the prompt is what both begin with; also messages
//   {"prompt": "…", "chosen": [messages], "rejected": [messages]}   likewise
//
// A single message may stand for a list of one. Messages become texts by a chat template, with
// "tools" if the pair has them, as in sft_sample.h.
#pragma once

#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/text/sft_sample.h"

namespace muster::trainer {

// The texts of the prompt with each of the answers.
struct DpoTexts {
  SftText chosen;
  SftText rejected;
};

// Returns the texts of a pair. The error continues a sentence about the record: "has no field …".
absl::StatusOr<DpoTexts> dpo_texts(std::string_view json, const SftFormat& format);

// Appends the ids of a pair: those of the chosen text, then those of the rejected one. Appends a
// mark per id to `marks` (data/dpo_samples.h). Returns the errors of SftEncoder::append().
absl::Status append_pair(SftEncoder& encoder, const DpoTexts& pair, std::vector<int32_t>& ids,
                         std::vector<float>& marks);

}  // namespace muster::trainer
