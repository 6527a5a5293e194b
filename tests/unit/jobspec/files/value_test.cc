#include "jobspec/files/value.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster::jobspec {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json parsed(ValueType type, std::string_view text) {
  auto value = parse_value("key", type, text);
  return value.ok() ? *value : json("error: " + std::string(value.status().message()));
}

TEST(ParseValue, IntegersMayGroupDigits) {
  EXPECT_EQ(parsed(ValueType::kInteger, "150_001"), 150001);
  EXPECT_EQ(parsed(ValueType::kInteger, "-1"), -1);
  EXPECT_EQ(parsed(ValueType::kInteger, " 7 "), 7);
}

TEST(ParseValue, NumbersAsPythonWritesThem) {
  EXPECT_EQ(parsed(ValueType::kNumber, "3.e-5"), 3e-5);
  EXPECT_EQ(parsed(ValueType::kNumber, "1.e-05"), 1e-5);
  EXPECT_EQ(parsed(ValueType::kNumber, "0."), 0.0);
  EXPECT_EQ(parsed(ValueType::kNumber, "12"), 12.0);
}

TEST(ParseValue, Booleans) {
  EXPECT_EQ(parsed(ValueType::kBool, "True"), true);
  EXPECT_EQ(parsed(ValueType::kBool, "false"), false);
}

TEST(ParseValue, Lists) {
  EXPECT_EQ(parsed(ValueType::kList, "['silu', 'linear']"), json({"silu", "linear"}));
  EXPECT_EQ(parsed(ValueType::kList, "[]"), json::array());
}

TEST(ParseValue, OptionalIntegers) {
  EXPECT_EQ(parsed(ValueType::kOptionalInteger, "None"), nullptr);
  EXPECT_EQ(parsed(ValueType::kOptionalInteger, "3"), 3);
}

TEST(ParseValue, WrongTypesNameKeyValueAndType) {
  const std::pair<ValueType, std::string_view> wrong[] = {
      {ValueType::kInteger, "many"},     {ValueType::kInteger, "1.5"},
      {ValueType::kInteger, ""},         {ValueType::kInteger, "1__0"},
      {ValueType::kInteger, "_1"},       {ValueType::kNumber, "1e"},
      {ValueType::kNumber, "nan"},       {ValueType::kNumber, "inf"},
      {ValueType::kNumber, "1e999"},     {ValueType::kNumber, "0x1p3"},
      {ValueType::kBool, "maybe"},       {ValueType::kList, "silu"},
      {ValueType::kList, "[a"},          {ValueType::kList, "{a: 1}"},
      {ValueType::kOptionalInteger, "x"}};
  for (const auto& [type, text] : wrong) {
    const auto value = parse_value("some_key", type, text);
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_THAT(std::string(value.status().message()), HasSubstr("some_key="));
    EXPECT_THAT(std::string(value.status().message()), HasSubstr(std::string(type_name(type))));
  }
}

TEST(SplitOverride, OtherSpellingsNameTheRightOne) {
  const auto error = [](std::string_view text) {
    return std::string(split_override(text).status().message());
  };
  EXPECT_EQ(error("steps:5"), "steps:5: expected key=value, here steps=5");
  EXPECT_EQ(error("steps: 5"), "steps: 5: expected key=value, here steps=5");
  for (const char* text : {"steps", "=5", "=", "steps:", ":5", "gs://bucket/x"})
    EXPECT_THAT(error(text), HasSubstr("expected key=value without blanks")) << text;
}

TEST(ParseValue, BoundsItsInput) {
  EXPECT_FALSE(parse_value("k", ValueType::kString, std::string(kValueBytesMax + 1, 'x')).ok());
  EXPECT_FALSE(parse_value("k", ValueType::kString, std::string_view("a\0b", 3)).ok());
  EXPECT_FALSE(parse_value("k", ValueType::kString, "\xff").ok());
  EXPECT_FALSE(parse_value("k", ValueType::kList, std::string(kValueBytesMax, '[')).ok());
}

TEST(Utf8, AcceptsExactlyTheStandardsTexts) {
  for (const char* right : {"", "a", "ž", "…", "🚀"}) EXPECT_TRUE(is_utf8(right)) << right;
  for (const char* wrong : {"\xff", "a\xc5", "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80"})
    EXPECT_FALSE(is_utf8(wrong)) << wrong;
}

TEST(Show, CutsLongValuesAndReplacesControlCharacters) {
  EXPECT_EQ(show("a\nb"), "a?b");
  EXPECT_EQ(show(""), "\"\"");
  EXPECT_LT(show(std::string(1000, 'x')).size(), 100U);
}

}  // namespace
}  // namespace muster::jobspec
