#include "cli/plan/search_view.h"

#include <gmock/gmock.h>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <gtest/gtest.h>

#include "cli/plan/search.h"
#include "cli/terminal/terminal.h"

namespace muster::cli {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kBytesPerMiB = 1 << 20;
constexpr int64_t kDeviceMib = 80'000;

FoundSetting setting(const std::string& line, int64_t mib, double tokens_per_second) {
  FoundSetting found{.line = line,
                     .changes = {},
                     .mesh = "fsdp=64",
                     .sequences = 256,
                     .memory = {{"stages", {{{"device_bytes", mib * kBytesPerMiB}}}},
                                {"memory_bytes", kDeviceMib * kBytesPerMiB},
                                {"fits", mib <= kDeviceMib}},
                     .figures = {}};
  found.figures.seconds = 2.5;
  found.figures.tokens_per_second = tokens_per_second;
  found.figures.tokens_per_second_per_device = tokens_per_second / 64;
  found.figures.mfu = 0.5;
  return found;
}

FoundSettings found_with(const FoundSetting& own, std::vector<FoundSetting> rows) {
  return {.own = own, .rows = std::move(rows), .planned = 500, .fitting = 300, .limit = 500};
}

TEST(SearchView, EachRowHasALineToPaste) {
  const std::string text = describe_search(
      found_with(setting("", 42'000, 100'000), {setting("mu_dtype=bfloat16", 40'000, 100'000),
                                                setting("remat_policy=none", 79'000, 150'000)}));
  EXPECT_EQ(text,
            "ROW    MiB PER DEVICE  SHARE  STEP   TOKENS/S/DEVICE  MFU    SEQUENCES\n"
            "1      40000.0         50%    2.5 s  1562             50.0%  256\n"
            "  mu_dtype=bfloat16\n"
            "yours  42000.0         52%    2.5 s  1562             50.0%  256\n"
            "2      79000.0         99%    2.5 s  2344             50.0%  256\n"
            "  remat_policy=none\n"
            "\n"
            "your setting: another one needs 2000 MiB less and is as fast; the fastest is 1.5 "
            "times as fast\n"
            "500 settings planned, 300 fit; --search-limit 500 ended the search\n");
}

TEST(SearchView, TheTableFitsIn80Columns) {
  FoundSetting large = setting("a=1", 79'999, 9e9);
  large.sequences = 1'048'576;
  large.figures.seconds = 123.4;
  const std::vector<std::string> lines =
      absl::StrSplit(describe_search(found_with(setting("", 42'000, 1), {large})), '\n');
  for (const std::string& line : lines) {
    const bool is_sentence = line.find("setting") != std::string::npos;
    EXPECT_TRUE(is_sentence || columns(line) <= 80) << line;
  }
}

TEST(SearchView, ThePlaceOfTheUsersSetting) {
  const FoundSetting slow = setting("b=2", 40'000, 100'000), fast = setting("c=3", 60'000, 200'000);
  const FoundSetting own = setting("", 50'000, 150'000);
  EXPECT_THAT(
      describe_search(found_with(own, {slow, own, fast})),
      HasSubstr("your setting: no planned one is better in both memory and speed; the fastest is "
                "1.33 times as fast\n"));
  EXPECT_THAT(describe_search(found_with(own, {slow, own})), HasSubstr(", and none is faster\n"));
  EXPECT_THAT(describe_search(found_with(setting("", 90'000, 300'000), {slow})),
              AllOf(HasSubstr("your setting does not fit\n"), HasSubstr("yours  90000.0")));
}

TEST(SearchView, ALongFrontierIsThinnedOutButForItsEndsAndTheUsers) {
  std::vector<FoundSetting> rows;
  for (int i = 0; i < 40; ++i)
    rows.push_back(setting(i == 17 ? "" : absl::StrCat("steps=", i), 10'000 + 1000 * i,
                           100'000 + (i % 4 == 0 ? 10'000 : 1) * i));
  FoundSettings found = found_with(rows[17], rows);
  found.is_complete = true;
  const std::string text = describe_search(found);
  for (const char* line : {"  steps=0\n", "  steps=39\n", "yours "})
    EXPECT_THAT(text, HasSubstr(line));
  EXPECT_THAT(text, Not(HasSubstr("  steps=1\n")));
  EXPECT_THAT(text, EndsWith("28 rows with small gains left out, which --json has; these are all "
                             "settings\n"));
  EXPECT_EQ(to_json(found)["rows"].size(), 40U);
}

TEST(SearchArguments, MistakesAreSentences) {
  const auto problem = [](const SearchArguments& arguments) {
    return std::string(check_search_arguments(arguments).message());
  };
  EXPECT_EQ(problem({.is_wanted = true, .keep = {"remat_policy", "global_batch_size"}}), "");
  EXPECT_EQ(problem({.has_limit = true}), "--search-limit has an effect with --search only");
  EXPECT_EQ(problem({.keep = {"mu_dtype"}}), "--keep has an effect with --search only");
  EXPECT_EQ(problem({.is_wanted = true, .limit = 0, .has_limit = true}),
            "--search-limit 0: must be from 1 to 100000");
  EXPECT_EQ(problem({.is_wanted = true, .keep = {"remat_polici"}}),
            "--keep remat_polici: the search does not change this key; did you mean remat_policy?");
  EXPECT_THAT(problem({.is_wanted = true, .keep = {"steps"}}),
              HasSubstr("it changes global_batch_size, per_device_batch_size, "));
}

}  // namespace
}  // namespace muster::cli
