// Bodies that would take long to parse are refused before.
#include "serve/completion_request.h"

#include <gmock/gmock.h>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace muster::serve {
namespace {

using testing::HasSubstr;

std::string message_of(const ParsedRequest& parsed) {
  const auto* const error = std::get_if<ApiError>(&parsed);
  return error == nullptr ? "" : error->message;
}

// Returns an object with `count` fields.
std::string object_of(int count) {
  std::string object = "{";
  for (int i = 0; i < count; ++i) absl::StrAppend(&object, i == 0 ? "" : ",", "\"", i, "\":0");
  return object + "}";
}

TEST(CompletionRequest, LimitsTheFieldsOfObjects) {
  const auto parse = [](const std::string& field) {
    return message_of(
        parse_completion(absl::StrCat(R"({"prompt": "a:b", "max_tokens": 1, )", field, "}")));
  };
  EXPECT_EQ(parse(absl::StrCat(R"("logit_bias": )", object_of(1024))), "");
  EXPECT_THAT(parse(absl::StrCat(R"("metadata": )", object_of(3000))),
              HasSubstr("too many fields"));
  // Several objects share the limit.
  std::string objects = object_of(1024);
  for (int i = 0; i < 9; ++i) absl::StrAppend(&objects, ",", object_of(1024));
  EXPECT_THAT(parse(absl::StrCat(R"("metadata": [)", objects, "]")), HasSubstr("too many fields"));
  // Many small objects, and colons in texts, are no problem.
  std::string small = "{}";
  for (int i = 0; i < 50'000; ++i) small += R"(,{"a":":","b":"\":"})";
  EXPECT_EQ(parse(absl::StrCat(R"("metadata": [)", small, "]")), "");
}

TEST(CompletionRequest, AcceptsNeutralValuesOfOpenAi) {
  const auto parse = [](const std::string& fields) {
    return message_of(parse_chat(
        absl::StrCat(R"({"messages": [{"role": "user", "content": "a"}], )", fields, "}")));
  };
  EXPECT_EQ(parse(R"("store": false, "metadata": {"a": "b"}, "service_tier": "auto", "user": "me",
                     "parallel_tool_calls": true, "tools": [], "tool_choice": "none",
                     "reasoning_effort": "none", "response_format": {"type": "text"})"),
            "");
  EXPECT_THAT(parse(R"("store": true)"), HasSubstr("store is true; only false is supported"));
  EXPECT_THAT(parse(R"("service_tier": "flex")"), HasSubstr("only \"auto\" or \"default\""));
  EXPECT_THAT(parse(R"("response_format": {"type": 7})"), HasSubstr("response_format is {"));
}

}  // namespace
}  // namespace muster::serve
