#include "trainer_core/text/document_text.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/mutate.h"
#include "tests/unit/trainer_core/text/text_files.h"
#include "trainer_core/data/utf8.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

const std::string kReplacement = "\xEF\xBF\xBD";

class DocumentTextTest : public testing::Test {
 protected:
  // Returns "=text", "~text" if it was repaired, or the flaw.
  std::string text_of(const std::string& record, InputFormat format = InputFormat::kJsonLines) {
    Chunk chunk;
    chunk.bytes = record + std::string(Chunk::kPaddingBytes, '}');
    const auto text = texts_.text_of(chunk, {.size = record.size()}, format);
    if (!text.ok()) return std::string(text.status().message());
    EXPECT_EQ(scan_utf8(text->text).invalid_bytes, 0U);
    return (text->is_repaired() ? "~" : "=") + std::string(text->text);
  }

  TextExtractor texts_{"text"};
};

TEST_F(DocumentTextTest, AFieldOfAJsonLine) {
  EXPECT_EQ(text_of(R"({"id": 7, "text": "a \"b\"\n\u00e9\ud83c\udf0d", "meta": {"text": "no"}})"),
            "=a \"b\"\né🌍");
  EXPECT_EQ(text_of(R"({"text": "first", "text": "last"})"), "=last");
  EXPECT_EQ(text_of(R"({"text": ""})"), "=");
  EXPECT_EQ(text_of(R"({"content": "x", "url": 1})"),
            R"(has no field "text"; it has "content", "url"; --field content reads that one)");
  EXPECT_EQ(text_of("{}"), R"(has no field "text")");
  EXPECT_EQ(text_of(R"({"text": null})"), R"(field "text" is null)");
  EXPECT_EQ(
      text_of(R"({"text": 1})"),
      R"(field "text" is a number or a flag, no string; jq -c '.text |= tostring' makes one of it)");
  EXPECT_EQ(text_of(R"(["text"])"), "is JSON, but no object");
  EXPECT_THAT(text_of(R"({"text": "a"} {"text": "b"})"),
              HasSubstr("has several objects on a line"));
  EXPECT_THAT(text_of(R"({"text": "a)"), HasSubstr("is not JSON: "));
}

// Each shape of a field that holds no string, with the command that makes one of it.
TEST_F(DocumentTextTest, OtherShapesOfTheFieldAreNamed) {
  EXPECT_EQ(
      text_of(R"({"text": ["a", "b"]})"),
      R"(field "text" is a list, no string; jq -c '.text |= (flatten | join("\n"))' joins it)");
  EXPECT_EQ(
      text_of(R"({"text": {"body": "x"}})"),
      R"(field "text" is an object, no string; it has "body"; --field text.NAME reads a field of it)");
  EXPECT_EQ(
      text_of(R"({"text": [{"role": "user", "content": "x"}]})"),
      R"(field "text" is a list of messages, no string; jq -c '{text: ([.text[].content] | join("\n"))}' joins them)");
  EXPECT_EQ(text_of(R"({"text": [{"a": 1}]})"),
            R"(field "text" is a list of objects, no string; jq -c '.text[]' makes lines of it)");
  EXPECT_THAT(text_of(R"({"text": true})"), HasSubstr("is a number or a flag, no string; jq -c"));
  EXPECT_EQ(
      text_of(R"({"messages": [], "raw_content": "long text", "id": "x"})"),
      R"(has no field "text"; it has "messages", "raw_content", "id"; --field raw_content reads that one)");
}

