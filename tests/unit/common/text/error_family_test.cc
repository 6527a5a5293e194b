#include "common/text/error_family.h"

#include <cctype>
#include <initializer_list>
#include <set>
#include <utility>

#include <absl/strings/str_replace.h>
#include <gtest/gtest.h>

#include "common/text/absl_view.h"
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

// Each pattern is reached: no family before it takes its text.
TEST(ErrorFamily, EachPatternIsThatOfItsFamily) {
  for (const ErrorFamily& family : error_families()) {
    for (const std::string_view pattern : family.patterns) {
      const std::string text = absl::StrReplaceAll(av(pattern), {{"*", " 7 "}});
      EXPECT_EQ(family_of(text), family.name) << text;
      EXPECT_EQ(family_of("step 3: " + text + ", rank 0"), family.name) << text;
    }
  }
}

TEST(ErrorFamily, TheTypeOfAnExceptionDecidesBeforeItsWords) {
  for (const auto& [text, name] : std::initializer_list<std::pair<const char*, const char*>>{
           {"KeyError: 'timeout' (job/train.py:3 f)", "program error"},
           {"KeyError: 'cudnn' (job/train.py:3 f)", "program error"},
           {"ValueError: the URL has no service; connection refused", "program error"},
           {"FileNotFoundError: [Errno 2] No such file: '/data/broken pipe'", "file missing"},
           {"json.decoder.JSONDecodeError: Expecting value: 502 Bad Gateway", "damaged file"},
           {"ValueError: found nan in the loss", "not finite"},
           // Types with many causes, or of a consequence.
           {"OSError: [Errno 28] No space left on device", "disk full"},
           {"torch.distributed.DistBackendError: NCCL error; Cuda failure 'out of memory'",
            "device memory exhausted"},
           // The cause is behind the exception.
           {"ValueError: shard 3; after ConnectionResetError: [Errno 104] Connection reset by peer",
            "lost peer"}})
    EXPECT_EQ(family_of(text), name) << text;
}

TEST(ErrorFamily, NamesAndNumbersAreWholeWords) {
  EXPECT_EQ(family_of("torch.cuda.OutOfMemoryError: x"), "device memory exhausted");
  EXPECT_EQ(family_of("numpy.core._exceptions._ArrayMemoryError: x"), "host memory exhausted");
  EXPECT_EQ(family_of("MonkeyError: x"), "none");
  EXPECT_EQ(family_of("Saved 1503 samples"), "none");
  EXPECT_EQ(family_of("1403 forbidden words"), "none");
  EXPECT_EQ(family_of("403 forbidden"), "permission denied");
}

TEST(ErrorFamily, AWrongUseOfNcclIsTheProgramsOwn) {
  EXPECT_EQ(
      family_of("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, "
                "invalid usage, NCCL version 2.21.5"),
      "NCCL misused");
  EXPECT_EQ(family_of("Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 3b000"),
            "NCCL misused");
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
