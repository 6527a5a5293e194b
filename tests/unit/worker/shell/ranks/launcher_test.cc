#include "worker/shell/ranks/launcher.h"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>

#include "common/progress/progress_page.h"
#include "tests/unit/worker/shell/shell_fixture.h"
#include "worker/shell/ranks/node_fault.h"

namespace muster::worker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class LauncherTest : public ShellTest {
 protected:
  Launcher launcher(const std::string& trainer) {
    return Launcher({.work_dir = folder,
                     .trainer = trainer,
                     .bind_address = "127.0.0.1",
                     .incarnation = Incarnation(5)},
                    {"PATH=/usr/bin:/bin", "RANK=99", "HOME=/nowhere"});
  }

  SpawnRank request(std::map<std::string, std::string> environment = {}) {
    auto launch = std::make_shared<Launch>();
    launch->job = key.job;
    launch->attempt = key.attempt;
    launch->rendezvous_address = "127.0.0.1:4242";
    launch->spec.nodes = 2;
    launch->spec.ranks_per_node = 4;
    launch->spec.train_config_json = R"({"steps": 3})";
    launch->spec.environment = std::move(environment);
    return {key, 1, launch};
  }

  const RankKey key{JobId(7), Attempt(2), Rank(5)};
};

TEST_F(LauncherTest, RanksSeeTheGpusThatTheirJobHas) {
  std::vector<GpuState> gpus(4);
  for (size_t i = 0; i < gpus.size(); ++i) gpus[i].gpu.uuid = "GPU-" + std::to_string(i);
  const Launcher with({.work_dir = folder,
                       .trainer = "/x",
                       .bind_address = "127.0.0.1",
                       .incarnation = Incarnation(5),
                       .gpus = gpus},
                      {"CUDA_VISIBLE_DEVICES=0,1,2,3"});
  const auto seen = [&](std::vector<int32_t> own, int32_t each,
                        std::map<std::string, std::string> environment = {}) {
    SpawnRank wanted = request(std::move(environment));
    auto launch = std::make_shared<Launch>(*wanted.launch);
    launch->spec.ranks_per_node = 2;
    launch->spec.gpus_per_rank = each;
    launch->gpus = std::move(own);
    wanted.launch = launch;
    const auto variables = with.environment(wanted);
    EXPECT_TRUE(variables.ok()) << variables.status();
    for (const std::string& entry : *variables)
      if (entry.starts_with("CUDA_VISIBLE_DEVICES=")) return entry.substr(21);
    return std::string("-");
  };
  EXPECT_EQ(seen({3, 1}, 1), "GPU-3,GPU-1");  // all of the job's: LOCAL_RANK selects
  EXPECT_EQ(seen({0, 2, 1, 3}, kGpusOfSlot), "GPU-0,GPU-2,GPU-1,GPU-3");
  EXPECT_EQ(seen({0, 2, 1, 3}, 2), "GPU-2,GPU-3");  // local rank 1's own
  EXPECT_EQ(seen({}, 0), "0,1,2,3");                // as the worker sees them
  EXPECT_EQ(seen({3, 1}, 1, {{"CUDA_VISIBLE_DEVICES", "2"}}), "2");
}

TEST_F(LauncherTest, ARankGetsItsWorldCoordinates) {
  const auto variables =
      launcher("/x").environment(request({{"HOME", "/home/me"}, {"MUSTER_JOB", "666"}}));
  ASSERT_TRUE(variables.ok());
  for (const std::string expected :
       {"RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "MUSTER_JOB=7",
        "MUSTER_ATTEMPT=2", "MUSTER_INCARNATION=5", "MUSTER_CHECKPOINT_STEP=0",
        "MUSTER_RENDEZVOUS=127.0.0.1:4242", "MUSTER_BIND_ADDRESS=127.0.0.1", "HOME=/home/me",
        "PATH=/usr/bin:/bin"}) {
    EXPECT_THAT(*variables, Contains(expected));
  }
  EXPECT_THAT(*variables, Contains("MUSTER_PROGRESS_PAGE=" + folder.string() + "/7/2/progress.1"));
  EXPECT_THAT(*variables, Not(Contains(StartsWith("RANK=99"))));
}

