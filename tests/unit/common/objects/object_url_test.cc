#include "common/objects/object_url.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster {
namespace {

using testing::HasSubstr;

std::string error_of(std::string_view text) {
  return std::string(parse_object_url(text).status().message());
}

TEST(ObjectUrl, HasABucketAndAKey) {
  const auto url = parse_object_url("s3://bucket/a/b/");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_EQ(url->text(), "s3://bucket/a/b");
  EXPECT_EQ(url->name(), "b");
  EXPECT_EQ(parse_object_url("gs://my-bucket")->text(), "gs://my-bucket");
  EXPECT_EQ(parse_object_url("gs://my-bucket/")->name(), "my-bucket");
  EXPECT_TRUE(is_object_url("gs://b"));
  EXPECT_FALSE(is_object_url("hdfs://b"));
  EXPECT_TRUE(is_remote("hdfs://b"));
  EXPECT_FALSE(is_remote("/data/s3"));
}

TEST(ObjectUrl, ErrorsNameThePart) {
  EXPECT_THAT(error_of("hdfs://host/a"), HasSubstr("expected s3://BUCKET/KEY"));
  EXPECT_THAT(error_of("s3://"), HasSubstr("the bucket is missing"));
  EXPECT_THAT(error_of("s3:///key"), HasSubstr("the bucket is missing"));
  EXPECT_THAT(error_of("s3://a b/key"), HasSubstr("a bucket's name"));
  EXPECT_THAT(error_of("s3://b/a//c"), HasSubstr("empty or relative component"));
  EXPECT_THAT(error_of("s3://b/a/../c"), HasSubstr("empty or relative component"));
  EXPECT_THAT(error_of("s3://b/a\nc"), HasSubstr("control character"));
  EXPECT_THAT(error_of("s3://b/" + std::string(2000, 'x')), HasSubstr("1024 bytes"));
}

}  // namespace
}  // namespace muster
