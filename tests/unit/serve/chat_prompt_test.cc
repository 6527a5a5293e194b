// The chat template and its tokens are those of tokenizer_config.json.
#include "serve/chat_prompt.h"

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::serve {
namespace {

TEST(ReadChatTemplate, HasTheTokensOfTheTokenizer) {
  const TempFolder folder;
  write_file(folder.file("tokenizer_config.json"), R"({
    "chat_template": "{{ messages }}",
    "bos_token": {"content": "<s>", "lstrip": false},
    "eos_token": "</s>"})");
  write_file(folder.file("own.jinja"), "{{ bos_token }}");
  for (const std::string& path : {folder.path(), folder.file("tokenizer.json")}) {
    const auto own = read_chat_template(folder.file("own.jinja"), path);
    ASSERT_TRUE(own.ok()) << own.status();
    EXPECT_EQ(own->source, "{{ bos_token }}");
    const auto found = read_chat_template("", path);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->source, "{{ messages }}");
    for (const ChatTemplate& one : {*own, *found}) {
      EXPECT_EQ(one.bos_token, "<s>");
      EXPECT_EQ(one.eos_token, "</s>");
    }
  }
  write_file(folder.file("tokenizer_config.json"), R"({"bos_token": null, "eos_token": 3})");
  const auto none = read_chat_template("", folder.path());
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->source + none->bos_token + none->eos_token, "");
}

}  // namespace
}  // namespace muster::serve