TEST_F(LauncherTest, TheCoordinatorLimitsTheRendezvousUnlessTheOperatorDoes) {
  const auto limit = [&](Duration time, std::vector<std::string> base) {
    const Launcher subject({.work_dir = folder,
                            .trainer = "/x",
                            .bind_address = "127.0.0.1",
                            .incarnation = Incarnation(5)},
                           base);
    SpawnRank wanted = request({});
    auto launch = std::make_shared<Launch>(*wanted.launch);
    launch->rendezvous_time = time;
    wanted.launch = launch;
    const auto variables = *subject.environment(wanted);
    for (const std::string& entry : variables)
      if (entry.starts_with("MUSTER_RENDEZVOUS_TIMEOUT_MS=")) return entry.substr(29);
    return std::string("none");
  };
  EXPECT_EQ(limit(Duration::zero(), {}), "none");
  EXPECT_EQ(limit(std::chrono::seconds(30), {}), "30000");
  EXPECT_EQ(limit(std::chrono::seconds(30), {"MUSTER_RENDEZVOUS_TIMEOUT_MS=5000"}), "5000");
}

TEST_F(LauncherTest, ProgramsDoNotGetTheWorkersCredentials) {
  const std::vector<std::string> base = {"PATH=/bin", "HF_TOKEN=a", "AWS_SECRET_ACCESS_KEY=b"};
  const auto variables = [&](std::vector<std::string> pass, std::vector<std::string> command) {
    const Launcher subject({.work_dir = folder,
                            .trainer = "/x",
                            .bind_address = "127.0.0.1",
                            .incarnation = Incarnation(5),
                            .pass_env = std::move(pass)},
                           base);
    SpawnRank wanted = request({{"WANDB_API_KEY", "of the job"}});
    auto launch = std::make_shared<Launch>(*wanted.launch);
    launch->spec.command = std::move(command);
    wanted.launch = launch;
    return *subject.environment(wanted);
  };
  EXPECT_THAT(variables({}, {}), Contains("HF_TOKEN=a")) << "the trainer";
  const auto of_program = variables({"HF_*"}, {"true"});
  EXPECT_THAT(of_program, Contains("PATH=/bin"));
  EXPECT_THAT(of_program, Contains("HF_TOKEN=a"));
  EXPECT_THAT(of_program, Contains("WANDB_API_KEY=of the job"));
  EXPECT_THAT(of_program, Not(Contains(StartsWith("AWS_SECRET_ACCESS_KEY="))));
}

TEST_F(LauncherTest, ProgramsDumpIntoTheFolderUnlessTheJobOverridesIt) {
  const std::string folder_of_launch = folder.string() + "/7/2/";
  const auto variables = launcher("/x").environment(request({{"TORCH_FR_BUFFER_SIZE", "17"}}));
  EXPECT_THAT(*variables, Contains("TORCH_FR_BUFFER_SIZE=17"));
  EXPECT_THAT(*variables, Not(Contains("TORCH_FR_BUFFER_SIZE=2000")));
  // PyTorch prints a warning for the name of earlier versions, which the job may still use.
  EXPECT_THAT(*variables, Not(Contains(StartsWith("TORCH_NCCL_TRACE_BUFFER_SIZE="))));
  EXPECT_THAT(*launcher("/x").environment(request({{"TORCH_NCCL_TRACE_BUFFER_SIZE", "0"}})),
              Not(Contains(StartsWith("TORCH_FR_BUFFER_SIZE="))));
  EXPECT_THAT(*variables,
              Contains("TORCH_NCCL_DEBUG_INFO_PIPE_FILE=" + folder_of_launch + "nccl-trace-"));
  EXPECT_THAT(*variables, Contains("CUDA_COREDUMP_FILE=" + folder_of_launch + "cuda-core-5-%p"));
}

