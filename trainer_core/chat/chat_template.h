// Chat templates: they convert a conversation to the text that a model was trained on. Hugging Face
// publishes them beside tokenizers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "trainer_core/chat/template.h"

namespace muster::trainer::chat {

// The place of a chat template.
struct ChatTemplateSource {
  std::string tokenizer_path;  // the tokenizer's file or folder
  std::string file;            // a Jinja file; empty: beside the tokenizer
  std::string name;  // the one to use if tokenizer_config.json has several; empty: "default"
  // The texts of the tokenizer's own tokens, for a folder whose files state none; empty: none.
  std::string bos_token = {};
  std::string eos_token = {};
};

// A chat template and the special tokens that it may use. Immutable and thread-safe.
class ChatTemplate {
 public:
  // Loads the template from the stated file; otherwise from chat_template.jinja beside the
  // tokenizer, or the chat_template of its tokenizer_config.json, which is a template or a list of
  // named ones. Special tokens are those of tokenizer_config.json, then special_tokens_map.json,
  // then the tokenizer's. Returns NotFound if there is no template, and InvalidArgument with the
  // path, the line and what is wrong.
  static absl::StatusOr<ChatTemplate> load(const ChatTemplateSource& source);

  const std::string& path() const { return path_; }
  // Returns a hash of the template and the special tokens.
  uint64_t fingerprint() const { return fingerprint_; }
  bool marks_generated() const { return template_.marks_generated(); }
  // Returns the text of a special token, such as "bos_token"; empty if there is none.
  std::string special_token(const std::string& name) const;
  // Renders a conversation. `messages` is a list of objects; `tools` a list or null. A template
  // that writes bos_token or eos_token fails if no file states the token, not even as null.
  absl::StatusOr<Rendered> render(const nlohmann::ordered_json& messages,
                                  const nlohmann::ordered_json& tools, bool add_generation_prompt,
                                  const RenderOptions& options = {}) const;

 private:
  ChatTemplate(Template parsed, nlohmann::ordered_json special,
               std::vector<std::string> unknown_tokens, std::string path, uint64_t fingerprint)
      : template_(std::move(parsed)),
        special_(std::move(special)),
        unknown_tokens_(std::move(unknown_tokens)),
        path_(std::move(path)),
        fingerprint_(fingerprint) {}

  Template template_;
  nlohmann::ordered_json special_;
  std::vector<std::string> unknown_tokens_;  // those of bos_token and eos_token that nothing states
  std::string path_;
  uint64_t fingerprint_;
};

}  // namespace muster::trainer::chat