// Each way in which files have their text elsewhere, with the command that moves it.
TEST_F(DocumentTextTest, TextUnderOtherNamesIsNamedWithItsCommand) {
  struct Case {
    std::string_view line;
    std::string_view expected;
  };
  const Case table[] = {
      {R"({"messages": [{"role": "user", "content": "x"}]})",
       R"(; jq -c '{text: ([.messages[].content] | join("\n"))}' FILE > NEW.jsonl joins its texts)"},
      {R"({"id": "a", "conversations": [{"from": "human", "value": "x"}]})",
       R"(; jq -c '{text: ([.conversations[].value] | join("\n"))}' FILE)"},
      {R"({"content": [{"type": "text", "text": "x"}]})",
       R"(; jq -c '{text: ([.content[].text] | join("\n"))}' FILE)"},
      {R"({"instruction": "a", "input": "", "output": "b"})",
       R"(; jq -c '{text: ([.instruction, .input, .output] | map(select(. != "")) | join("\n"))}')"},
      {R"({"prompt": "a", "completion": "b"})", R"([.prompt, .completion] | map(select(. != ""))"},
      {R"({"question": "a", "answer": "b", "url": "c"})", "[.question, .answer] |"},
      {R"({"data": [{"x": 1}]})", "; jq -c '.data[]' FILE > NEW.jsonl makes lines of it"},
      {R"({"title": "t", "body": "longer"})", "; --field body reads that one"},
      {R"("a text")", "is JSON, but no object; jq -c '{text: .}' FILE > NEW.jsonl"},
      {R"({"text": "a"},)", "ends with a comma: the lines of a JSON array; sed"},
      {"{\"text\": \"a\"} , \r", "ends with a comma"},
      {"\x1E{\"text\": \"a\"}", "begins with a record separator (JSON text sequences); tr -d"},
      {R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]})",
       R"([.messages[].content | if type == "array" then .[] | (.text? // .) else . end | strings])"},
      {R"({"my key!": [{"content": "x"}]})", R"(jq -c '{text: ([.["my key!"][].content] |)"},
      {R"({"it's": [{"x": 1}]})", R"(; jq -c '.["it'\''s"][]' FILE > NEW.jsonl makes lines of it)"},
      {R"({"2nd": [{"x": 1}]})", R"(; jq -c '.["2nd"][]' FILE)"},
      {R"({"my text": "long text"})", "; --field 'my text' reads that one"},
      {R"({"id": "abc", "doc": {"text": "x"}})", "; --field doc.text reads that one"},
      {R"([{"text": "b"}])", R"(is JSON, but no object; jq -c 'if type == "array" then)"},
      {R"({"text": [["a"], ["b"]]})", R"(jq -c '.text |= (flatten | join("\n"))')"},
  };
  for (const Case& one : table)
    EXPECT_THAT(text_of(std::string(one.line)), HasSubstr(std::string(one.expected))) << one.line;
}

// A crash of the writer leaves pages of NUL bytes at the end, or within a line.
TEST_F(DocumentTextTest, NulBytesInALineAreNamed) {
  const std::string nuls(100, '\0');
  for (const auto& [line, position] : {std::pair{nuls, "0"},
                                       {"{\"text\": \"a\"}" + nuls, "13"},
                                       {"{\"text\": \"a" + nuls + "\"}", "11"},
                                       {"{\"text\": \"a\", \"id\": 1" + nuls, "21"},
                                       {" " + nuls + "{\"text\": \"a\"}", "1"}})
    EXPECT_THAT(text_of(line), HasSubstr(std::string("has NUL bytes (the first is byte ") +
                                         position + " of the line)"))
        << position;
}

TEST_F(DocumentTextTest, ADottedFieldIsNested) {
  TextExtractor nested("doc.body.text");
  const auto read = [&](const std::string& record) {
    Chunk chunk;
    chunk.bytes = record + std::string(Chunk::kPaddingBytes, '}');
    const auto text = nested.text_of(chunk, {.size = record.size()}, InputFormat::kJsonLines);
    return text.ok() ? std::string(text->text) : std::string(text.status().message());
  };
  EXPECT_EQ(read(R"({"doc": {"body": {"text": "deep"}}})"), "deep");
  EXPECT_EQ(read(R"({"doc": {"body": {"text": "deep"}, "x": NaN}})"), "deep");
  EXPECT_EQ(read(R"({"doc.body.text": "literal", "doc": {"body": {"text": "deep"}}})"), "literal");
  EXPECT_THAT(read(R"({"doc": {"other": 1}})"), HasSubstr("has no field \"body.text\""));
  EXPECT_THAT(read(R"({"doc": "x"})"), HasSubstr("has no field \"doc.body.text\""));
}

