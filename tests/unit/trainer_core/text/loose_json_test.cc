// Values of fields that are not read do not matter.
#include "trainer_core/text/loose_json.h"

#include <gmock/gmock.h>

#include <random>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/mutate.h"
#include "trainer_core/text/document_text.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

class LooseJson : public testing::Test {
 protected:
  // Returns "=text", "~text" if it was repaired, or the flaw.
  std::string text_of(const std::string& record, const std::string& field = "text") {
    Chunk chunk;
    chunk.bytes = record + std::string(Chunk::kPaddingBytes, '}');
    TextExtractor texts(field);
    const auto text = texts.text_of(chunk, {.size = record.size()}, InputFormat::kJsonLines);
    if (!text.ok()) return std::string(text.status().message());
    return (text->is_repaired() ? "~" : "=") + std::string(text->text);
  }
};

// The kind's members: values in unread fields that JSON parsers refuse.
TEST_F(LooseJson, UnreadFieldsMayHoldAnything) {
  for (const std::string value : {"123456789012345678901234567890",
                                  "1e400",
                                  "-1E+999",
                                  "NaN",
                                  "Infinity",
                                  "-Infinity",
                                  "18446744073709551616",
                                  "[1, NaN, {\"a\": -Infinity}]",
                                  "\"\\ud800\"",
                                  "\"caf\xE9\"",
                                  "\"raw\ttab\"",
                                  "0.0000000000000000000000000000001e-9999",
                                  "{\"text\": NaN}",
                                  "[[[[1e999]]]]",
                                  "nan",
                                  "-nan",
                                  "+Infinity",
                                  "inf",
                                  "-INF",
                                  "None",
                                  "True",
                                  "undefined",
                                  "{\"x\": {\"y\": 99999999999999999999}}"}) {
    EXPECT_EQ(text_of("{\"score\": " + value + ", \"text\": \"good é\\n\"}"), "=good é\n") << value;
    EXPECT_EQ(text_of("{\"text\": \"good\", \"score\": " + value + "}"), "=good") << value;
    EXPECT_EQ(text_of("{\"a\": {\"b\": \"deep\", \"c\": " + value + "}}", "a.b"), "=deep") << value;
    EXPECT_THAT(text_of("{\"score\": " + value + "}"), HasSubstr("has no field \"text\"")) << value;
  }
  const std::string deep(5000, '[');
  EXPECT_EQ(text_of("{\"x\": " + deep + std::string(5000, ']') + ", \"text\": \"good\"}"), "=good");
}

TEST_F(LooseJson, TheFieldThatIsReadIsRepairedOrRefused) {
  EXPECT_EQ(text_of("{\"text\": \"a\\ud800b\", \"x\": NaN}"),
            "~a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(text_of("{\"text\": \"a\xFF\", \"x\": NaN}"), "~a\xEF\xBF\xBD");
  EXPECT_EQ(text_of("{\"te\\u0078t\": \"escaped name\", \"x\": NaN}"), "=escaped name");
  EXPECT_EQ(text_of("{\"text\": \"first\", \"text\": \"last\", \"x\": NaN}"), "=last");
  EXPECT_EQ(text_of("{\"text\": null, \"x\": NaN}"), "field \"text\" is null");
  EXPECT_EQ(text_of("{\"text\": NaN}"), "field \"text\" is no string");
  // The hints are those of strict JSON.
  EXPECT_THAT(text_of("{\"text\": [\"a\"], \"x\": NaN}"), HasSubstr("is a list, no string; jq -c"));
  EXPECT_THAT(text_of("{\"x\": NaN, \"body\": \"long\"}"),
              HasSubstr("it has \"x\", \"body\"; --field body reads that one"));
  EXPECT_THAT(text_of("{\"x\": [1e999], \"messages\": [{\"content\": \"a\"}]}"),
              HasSubstr("[.messages[].content]"));
  EXPECT_THAT(text_of("{\"x\": NaN, \"doc\": {\"text\": \"a\"}}"),
              HasSubstr("--field doc.text reads"));
  EXPECT_THAT(text_of("{\"text\": \"bad \\q escape\", \"x\": NaN}"), HasSubstr("is not JSON"));
}

TEST_F(LooseJson, BrokenStructureIsNotJson) {
  for (const char* line :
       {"{\"text\": \"a\", \"x\": }", "{\"text\": \"a\", \"x\": nanx}",
        "{\"text\": \"a\", \"x\": 1", "{\"text\": \"a\" \"x\": NaN}",
        "{\"text\": \"a\", \"x\": [NaN}", "{\"x\": NaN,}", "{\"x\": 01, \"text\": \"a\"}",
        "{x: NaN}", "{\"x\": {\"y\" NaN}, \"text\": \"a\"}", "{\"x\": [1 NaN], \"text\": \"a\"}",
        "NaN", "{\"x\": 1e, \"text\": \"a\"}", "{\"x\": -, \"text\": \"a\"}", "{\"x\": \"\\"})
    EXPECT_THAT(text_of(line), HasSubstr("is not JSON")) << line;
  EXPECT_THAT(text_of("{\"text\": \"a\", \"x\": NaN} {}"), HasSubstr("several objects on a line"));
}

// The scanner accepts what another parser accepts, whatever the value is.
TEST_F(LooseJson, RandomJsonInUnreadFieldsDoesNotChangeTheText) {
  std::mt19937 random(9);
  const auto value = [&](const auto& self, int depth) -> std::string {
    switch (random() % (depth > 4 ? 6 : 9)) {
      case 0:
        return std::string(1 + random() % 40, static_cast<char>('1' + random() % 9));
      case 1:
        return "-" + std::to_string(random() % 100) + ".5e" + std::to_string(random() % 2000);
      case 2:
        return random() % 2 == 0 ? "NaN" : "-Infinity";
      case 3:
        return R"("a \" , } ] \\ { [ : \ud83d")";
      case 4:
        return "\"\xC3\"";
      case 5:
        return random() % 2 == 0 ? "null" : "true";
      case 6:
        return "[]";
      case 7: {
        std::string list = "[ ";
        for (size_t i = 0, n = 1 + random() % 3; i < n; ++i)
          list += (i > 0 ? " , " : "") + self(self, depth + 1);
        return list + "\t]";
      }
      default: {
        std::string object = "{";
        for (size_t i = 0, n = random() % 4; i < n; ++i)
          object +=
              (i > 0 ? "," : "") + ("\"text" + std::to_string(i)) + "\" :" + self(self, depth + 1);
        return object + "}";
      }
    }
  };
  for (int i = 0; i < 3000; ++i) {
    const std::string before = "{\"a\": " + value(value, 0) + ", ";
    const std::string after = ", \"b\" : " + value(value, 0) + " }";
    ASSERT_EQ(text_of(before + "\"text\": \"it's {here}\"" + after), "=it's {here}")
        << before << after;
  }
}

TEST_F(LooseJson, AgreesWithAnotherParserOnStructure) {
  const std::string good =
      R"({"id": 12, "text": "Some \"text\"", "score": -1.5e3, "tags": ["a", null, {"b": []}, true]})";
  Mutator mutator(28);
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string line = mutator.mutate(good);
    // The other parser takes a NUL byte for the end.
    if (line.find('\0') != std::string::npos) continue;
    LooseObject object;
    const bool ours = parse_loosely(line, object);
    const auto theirs = nlohmann::json::parse(line, nullptr, false);
    if (theirs.is_object()) {
      ASSERT_TRUE(ours) << line;
      ++accepted;
    }
  }
  EXPECT_GT(accepted, 1000);
}

}  // namespace
}  // namespace muster::trainer