TEST_F(LauncherTest, IdleThreadsOfARankDoNotSpinUnlessTheJobRequestsIt) {
  EXPECT_THAT(*launcher("/x").environment(request()), Contains("OMP_WAIT_POLICY=passive"));
  const auto variables = launcher("/x").environment(request({{"OMP_WAIT_POLICY", "active"}}));
  EXPECT_THAT(*variables, Contains("OMP_WAIT_POLICY=active"));
  EXPECT_THAT(*variables, Not(Contains("OMP_WAIT_POLICY=passive")));
}

TEST_F(LauncherTest, ThreadsPerRankAreASlotsShareUnlessOverridden) {
  const auto threads = [&](const std::vector<std::string>& base,
                           std::map<std::string, std::string> job) {
    const Launcher subject({.work_dir = folder,
                            .trainer = "/x",
                            .bind_address = "127.0.0.1",
                            .incarnation = Incarnation(5),
                            .threads_per_rank = 3},
                           base);
    const auto variables = subject.environment(request(std::move(job)));
    std::string found;
    for (const std::string& variable : *variables) {
      if (variable.starts_with("OMP_NUM_THREADS=")) found += variable.substr(16);
    }
    return found;
  };
  EXPECT_EQ(threads({}, {}), "3");
  EXPECT_EQ(threads({"OMP_NUM_THREADS=5"}, {}), "5");
  EXPECT_EQ(threads({"OMP_NUM_THREADS=5"}, {{"OMP_NUM_THREADS", "6"}}), "6");
}

