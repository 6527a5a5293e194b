// Samples for supervised fine-tuning: a JSON object per sample, in one of the forms
//
//   {"messages": [{"role": "user", "content": …}, {"role": "assistant", "content": …}, …],
//    "tools": […]}
//   {"prompt": "…", "completion": "…"}                   also lists of messages
//   {"text": "…"}                                        all tokens count in the loss
//
// Messages become a text by a chat template (chat/chat_template.h); their completions are the texts
// of the assistant's messages, with what ends them. "weight" of a sample, or of an assistant's
// message, multiplies the weight of its tokens in the loss; it is 1 by default, and 0 leaves the
// tokens out of the loss.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json_fwd.hpp>

#include "trainer_core/chat/chat_template.h"
#include "trainer_core/data/control_token_encoder.h"
#include "trainer_core/data/tokenizer.h"

namespace muster::trainer {

// The maximum number of messages in a sample.
constexpr size_t kMessagesMax = 4096;
// A template that marks no generated texts is rendered twice for each answer. The maximum product
// of a sample's answers and bytes, and the maximum units of work (chat/template.h) of all
// renderings of a sample.
constexpr size_t kAnswerBytesMax = 256 << 20;
constexpr uint64_t kSampleWorkMax = 4ULL << 30;
// The maximum bytes that are tokenized to find the tokens of a sample's completions: for each, the
// text before its begin and its end.
constexpr size_t kPrefixBytesMax = 256 << 20;

// How samples become texts.
struct SftFormat {
  std::optional<chat::ChatTemplate> chat;  // for messages
  // Why there is no template; OK if there is one.
  absl::Status no_template;
  // Begin each sample that no template rendered with the beginning-of-sequence token.
  bool add_bos = false;
};

// Bytes [begin, end) of a text, and the weight of their tokens in the loss.
struct WeightedSpan {
  size_t begin = 0;
  size_t end = 0;
  float weight = 1;
  // A token that begins in the span and ends behind it counts, as in transformers, for the spans
  // that a template marks.
  bool takes_last_token = false;
};

struct SftText {
  std::string text;
  std::vector<WeightedSpan> spans;  // ascending; other tokens have the weight 0
  bool is_rendered = false;         // by a template, which contains the special tokens
};

// Returns the text of a sample. The error continues a sentence about the record: "has no field …".
absl::StatusOr<SftText> sft_text(std::string_view json, const SftFormat& format);
// Returns the text of a parsed sample, an object, whose JSON has `bytes` bytes.
absl::StatusOr<SftText> sft_text(const nlohmann::ordered_json& sample, size_t bytes,
                                 const SftFormat& format);

// Encodes the texts of samples. Not thread-safe. The tokenizer must outlive the encoder.
class SftEncoder {
 public:
  SftEncoder(const Tokenizer& tokenizer, const SftFormat& format, bool add_eos);

  // Appends the ids of a text, with the special tokens that it needs, and the weight of each id.
  // The text is encoded as a whole. A token that begins before a span and ends within it counts.
  // Returns InvalidArgument, as sft_text(), if no token has a weight above 0, or if the completions
  // exceed kPrefixBytesMax.
  absl::Status append(const SftText& sample, std::vector<int32_t>& ids,
                      std::vector<float>& weights);

 private:
  const Tokenizer& tokenizer_;
  const bool add_eos_;
  const int32_t bos_id_;  // -1: samples begin without one
  ControlTokenEncoder encoder_;
  std::vector<int32_t> whole_;
  std::vector<int32_t> prefix_;
};

// Returns the id of the token with which samples of a format begin that no template rendered; -1 if
// they have none.
int32_t begin_id(const Tokenizer& tokenizer, const SftFormat& format);

}  // namespace muster::trainer
