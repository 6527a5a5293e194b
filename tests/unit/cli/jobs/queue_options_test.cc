#include "cli/jobs/queue_options.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "cli/jobs/shares_view.h"

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

int64_t seconds_of(const std::string& text) {
  return parse_time("--time-limit", text).value_or(-1);
}

TEST(QueueOptions, ReadTimeLimits) {
  EXPECT_EQ(seconds_of("2h"), 7200);
  EXPECT_EQ(seconds_of("1d2h3m4s"), 93'784);
  EXPECT_EQ(seconds_of("90s"), 90);
  EXPECT_EQ(seconds_of("30"), 1800) << "minutes, as in Slurm";
  EXPECT_EQ(seconds_of("30:15"), 1815);
  EXPECT_EQ(seconds_of("2:30:15"), 9015);
  EXPECT_EQ(seconds_of("1-12"), 129'600);
  EXPECT_EQ(seconds_of("1-12:30"), 131'400);
  EXPECT_EQ(seconds_of("1-12:30:15"), 131'415);
  for (const char* wrong : {"", "0", "h", "2x", "1h1h", "1m2h", "1:2:3:4", "-5", "1.5h", "4000-0",
                            "99999999999999999999"})
    EXPECT_EQ(seconds_of(wrong), -1) << wrong;
  EXPECT_THAT(std::string(parse_time("--time-limit", "soon").status().message()),
              HasSubstr("--time-limit soon: it must be a time from 1 s to ten years: 2h"));
}

TEST(QueueOptions, ReadArrays) {
  EXPECT_THAT(parse_array("0-3%2")->indices, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(parse_array("0-3%2")->running_max, 2);
  EXPECT_THAT(parse_array("7,1,3,1")->indices, ElementsAre(1, 3, 7));
  EXPECT_THAT(parse_array("0-10:4,20")->indices, ElementsAre(0, 4, 8, 20));
  EXPECT_EQ(parse_array("0-999")->indices.size(), 1000U);
  for (const char* wrong : {"", "a", "3-1", "1-", "0-1000", "1%0", "1%", "0-4:0", "1:2", "-1",
                            "0-2000000:10000000", "1,,2"})
    EXPECT_FALSE(parse_array(wrong).ok()) << wrong;
  EXPECT_THAT(std::string(parse_array("x").status().message()),
              HasSubstr("--array x: it must be numbers and ranges from 0 to 1000000"));
}

TEST(QueueOptions, ReadDependencies) {
  v1::JobSpec spec;
  EXPECT_TRUE(add_dependencies("--after-ok", "7,8", v1::Dependency::AFTER_OK, spec).ok());
  EXPECT_TRUE(add_slurm_dependencies("afterany:9,afternotok:10:11", spec).ok());
  ASSERT_EQ(spec.dependencies_size(), 5);
  EXPECT_EQ(spec.dependencies(1).job_id(), 8U);
  EXPECT_EQ(spec.dependencies(2).kind(), v1::Dependency::AFTER_ANY);
  EXPECT_EQ(spec.dependencies(4).job_id(), 11U);
  EXPECT_EQ(spec.dependencies(4).kind(), v1::Dependency::AFTER_NOT_OK);
  EXPECT_EQ(add_dependencies("--after-ok", "7,x", v1::Dependency::AFTER_OK, spec).message(),
            "--after-ok 7,x: it must be numbers of jobs, separated by commas: 7,8");
  for (const char* wrong : {"", "afterok", "afterok:", "after:7", "afterok:7,", "afterok:0"})
    EXPECT_THAT(std::string(add_slurm_dependencies(wrong, spec).message()),
                HasSubstr("it must be afterok, afterany or afternotok"))
        << wrong;
}

TEST(QueueOptions, EachTaskHasItsOwnNames) {
  JobArguments arguments;
  arguments.overrides = {"run_name=sweep", "seed={array_index}", "steps=5"};
  EXPECT_THAT(arguments_of_task(arguments, "a1", 3)->overrides,
              ElementsAre("run_name=sweep-3", "seed=3", "steps=5"));
  arguments.overrides = {"run_name=s{array_index}x"};
  EXPECT_THAT(arguments_of_task(arguments, "a1", 3)->overrides, ElementsAre("run_name=s3x"));
  EXPECT_EQ(arguments_of_task(arguments, "a1", 3)->default_name, "array-a1-3");
  arguments.name = "n";
  arguments.output_directory = "/out/{array_index}";
  EXPECT_EQ(arguments_of_task(arguments, "a1", 12)->name, "n-12");
  EXPECT_EQ(arguments_of_task(arguments, "a1", 12)->output_directory, "/out/12");
  arguments.output_directory = "/out";
  EXPECT_THAT(std::string(arguments_of_task(arguments, "a1", 12).status().message()),
              HasSubstr("--output /out: with --array it must contain {array_index}"));
}

TEST(Shares, ShowQuotasWithTheirUse) {
  v1::ListSharesResponse shares;
  EXPECT_THAT(describe_shares(shares), HasSubstr("no --queue-policy"));
  shares.set_has_policy(true);
  shares.set_half_life_hours(168);
  v1::Share& ada = *shares.add_shares();
  ada.set_user("ada");
  ada.set_shares(2);
  ada.set_usage_hours(12.34);
  ada.set_running_jobs(3);
  ada.set_has_priority_max(true);
  ada.set_priority_max(5);
  v1::QuotaUse& quota = *ada.add_quotas();
  quota.set_name("running_gpus_max");
  quota.set_used(16);
  quota.set_max(64);
  const std::string text = describe_shares(shares);
  EXPECT_THAT(text, HasSubstr("running_gpus_max 16/64, priority_max 5"));
  EXPECT_THAT(text, HasSubstr("12.3"));
  EXPECT_THAT(text, HasSubstr("usage halves every 168 hours"));
  const nlohmann::json json = shares_to_json(shares);
  EXPECT_EQ(json["shares"][0]["quotas"]["running_gpus_max"]["used"], 16);
  EXPECT_EQ(json["shares"][0]["priority_max"], 5);
}

}  // namespace
}  // namespace muster::cli
