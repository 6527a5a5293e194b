// Text that is released token by token is the text of all tokens.
#include "trainer_core/generation/text_stream.h"

#include <gtest/gtest.h>

#include "common/text/escape.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/data/utf8.h"

namespace muster::trainer {
namespace {

// A tokenizer whose ids are bytes. Some tokenizers return the bytes of incomplete characters, and
// others replace them.
class ByteTokenizer : public Tokenizer {
 public:
  explicit ByteTokenizer(bool repairs) : repairs_(repairs) {}
  std::string_view type() const override { return "bytes"; }
  int32_t vocab_size() const override { return 256; }
  int32_t eos_id() const override { return -1; }
  std::unique_ptr<Encoder> encoder() const override { return nullptr; }

 private:
  absl::StatusOr<std::string> text_of(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) text.push_back(static_cast<char>(id));
    return repairs_ ? repair_utf8(text) : text;
  }

  bool repairs_;
};

std::vector<std::string> pieces(std::string_view text, std::vector<std::string> stops = {},
                                bool repairs = false) {
  const ByteTokenizer tokenizer(repairs);
  TextStream stream(tokenizer, {}, std::move(stops));
  std::vector<std::string> all;
  for (const char byte : text) all.push_back(stream.push(static_cast<unsigned char>(byte)));
  all.push_back(stream.finish());
  return all;
}

std::string joined(const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

TEST(TextStream, ReleasesCompleteCharacters) {
  const std::string text = "aé€🌍 b";
  const auto all = pieces(text);
  EXPECT_EQ(joined(all), text);
  for (const std::string& piece : all) EXPECT_TRUE(is_valid_utf8(piece)) << piece;
  EXPECT_EQ(all[0], "a");
  EXPECT_EQ(all[2], "é");
  EXPECT_EQ(all[9], "🌍");
}

TEST(TextStream, RepairsTextThatIsNotUtf8) {
  for (const std::string& text : {std::string("a\xff\xfe b"), std::string("\xe2\x82"),
                                  std::string("\x80\x80\x80\x80\x80\x80\x80 end")}) {
    const auto all = pieces(text);
    EXPECT_TRUE(is_valid_utf8(joined(all)));
    EXPECT_EQ(joined(all).ends_with(" end"), text.ends_with(" end"));
  }
}

// Bytes that are no characters do not cut a character after them.
TEST(TextStream, CharactersAfterInvalidBytesAreComplete) {
  for (const bool repairs : {false, true}) {
    for (size_t invalid = 0; invalid < 9; ++invalid) {
      for (const std::string byte : {"\xff", "\xe2"}) {
        std::string text;
        for (size_t i = 0; i < invalid; ++i) text += byte;
        text += "€🌍é end";
        const auto all = pieces(text, {}, repairs);
        EXPECT_TRUE(joined(all).ends_with("€🌍é end")) << joined(all);
        EXPECT_TRUE(is_valid_utf8(joined(all)));
      }
    }
  }
}

TEST(TextStream, EndsBeforeTheFirstStopString) {
  EXPECT_EQ(joined(pieces("one two three", {"two"})), "one ");
  EXPECT_EQ(joined(pieces("one two three", {"three", "wo"})), "one t");
  EXPECT_EQ(joined(pieces("aaab", {"aab"})), "a");
  // The beginning of a stop string is held until the next token decides.
  const auto held = pieces("x<en<end>y", {"<end>"});
  EXPECT_EQ(held[0], "x");
  EXPECT_EQ(held[1] + held[2] + held[3], "");
  EXPECT_EQ(held[4], "<en");
  EXPECT_EQ(joined(held), "x<en");
  EXPECT_EQ(joined(pieces("x<en", {"<end>"})), "x<en");
  EXPECT_EQ(joined(pieces("text", {""})), "text");
}

// SentencePiece removes the space before the first word: the tokens of the prompt prevent it.
TEST(TextStream, ContinuesAPrompt) {
  const TempFolder folder;
  make_text_dataset(folder.path());
  const auto tokenizer = Tokenizer::load(folder.file("t.model"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::string text = "And it came to pass — in the 日本 days";
  const auto ids = *(*tokenizer)->encode(text);
  const auto prompt = std::span(ids).first(3);
  TextStream stream(**tokenizer, prompt, {});
  std::string all = *(*tokenizer)->decode(prompt), of_tokens = all;
  for (size_t i = 3; i < ids.size(); ++i) all += stream.push(ids[i]);
  all += stream.finish();
  EXPECT_EQ(all, *(*tokenizer)->decode(ids));
}

}  // namespace
}  // namespace muster::trainer