TEST_F(DocumentTextTest, SeparatorsWithinStringsAreText) {
  EXPECT_EQ(text_of("{\"text\": \"a\xE2\x80\xA8"
                    "b\xE2\x80\xA9 c\xC2\x85\"}"),
            "=a\xE2\x80\xA8"
            "b\xE2\x80\xA9 c\xC2\x85");
  EXPECT_EQ(text_of(R"({"text": "a\u0000b"})"), "~a" + kReplacement + "b");
  EXPECT_EQ(text_of(std::string("a\0b", 3), InputFormat::kText), "~a" + kReplacement + "b");
}

TEST_F(DocumentTextTest, BadTextInJsonIsRepaired) {
  EXPECT_EQ(text_of("{\"text\": \"a\xFF"
                    "b\"}"),
            "~a" + kReplacement + "b");
  EXPECT_EQ(text_of(R"({"text": "a\ud800b"})"), "~a" + kReplacement + "b");
  EXPECT_EQ(text_of(R"({"text": "\udf0d\ud83c\ud83c\udf0d"})"),
            "~" + kReplacement + kReplacement + "🌍");
  EXPECT_EQ(text_of(R"({"text": "\\ud800 \udc00"})"), "~\\ud800 " + kReplacement);
}

TEST_F(DocumentTextTest, AFeatureOfAnExample) {
  const auto of_example = [this](const std::string& bytes) {
    return text_of(tfrecord(bytes).substr(12), InputFormat::kTfRecord);
  };
  EXPECT_EQ(of_example(example("a text")), "=a text");
  EXPECT_EQ(of_example(example(std::string(100'000, 'x'))), "=" + std::string(100'000, 'x'));
  EXPECT_EQ(of_example(example("a\xFF")), "~a" + kReplacement);
  EXPECT_EQ(of_example(proto_bytes(1, proto_feature("body", proto_bytes(1, proto_bytes(1, "x"))))),
            R"(has no feature "text"; it has "body")");
  EXPECT_EQ(of_example(proto_bytes(1, proto_feature("text", proto_bytes(3, "\x0A\x01\x05")))),
            R"(feature "text" holds numbers, not text)");
  EXPECT_EQ(of_example(proto_bytes(1, proto_feature("text", proto_bytes(1, "")))),
            R"(feature "text" has 0 values; a document is one)");
  EXPECT_EQ(of_example(""), R"(has no feature "text")");
  EXPECT_THAT(of_example("\x0A\x7F"), HasSubstr("is no tf.train.Example: broken at byte 2"));
  EXPECT_EQ(text_of(tfrecord("x").substr(12) + "y", InputFormat::kTfRecord),
            "the checksum of its data differs");
}

// Another JSON parser must agree on what is JSON.
TEST_F(DocumentTextTest, DamagedLinesAreRefusedOrReadLikeAnotherParser) {
  const std::string good =
      R"({"id": 12, "text": "Some \"text\" of 世界, é\n", "score": -1.5e3, "tags": ["a", null, true]})";
  Mutator mutator(11);
  int same = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string line = mutator.mutate(good);
    const std::string ours = text_of(line);
    const auto theirs = nlohmann::json::parse(line, nullptr, false);
    if (!ours.starts_with("=")) continue;
    // Parsers differ on numbers beyond a double.
    if (theirs.is_discarded()) continue;
    ASSERT_TRUE(theirs.is_object() && theirs.contains("text")) << line;
    ASSERT_EQ(ours.substr(1), theirs["text"].get<std::string>()) << line;
    ++same;
  }
  EXPECT_GT(same, 1000);
}

TEST_F(DocumentTextTest, DamagedExamplesAreRefusedOrYieldAPart) {
  const std::string good = example("a text that is long enough to be damaged");
  Mutator mutator(12);
  for (int i = 0; i < 20'000; ++i) {
    const std::string bad = mutator.mutate(good);
    const auto text = bytes_feature(bad, "text");
    if (!text.ok()) continue;
    const bool is_inside =
        text->data() >= bad.data() && text->data() + text->size() <= bad.data() + bad.size();
    ASSERT_TRUE(text->empty() || is_inside);
  }
}

}  // namespace
}  // namespace muster::trainer
