#include "common/files/errno_status.h"

#include <cerrno>

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(ErrnoStatus, NamesOperationReasonAndCode) {
  const absl::Status status = errno_status(ENOENT, "opening /a");
  EXPECT_EQ(status, absl::NotFoundError("opening /a: No such file or directory"));
  EXPECT_TRUE(absl::IsPermissionDenied(errno_status(EROFS, "")));
  EXPECT_TRUE(absl::IsResourceExhausted(errno_status(ENOSPC, "")));
  EXPECT_TRUE(absl::IsUnknown(errno_status(EL2HLT, "")));
  EXPECT_TRUE(errno_status(0, "").ok());
}

// File errors never use codes that callers take for lost peers, whatever a network file system
// returns.
TEST(FileStatus, IsNeverAnErrorOfPeers) {
  int changed = 0;
  for (int error = 1; error < 134; ++error) {
    const absl::Status of_file = file_status(error, "reading /a"),
                       of_any = errno_status(error, "reading /a");
    EXPECT_FALSE(absl::IsUnavailable(of_file) || absl::IsDeadlineExceeded(of_file) ||
                 absl::IsAborted(of_file))
        << of_file;
    EXPECT_EQ(of_file.message(), of_any.message());
    if (of_file == of_any) continue;
    EXPECT_TRUE(absl::IsUnknown(of_file)) << of_file;
    ++changed;
  }
  EXPECT_GT(changed, 5);
  EXPECT_TRUE(absl::IsUnknown(file_status(ETIMEDOUT, "")));
  EXPECT_TRUE(absl::IsUnknown(file_status(ESTALE, "")));
  EXPECT_TRUE(file_status(0, "").ok());
}

}  // namespace
}  // namespace muster
