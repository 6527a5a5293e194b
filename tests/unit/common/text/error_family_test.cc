#include "common/text/error_family.h"

#include <cctype>
#include <set>

#include <gtest/gtest.h>

#include "common/text/end_reason.h"

namespace muster {
namespace {

std::string family_of(std::string_view text) {
  const ErrorFamily* family = find_error_family(text);
  return family == nullptr ? "none" : std::string(family->name);
}

TEST(ErrorFamily, EachFamilyHasItsOwnNameAndPatternsInLowerCase) {
  std::set<std::string_view> names, patterns;
  for (const ErrorFamily& family : error_families()) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    EXPECT_EQ(error_family_named(family.name), &family);
    EXPECT_TRUE(family.meaning.ends_with('.')) << family.name;
    for (const std::string_view pattern : family.patterns) {
      EXPECT_TRUE(patterns.insert(pattern).second) << pattern << " is in two families";
      for (const char c : pattern)
        EXPECT_EQ(std::tolower(static_cast<unsigned char>(c)), c) << pattern;
    }
  }
  EXPECT_EQ(error_family_named("no such family"), nullptr);
}

TEST(ErrorFamily, CausesComeBeforeTheirConsequencesInOneMessage) {
  EXPECT_EQ(family_of("DistBackendError: NCCL error; Cuda failure 'out of memory'"),
            "device memory exhausted");
  EXPECT_EQ(family_of("NCCL watchdog thread terminated with exception: CUDA error: uncorrectable "
                      "ECC error encountered"),
            "GPU memory error");
  EXPECT_EQ(family_of("ImportError: libcudnn.so.9: cannot open shared object file"),
            "library missing");
  EXPECT_EQ(family_of("step 49 loss 5.5"), "none");
  EXPECT_TRUE(matches_pattern("nvrm: xid (pci:0000:44:00): 79, gpu", "xid*): 79,"));
  EXPECT_FALSE(matches_pattern("): 79, xid", "xid*): 79,"));
}

// The kernel's messages explain what a program only sees as a failed call, and nothing else.
TEST(EndReason, AKernelMessageExplainsAFailedDevice) {
  const std::vector<std::string> messages = {
      "NVRM: Xid (PCI:0000:44:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the "
      "bus.",
      "NVRM: Xid (PCI:0000:3b:00): 48, pid=4001, name=python3, DBE",
      "I/O error, dev nvme0n1, sector 131209936 op 0x0:(READ)"};
  EXPECT_EQ(kernel_reason("CUDA error: unspecified launch failure", messages, 4001), messages[1]);
  EXPECT_EQ(kernel_reason("CUDA error: unspecified launch failure", messages, 4002), messages[0])
      << "the error of another process's GPU does not count";
  EXPECT_EQ(kernel_reason("OSError: [Errno 14] Bad address", messages, 1), messages[2]);
  EXPECT_EQ(kernel_reason("KeyError: 'x' (job/t.py:3 f)", messages, 1), "");
  EXPECT_EQ(kernel_reason("Connection closed by peer", messages, 1), "");
  EXPECT_EQ(kernel_reason("CUDA error: unspecified launch failure", {}, 1), "");
  const std::vector<std::string> own = {"0000:3b:00"}, other = {"0000:5c:00", "0000:5d:00"};
  EXPECT_EQ(kernel_reason("CUDA error: unspecified launch failure", messages, 7, own), messages[1])
      << "a child of the rank used its GPU";
  EXPECT_EQ(kernel_reason("CUDA error: unspecified launch failure", messages, 4001, other), "")
      << "neither GPU is one of the rank's";
}

}  // namespace
}  // namespace muster
