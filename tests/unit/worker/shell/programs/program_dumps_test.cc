// Dumps of programs that follow the protocols of PyTorch's flight recorder and CUDA's
// user-triggered core dumps.
#include "worker/shell/programs/program_dumps.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "common/job/rank_evidence.h"
#include "tests/unit/temp_folder.h"

namespace muster::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Creates its pipe and, when something is written to it, its file in two parts.
class Program {
 public:
  explicit Program(const std::string& file) : file_(file) {
    const std::string pipe = file + ".pipe";
    EXPECT_EQ(mkfifo(pipe.c_str(), 0666), 0);
    fd_ = open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    thread_ = std::thread([this] { run(); });
  }
  ~Program() {
    thread_.join();
    close(fd_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

 private:
  void run() const {
    pollfd wait{.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&wait, 1, 60'000) != 1) return;
    std::ofstream out(file_, std::ios::trunc);
    out << "first " << std::flush << "second";
  }

  const std::string file_;
  int fd_ = -1;
  std::thread thread_;
};

Instant soon() { return monotonic_now() + std::chrono::seconds(60); }

class ProgramDumpsTest : public ::testing::Test {
 protected:
  // Returns a program's file stem from the variables that the worker sets.
  std::string stem(const std::string& variable, const std::string& replaces = "",
                   const std::string& by = "") const {
    std::string value = program_dump_variables(folder_.path(), Rank(3)).at(variable);
    const size_t at = value.find(replaces);
    return replaces.empty() || at == std::string::npos ? value
                                                       : value.replace(at, replaces.size(), by);
  }

  const TempFolder folder_;
};

TEST_F(ProgramDumpsTest, BothAreRequestedAndRetained) {
  const std::string trace = absl::StrCat(stem("TORCH_NCCL_DEBUG_INFO_TEMP_FILE"), 3);
  const std::string core = stem("CUDA_COREDUMP_FILE", "%p", "4711");
  ASSERT_EQ(stem("TORCH_NCCL_DEBUG_INFO_PIPE_FILE") + "3.pipe", trace + ".pipe");
  ASSERT_EQ(stem("CUDA_COREDUMP_PIPE", "%p", "4711"), core + ".pipe");
  const Program torch(trace);
  const Program cuda(core);
  std::ofstream(folder_.file("nccl-trace-33")) << "another rank's";
  const RequestedDumps requested = request_program_dumps(folder_.path(), Rank(3));
  EXPECT_THAT(requested.paths, SizeIs(2));
  wait_for_program_dumps({requested}, soon());
  EXPECT_THAT(find_program_dumps(folder_.path(), Rank(3)),
              ElementsAre(core + " (12 bytes)", trace + " (12 bytes)"));
}

TEST_F(ProgramDumpsTest, AnUnresponsiveProgramIsNotAwaited) {
  EXPECT_THAT(request_program_dumps(folder_.path(), Rank(3)).paths, IsEmpty());
  EXPECT_THAT(request_program_dumps(folder_.file("none"), Rank(3)).paths, IsEmpty());
  ASSERT_EQ(mkfifo(folder_.file("nccl-trace-3.pipe").c_str(), 0600), 0);  // a dead program's pipe
  std::ofstream(folder_.file("cuda-core-3-1.pipe")) << "no pipe";
  std::filesystem::create_symlink(folder_.file("nccl-trace-3.pipe"),
                                  folder_.file("cuda-core-3-2.pipe"));
  EXPECT_THAT(request_program_dumps(folder_.path(), Rank(3)).paths, IsEmpty());
  wait_for_program_dumps({}, soon());
  wait_for_program_dumps({{{folder_.file("nccl-trace-3")}, 0}},
                         monotonic_now() + std::chrono::milliseconds(5));
}

TEST_F(ProgramDumpsTest, TheDumpsFoundAreBounded) {
  for (int i = 0; i < 50; ++i) std::ofstream(folder_.file(absl::StrCat("cuda-core-3-", i))) << "x";
  EXPECT_THAT(find_program_dumps(folder_.path(), Rank(3)), SizeIs(kEvidenceFilesMax));
  const TempFolder other;
  const std::string large = other.file("nccl-trace-3");
  std::ofstream(large) << "x";
  std::filesystem::resize_file(large, kProgramDumpBytesMax + 1);
  EXPECT_THAT(find_program_dumps(other.path(), Rank(3)),
              ElementsAre(absl::StrCat(large, " (", kProgramDumpBytesMax + 1, " bytes, removed)")));
  EXPECT_FALSE(std::filesystem::exists(large));
}

TEST_F(ProgramDumpsTest, NamesAreTheirs) {
  for (const char* name :
       {"nccl-trace-0", "nccl-trace-12.pipe", "cuda-core-3-4711", "cuda-core-3-4711.pipe"}) {
    EXPECT_TRUE(is_program_dump(name)) << name;
  }
  for (const char* name : {"nccl-trace-", "nccl-trace-x", "cuda-core-3", "cuda-core--1",
                           "cuda-core-3-", "cuda-core-3-1-2", "pipe", ".pipe", ""}) {
    EXPECT_FALSE(is_program_dump(name)) << name;
  }
}

}  // namespace
}  // namespace muster::worker
