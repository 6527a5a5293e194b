// The file of a matrix library's algorithms: entries of several processes, and malformed lines.
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "trainer_core/ops/cuda/gemm/cublaslt_algorithms.h"

namespace muster::trainer::cuda {
namespace {

constexpr AlgorithmWords kOne = {1, 2, 3, 0xfedcba9876543210, 5, 6, 7, 8};
constexpr AlgorithmWords kOther = {8, 7, 6, 5, 4, 3, 2, ~uint64_t{0}};

TEST(AlgorithmFile, RetainsEntriesOfTwoProcesses) {
  const TempFolder folder;
  const std::string path = folder.path() + "/algorithms";
  AlgorithmFile first(path), second(path);
  first.add("cublasLt 1|GPU|a", kOne);
  second.add("cublasLt 1|GPU|b", kOther);
  EXPECT_EQ(first.find("cublasLt 1|GPU|b"), std::nullopt);  // the file is read when it is opened
  const AlgorithmFile third(path);
  EXPECT_EQ(third.find("cublasLt 1|GPU|a"), kOne);
  EXPECT_EQ(third.find("cublasLt 1|GPU|b"), kOther);
}

TEST(AlgorithmFile, SkipsMalformedLines) {
  const TempFolder folder;
  const std::string path = folder.path() + "/algorithms";
  const std::string digits(128, '0');
  std::ofstream(path) << "half a lin\n"
                      << "short\t00\n"
                      << "letters\t" << std::string(128, 'g') << '\n'
                      << "good\t" << digits << '\n'
                      << std::string(1000, 'x') << '\t' << digits << '\n'
                      << "cut\t" << digits.substr(1);
  AlgorithmFile file(path);
  EXPECT_EQ(file.find("good"), AlgorithmWords{});
  for (const char* key : {"short", "letters", "cut"})
    EXPECT_EQ(file.find(key), std::nullopt) << key;
}

TEST(AlgorithmFile, RemembersInMemoryWithoutAPath) {
  for (const char* path : {"", "/nowhere/at/all"}) {
    AlgorithmFile file(path);
    file.add("key", kOne);
    EXPECT_EQ(file.find("key"), kOne);
  }
}

}  // namespace
}  // namespace muster::trainer::cuda
