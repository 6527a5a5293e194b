#include "common/files/file_read.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster {
namespace {

using testing::HasSubstr;

TEST(FileRead, ReturnsAllUpToItsBound) {
  const TempFolder folder;
  const std::string path = folder.file("a");
  write_file(path, std::string("b\0\n", 3));
  EXPECT_EQ(*read_plain_file_up_to(3, path, "file"), std::string("b\0\n", 3));
  const auto longer = read_file_up_to(2, path, "file a");
  EXPECT_EQ(longer.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(longer.status().message(), "file a is longer than 2 bytes");
  EXPECT_EQ(*read_file_up_to(0, "/dev/null", "nothing"), "");
}

TEST(FileRead, FailuresNameTheFile) {
  const TempFolder folder;
  const auto absent = read_plain_file_up_to(1, folder.file("absent"), "the job file absent");
  EXPECT_EQ(absent.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(absent.status().message()),
              HasSubstr("the job file absent: No such file or directory"));
  const auto no_file = read_plain_file_up_to(1, folder.path(), "it");
  EXPECT_EQ(no_file.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(no_file.status().message(), "it is not a plain file");
  EXPECT_FALSE(read_plain_file_up_to(1, "/dev/zero", "it").ok());
}

}  // namespace
}  // namespace muster