TEST_F(LauncherTest, VariablesThatCannotBeAreRefused) {
  for (const std::string name : {"", "A=B", "1A", "A B", "Ä"}) {
    const auto variables = launcher("/x").environment(request({{name, "v"}}));
    EXPECT_EQ(variables.status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
  EXPECT_FALSE(launcher("/x").environment(request({{"A", std::string("a\0b", 3)}})).ok());
}

TEST_F(LauncherTest, RunsTheTrainerOnItsConfig) {
  const Launcher subject = launcher(script("echo \"$1 $2\"; cat \"$3\"; pwd"));
  const auto pid = subject.launch(request());
  ASSERT_TRUE(pid.ok()) << pid.status();
  ASSERT_EQ(waitpid(*pid, nullptr, 0), *pid);
  EXPECT_EQ(read_file(subject.folders().log_path(key)),
            "train --config\n{\"steps\": 3}" + folder.string() + "/7/2\n");
  EXPECT_EQ(read_file(folder / "7" / "2" / "config.json"), R"({"steps": 3})");
  EXPECT_EQ(subject.last_shown_line(key), "{\"steps\": 3}" + folder.string() + "/7/2");
}

TEST_F(LauncherTest, AWorkFolderThatCannotBeWrittenIsAnError) {
  std::ofstream(folder / "7") << "a file in the way";
  const auto pid = launcher("/bin/true").launch(request());
  ASSERT_FALSE(pid.ok());
  EXPECT_THAT(std::string(pid.status().message()), HasSubstr("/7"));
  EXPECT_TRUE(is_node_fault(pid.status()));
}

TEST_F(LauncherTest, OnlyTheTrainerAndTheWorkersFoldersAreTheNodes) {
  EXPECT_TRUE(is_node_fault(launcher("/no/trainer").launch(request()).status()));
  SpawnRank program = request();
  auto launch = std::make_shared<Launch>(*program.launch);
  launch->spec.command = {"/bin/true"};
  launch->spec.working_directory = "/no/folder";
  launch->program_port = 12'345;
  program.launch = launch;
  const auto pid = launcher("/x").launch(program);
  EXPECT_TRUE(absl::IsNotFound(pid.status())) << pid.status();
  EXPECT_FALSE(is_node_fault(pid.status())) << "the job names its working directory";
  std::filesystem::remove_all(folder / "7");
  std::filesystem::create_directories(folder / "7" / "2" / "rank-5.log");
  EXPECT_TRUE(is_node_fault(launcher("/x").launch(program).status())) << "its log";
}

TEST_F(LauncherTest, ReadsOnlyItsOwnLaunchsPage) {
  const Launcher subject = launcher("/x");
  EXPECT_EQ(subject.read_page(key, 1).status().code(), absl::StatusCode::kNotFound);
  std::filesystem::create_directories(subject.folders().folder(key.launch()));
  ProgressIdentity identity{.job = 7, .attempt = 2, .incarnation = 5, .rank = 5, .local_rank = 1};
  {
    const auto writer =
        ProgressWriter::create(subject.folders().page_path(key.launch(), 1), identity);
    ASSERT_TRUE(writer.ok());
    (*writer)->complete_step({.step = 12, .loss = 1.5}, instant_from_ns(9));
    const auto figures = subject.read_page(key, 1);
    ASSERT_TRUE(figures.ok()) << figures.status();
    EXPECT_EQ(figures->step, 12);
  }
  identity.incarnation = 6;
  ASSERT_TRUE(ProgressWriter::create(subject.folders().page_path(key.launch(), 1), identity).ok());
  EXPECT_EQ(subject.read_page(key, 1).status().code(), absl::StatusCode::kFailedPrecondition);
  std::ofstream(subject.folders().page_path(key.launch(), 1)) << "garbage";
  EXPECT_EQ(subject.read_page(key, 1).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(LauncherTest, TheLastLineIsPrintable) {
  const Launcher subject = launcher("/x");
  EXPECT_EQ(subject.last_shown_line(key), "");
  std::filesystem::create_directories(subject.folders().folder(key.launch()));
  const auto last_of = [&](const std::string& log) {
    std::ofstream(subject.folders().log_path(key), std::ios::binary) << log;
    return subject.last_shown_line(key);
  };
  EXPECT_EQ(last_of(""), "");
  EXPECT_EQ(last_of("\n\n"), "");
  EXPECT_EQ(last_of("one\ntwo\n\n"), "two");
  EXPECT_EQ(last_of("no newline"), "no newline");
  EXPECT_EQ(last_of("a\n\x1b[31mred\x01\xff\n"), R"(red\x01\xff)");
  EXPECT_LE(last_of(std::string(1 << 20, 'x')).size(), 600U);
}

// The fault that was reported: the last words of a rank were the oldest states of its progress bar.
TEST_F(LauncherTest, TheLastLinesAreTheLastStates) {
  const Launcher subject = launcher("/x");
  std::filesystem::create_directories(subject.folders().folder(key.launch()));
  std::string bar;
  for (int step = 0; step < 20'000; ++step)
    bar += absl::StrCat("\r ", step / 200, "%|", std::string(8, '#'), "| ", step, "/20000");
  struct {
    const char* name;
    std::string log;
    std::vector<std::string> last;
  } const cases[] = {
      {"a bar and an error",
       "start\n" + bar + "\nRuntimeError: boom\n",
       {"start", " 99%|########| 19999/20000", "RuntimeError: boom"}},
      {"a bar without an end", "start\n" + bar, {"start", " 99%|########| 19999/20000"}},
      {"a bar that is erased", "\r 50%|##  |\r          \rValueError: x\n", {"ValueError: x"}},
      {"an error behind the bar",
       "\r 50%|## |\r 60%|## |Traceback (most recent call last):\n",
       {" 60%|## |Traceback (most recent call last):"}},
      {"colours", "\x1b[1;31mError\x1b[0m: \x1b[4mno\x1b[0m file\n\x1b[?25h", {"Error: no file"}},
      {"Windows' line ends", "one\r\ntwo\r\n", {"one", "two"}},
      {"rich", "\r\x1b[2K Working 10%\r\x1b[2K Working 20%\x1b[?25h\r\n", {" Working 20%"}},
      {"a long line",
       std::string(5'000, 'x') + " the reason\n",
       {"…" + std::string(498, 'x') + " the reason"}},
  };
  for (const auto& one : cases) {
    std::ofstream(subject.folders().log_path(key), std::ios::binary) << one.log;
    EXPECT_EQ(subject.last_lines(key, 20), one.last) << one.name;
  }
}

}  // namespace
}  // namespace muster::worker
