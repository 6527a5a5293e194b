#include "trainer_core/data/control_token_encoder.h"

namespace muster::trainer {

ControlTokenEncoder::ControlTokenEncoder(const Tokenizer& tokenizer)
    : encoder_(tokenizer.encoder()) {
  for (const auto& [text, id] : tokenizer.control_tokens()) control_.add(text, id);
}

absl::Status ControlTokenEncoder::append(std::string_view text, std::vector<int32_t>& ids) {
  for (size_t at = 0; at < text.size();) {
    const auto found = control_.find(text, at);
    if (found.begin > at) {
      if (auto status = encoder_->append(text.substr(at, found.begin - at), ids); !status.ok())
        return status;
    }
    if (found.begin < text.size()) ids.push_back(found.id);
    at = found.begin + found.bytes;
  }
  return absl::OkStatus();
}

std::string sequence_token(const Tokenizer& tokenizer, bool begins) {
  const auto control = tokenizer.control_tokens();
  if (control.empty()) return "";
  const auto& [text, id] = begins ? control.front() : control.back();
  // A tokenizer without a beginning-of-sequence token has the end-of-sequence token alone.
  const bool is_only = control.size() == 1;
  return is_only && begins == (id == tokenizer.eos_id()) ? "" : text;
}

}  // namespace muster::trainer
