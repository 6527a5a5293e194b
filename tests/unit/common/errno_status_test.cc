#include "common/errno_status.h"

#include <cerrno>

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(ErrnoStatus, SaysWhatFailedWhyAndOfWhichKind) {
  const absl::Status status = errno_status(ENOENT, "opening /a");
  EXPECT_EQ(status, absl::NotFoundError("opening /a: No such file or directory"));
  EXPECT_TRUE(absl::IsPermissionDenied(errno_status(EROFS, "")));
  EXPECT_TRUE(absl::IsResourceExhausted(errno_status(ENOSPC, "")));
  EXPECT_TRUE(absl::IsUnknown(errno_status(EL2HLT, "")));
  EXPECT_TRUE(errno_status(0, "").ok());
}

}  // namespace
}  // namespace muster
