#include "coordinator/shell/web/web_params.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

using ::testing::HasSubstr;

TEST(WebParams, AQueryIsDecoded) {
  auto params = WebParams::of_query("search=a%20b%2Bc+d&limit=7&active=true");
  ASSERT_TRUE(params.ok()) << params.status();
  EXPECT_EQ(params->text("search", 64), "a b+c d");
  EXPECT_EQ(params->number("limit", 1, 10, 5), 7);
  EXPECT_TRUE(params->flag("active", false));
  EXPECT_EQ(params->number("before", 0, 10, 3), 3);
  EXPECT_TRUE(params->status().ok()) << params->status();
}

TEST(WebParams, ErrorsNameParameterValueAndRange) {
  for (const auto& [query, error] :
       {std::pair{"limit=11", "limit is 11: must be a number from 1 to 10"},
        std::pair{"limit=1e3", "limit is 1e3"}, std::pair{"limit=", "limit is "},
        std::pair{"limit=+5", "limit is  5"},
        std::pair{"limit=99999999999999999999", "from 1 to 10"},
        std::pair{"other=1", "there is no parameter other here; there are: limit"}}) {
    auto params = WebParams::of_query(query);
    ASSERT_TRUE(params.ok()) << query;
    params->number("limit", 1, 10, 5);
    EXPECT_THAT(std::string(params->status().message()), HasSubstr(error)) << query;
  }
}

TEST(WebParams, HostileQueriesAreRefused) {
  for (const char* query : {"a=%", "a=%4", "a=%zz", "a=%ff", "a=1&a=2", "%ff=1", "a=%c3%28"})
    EXPECT_FALSE(WebParams::of_query(query).ok()) << query;
  EXPECT_TRUE(WebParams::of_query("").ok());
  EXPECT_TRUE(WebParams::of_query("&&").ok());
}

TEST(WebParams, ABodyIsAnObjectOfTypedMembers) {
  for (const char* body : {"", "[]", "1", "{", "null", "{\"a\":1}x"})
    EXPECT_FALSE(WebParams::of_body(body).ok()) << body;
  // Printing a deep value would overflow the stack.
  const std::string deep =
      R"({"force": )" + std::string(200'000, '[') + std::string(200'000, ']') + "}";
  EXPECT_THAT(std::string(WebParams::of_body(deep).status().message()),
              HasSubstr("nested deeper than 64 levels"));
  EXPECT_TRUE(
      WebParams::of_body(
          R"({"reason": "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\""})")
          .ok());
  auto params = WebParams::of_body(R"({"force": 1, "rank": 1.5, "reason": 7, "seconds": 1e400})");
  EXPECT_FALSE(params.ok());  // a number beyond any double
  params = WebParams::of_body(R"({"rank": 18446744073709551615})");
  ASSERT_TRUE(params.ok());
  params->number("rank", -1, INT64_MAX, 0);
  EXPECT_THAT(std::string(params->status().message()), HasSubstr("rank is 18446744073709551615"));
  params = WebParams::of_body(R"({"force": 1})");
  params->flag("force", false);
  EXPECT_THAT(std::string(params->status().message()), HasSubstr("must be true or false"));
  params = WebParams::of_body(R"({"reason": "too long"})");
  params->text("reason", 3);
  EXPECT_THAT(std::string(params->status().message()), HasSubstr("at most 3 bytes"));
}

}  // namespace
}  // namespace muster::coordinator
