// muster_progress.h as C and as C++, and muster_progress.py: common/progress/progress_page.h reads
// what they write.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "common/progress/progress_page.h"
#include "tests/paths.h"
#include "tests/unit/temp_folder.h"

namespace muster {
namespace {

// A writer process whose standard input and output are pipes of the test.
class Program {
 public:
  Program(std::vector<std::string> words, std::map<std::string, std::string> variables) {
    std::array<int, 2> in{}, out{};
    EXPECT_EQ(pipe2(in.data(), O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(out.data(), O_CLOEXEC), 0);
    // Interpreters may be found through these.
    for (const char* name : {"PATH", "HOME"}) {
      if (const char* value = getenv(name); value != nullptr) variables.emplace(name, value);
    }
    std::vector<std::string> environment;
    for (const auto& [name, value] : variables)
      environment.push_back(absl::StrCat(name, "=", value));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    EXPECT_EQ(posix_spawn(&pid_, words[0].c_str(), &actions, nullptr, pointers(words).data(),
                          pointers(environment).data()),
              0)
        << words[0];
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    input_ = in[1];
    output_ = out[0];
  }
  ~Program() {
    if (pid_ > 0) end();
    close(output_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Returns false if the program has ended before it was ready.
  bool is_ready() const {
    char byte = 0;
    return read(output_, &byte, 1) == 1;
  }
  // Waits for the program's end and returns its exit code.
  int end() {
    close(input_);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  pid_t pid() const { return pid_; }

 private:
  static std::vector<char*> pointers(std::vector<std::string>& words) {
    std::vector<char*> result;
    for (std::string& word : words) result.push_back(word.data());
    result.push_back(nullptr);
    return result;
  }

  pid_t pid_ = 0;
  int input_ = -1;
  int output_ = -1;
};

struct Writer {
  const char* name;
  std::vector<std::string> words;
};

std::ostream& operator<<(std::ostream& out, const Writer& writer) { return out << writer.name; }

class ProgressApi : public ::testing::TestWithParam<Writer> {
 protected:
  std::vector<std::string> command(const std::string& what) const {
    std::vector<std::string> words = GetParam().words;
    words.push_back(what);
    return words;
  }

  const TempFolder folder_;
  const std::string path_ = folder_.file("progress.1");
  const std::map<std::string, std::string> variables_ = {
      {"MUSTER_PROGRESS_PAGE", path_},
      {"MUSTER_JOB", "7"},
      {"MUSTER_ATTEMPT", "3"},
      {"MUSTER_INCARNATION", "1234605616436508552"},
      {"RANK", "5"},
      {"LOCAL_RANK", "1"},
      {"WORLD_SIZE", "8"}};
};

std::string name_of(const GroupProgress& group) { return group.name.data(); }

TEST_P(ProgressApi, WritesThePageThatTheWorkerReads) {
  const Instant before = monotonic_now();
  Program program(command("script"), variables_);
  ASSERT_TRUE(program.is_ready());
  const auto page = read_progress_page(path_);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->sequence % 2, 0U);
  EXPECT_EQ(page->job, 7U);
  EXPECT_EQ(page->attempt, 3U);
  EXPECT_EQ(page->incarnation, 0x1122334455667788U);
  EXPECT_EQ(page->rank, 5);
  EXPECT_EQ(page->local_rank, 1);
  EXPECT_EQ(page->world_size, 8);
  EXPECT_EQ(page->pid, program.pid());
  EXPECT_EQ(page->phase, Phase::kEval);
  EXPECT_EQ(page->total_steps, 100);
  EXPECT_EQ(page->checkpoint_step, 2);
  EXPECT_EQ(page->step, 2) << "a child of fork() is not the rank";
  EXPECT_EQ(page->loss, 1.25);
  EXPECT_EQ(page->grad_norm, 0.75);
  EXPECT_EQ(page->step_seconds, 0.25);
  EXPECT_DOUBLE_EQ(page->step_seconds_ewma, 0.5 + kStepEwmaWeight * (0.25 - 0.5));
  EXPECT_EQ(page->tokens, 20U);
  EXPECT_EQ(page->tflops_per_device, 400);
  EXPECT_EQ(page->learning_rate, 3e-5);
  EXPECT_EQ(page->data_wait_seconds, 0.25);
  EXPECT_EQ(page->collective_wait_seconds, 0.125);
  StepTimes times;
  times.add(0.5);
  times.add(0.25);
  EXPECT_EQ(page->step_times.counts, times.counts);
  EXPECT_EQ(page->step_times.seconds, times.seconds);
  EXPECT_GE(page->start_ns, to_ns(before));
  EXPECT_GE(page->phase_start_ns, page->start_ns);
  EXPECT_GE(page->last_progress_ns, page->phase_start_ns);
  EXPECT_LE(page->last_progress_ns, to_ns(monotonic_now()));
  EXPECT_EQ(program.end(), 0);
}

TEST_P(ProgressApi, WritesCollectives) {
  Program program(command("script"), variables_);
  ASSERT_TRUE(program.is_ready());
  const auto page = read_progress_page(path_);
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_EQ(page->group_count, 2U);
  const GroupProgress& data = page->groups[0];
  EXPECT_EQ(name_of(data), "data");
  EXPECT_EQ(data.members, 4U);
  EXPECT_EQ(data.id, 7U);
  EXPECT_EQ(data.enqueued, 3U);
  EXPECT_EQ(data.started, 2U);
  EXPECT_EQ(data.completed, 1U);
  EXPECT_EQ(data.kind, CollectiveKind::kAllGather);
  EXPECT_EQ(data.bytes, 64U);
  EXPECT_EQ(data.dtype, 1U);
  EXPECT_EQ(name_of(page->groups[1]), "a name that is far longer than the fifty-five bytes of ");
  EXPECT_EQ(page->groups[1].id, 8U);
  EXPECT_EQ(page->groups[1].kind, CollectiveKind::kSend);
  ASSERT_EQ(page->ring_head, 4U);
  const CollectiveRecord& first = page->ring[0];
  EXPECT_EQ(first.seq, 1U);
  EXPECT_EQ(first.kind, CollectiveKind::kAllReduce);
  EXPECT_EQ(first.bytes, 1U << 20);
  EXPECT_GE(first.completed_ns, first.enqueued_ns);
  EXPECT_STREQ(first.name.data(), "gradients");
  EXPECT_EQ(page->ring[1].completed_ns, 0);
  EXPECT_STREQ(page->ring[2].name.data(), "weights of every layer of the m");
  EXPECT_EQ(page->ring[3].group, 1U);
}

TEST_P(ProgressApi, AnotherProcessOfTheRankDoesNotWrite) {
  Program program(command("script"), variables_);
  ASSERT_TRUE(program.is_ready());
  Program second(command("script"), variables_);
  EXPECT_FALSE(second.is_ready());
  EXPECT_EQ(second.end(), 3);
  EXPECT_EQ(read_progress_page(path_)->pid, program.pid());
  EXPECT_EQ(program.end(), 0);
  // A new process overwrites everything of an ended one.
  Program next(command("race"), variables_);
  ASSERT_TRUE(next.is_ready());
  const auto page = read_progress_page(path_);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->pid, next.pid());
  EXPECT_EQ(page->group_count, 0U);
}

TEST_P(ProgressApi, WithoutMusterItDoesNothing) {
  Program program(command("script"), {});
  EXPECT_FALSE(program.is_ready());
  EXPECT_EQ(program.end(), 3);
}

// All figures follow from the step's number, so a consistent page is one moment of the writer.
void expect_complete(const ProgressPage& page) {
  ASSERT_EQ(page.loss, static_cast<double>(page.step));
  ASSERT_EQ(page.grad_norm, static_cast<double>(page.step + 1));
  ASSERT_EQ(page.tokens, static_cast<uint64_t>(3 * page.step));
  ASSERT_EQ(page.step_times.total(), static_cast<uint64_t>(page.step));
  ASSERT_EQ(page.step_times.seconds, static_cast<double>(page.step));
}

TEST_P(ProgressApi, AReaderSeesNoTornPage) {
  constexpr int kPages = 2000;
  Program program(command("race"), variables_);
  ASSERT_TRUE(program.is_ready());
  int64_t last = 0;
  int whole = 0;
  // A page may stay torn for all of a reader's retries, which its sequence shows; but not every
  // time.
  for (int tries = 0; whole < kPages && tries < 100 * kPages; ++tries) {
    const auto page = read_progress_page(path_);
    ASSERT_TRUE(page.ok()) << page.status();
    if (page->sequence % 2 != 0) continue;
    ++whole;
    ASSERT_GE(page->step, last);
    last = page->step;
    ASSERT_NO_FATAL_FAILURE(expect_complete(*page));
  }
  EXPECT_EQ(whole, kPages);
  EXPECT_EQ(program.end(), 0);
}

TEST_P(ProgressApi, AWriterThatStopsInsideLeavesAnOddSequence) {
  Program program(command("hold"), variables_);
  ASSERT_TRUE(program.is_ready());
  EXPECT_EQ(read_progress_page(path_)->sequence % 2, 1U);
  EXPECT_EQ(program.end(), 0);
  EXPECT_EQ(read_progress_page(path_)->sequence % 2, 0U);
}

INSTANTIATE_TEST_SUITE_P(Writers, ProgressApi,
                         ::testing::Values(Writer{"C", {bin_dir() + "/progress_writer_c"}},
                                           Writer{"Cpp", {bin_dir() + "/progress_writer_cpp"}},
                                           Writer{
                                               "Python",
                                               {MUSTER_PYTHON, "-B",
                                                source_dir() + "/tests/unit/progress/writer.py"}}),
                         [](const auto& writer) { return std::string(writer.param.name); });

}  // namespace
}  // namespace muster
