// Chats become the tokens of the text that the model's template renders.
#include "serve/chat_prompt.h"

#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::serve {
namespace {

using nlohmann::ordered_json;

// A tokenizer of single bytes with one control token.
class ByteTokenizer final : public trainer::Tokenizer {
 public:
  std::string_view type() const override { return "huggingface"; }
  int32_t vocab_size() const override { return 300; }
  int32_t eos_id() const override { return 256; }
  std::vector<std::pair<std::string, int32_t>> control_tokens() const override {
    return {{"<s>", 257}};
  }
  std::unique_ptr<Encoder> encoder() const override { return std::make_unique<ByteEncoder>(); }

 private:
  class ByteEncoder final : public Encoder {
   public:
    absl::Status append(std::string_view text, std::vector<int32_t>& ids) override {
      for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
      return absl::OkStatus();
    }
  };
  absl::StatusOr<std::string> text_of(std::span<const int32_t>) const override { return ""; }
};

TEST(ChatPrompt, HasTheTokensOfTheRenderedMessages) {
  const TempFolder folder;
  write_file(folder.file("tokenizer_config.json"), R"({
    "chat_template": "{{ bos_token }}{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}{% if add_generation_prompt %}a:{% endif %}",
    "bos_token": "<s>"})");
  const auto own = load_chat_template("", folder.file("tokenizer.json"), ByteTokenizer());
  ASSERT_TRUE(own.ok()) << own.status();
  const ByteTokenizer tokenizer;
  const ordered_json messages = {{{"role", "system"}, {"content", "x"}},
                                 {{"role", "user"}, {"content", "y"}}};
  const auto ids = chat_prompt(*own, tokenizer, messages);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(*ids, (std::vector<int32_t>{257, 's', ':', 'x', ';', 'u', ':', 'y', ';', 'a', ':'}));

  write_file(folder.file("own.jinja"), "{{ raise_exception('only one message') }}");
  const auto refusing =
      load_chat_template(folder.file("own.jinja"), folder.path(), ByteTokenizer());
  ASSERT_TRUE(refusing.ok()) << refusing.status();
  const auto refused = chat_prompt(*refusing, tokenizer, messages);
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status()));
  EXPECT_NE(refused.status().message().find("only one message"), std::string::npos);
}

TEST(ChatPrompt, AModelMayHaveNoTemplate) {
  const TempFolder folder;
  const auto none = load_chat_template("", folder.path(), ByteTokenizer());
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(none->has_value());
  const auto refused = chat_prompt(*none, ByteTokenizer(), ordered_json::array());
  EXPECT_NE(refused.status().message().find("no chat template"), std::string::npos);
  EXPECT_TRUE(absl::IsNotFound(
      load_chat_template(folder.file("x"), folder.path(), ByteTokenizer()).status()));
}

}  // namespace
}  // namespace muster::serve
