// Foreign programs: their environment, and the ports that are reserved for them.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/worker/shell/shell_fixture.h"
#include "worker/shell/programs/program_environment.h"
#include "worker/shell/programs/program_ports.h"
#include "worker/shell/ranks/launcher.h"

namespace muster::worker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ProgramTest : public ShellTest {
 protected:
  Launcher launcher(std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"PATH=/usr/bin:/bin", "MASTER_PORT=1"});
    return Launcher({.work_dir = folder / "work",
                     .trainer = "/x",
                     .bind_address = "127.0.0.1",
                     .incarnation = Incarnation(5)},
                    more);
  }

  SpawnRank request(std::vector<std::string> command, int32_t rank = 5) const {
    auto launch = std::make_shared<Launch>();
    launch->job = JobId(7);
    launch->attempt = Attempt(2);
    launch->rendezvous_address = "[fd00::5]:4242";
    launch->program_port = port;
    launch->spec.nodes = 2;
    launch->spec.ranks_per_node = 4;
    launch->spec.restarts_max = 3;
    launch->spec.command = std::move(command);
    launch->spec.working_directory = folder;
    return {{JobId(7), Attempt(2), Rank(rank)}, rank % 4, launch};
  }

  int32_t port = 12'001;
};

TEST_F(ProgramTest, GetsItsRankInTheVariablesOfItsLauncher) {
  const auto variables = launcher().environment(request({"true"}));
  ASSERT_TRUE(variables.ok()) << variables.status();
  for (const std::string expected :
       {"RANK=5", "LOCAL_RANK=1", "GROUP_RANK=1", "NODE_RANK=1", "NNODES=2", "GROUP_WORLD_SIZE=2",
        "ROLE_RANK=5", "ROLE_WORLD_SIZE=8", "MASTER_ADDR=fd00::5", "MASTER_PORT=12001",
        "TORCHELASTIC_RUN_ID=muster-7", "TORCHELASTIC_RESTART_COUNT=1",
        "TORCHELASTIC_MAX_RESTARTS=3", "TORCHELASTIC_USE_AGENT_STORE=False",
        "JAX_COORDINATOR_ADDRESS=[fd00::5]:12001", "JAX_COORDINATOR_IP=fd00::5",
        "JAX_COORDINATOR_PORT=12001", "JAX_NUM_PROCESSES=8", "JAX_PROCESS_ID=5"}) {
    EXPECT_THAT(*variables, Contains(expected));
  }
  EXPECT_THAT(*variables, Not(Contains("MASTER_PORT=1")));
  EXPECT_THAT(*variables, Not(Contains(StartsWith("SLURM_"))));
  EXPECT_THAT(*launcher().environment(request({})), Not(Contains(StartsWith("JAX_"))))
      << "our trainer needs none of it";
}

// JAX opens every GPU that it sees.
TEST_F(ProgramTest, AProcessOfJaxTakesItsOwnGpus) {
  const auto devices = [&](std::vector<int32_t> gpus, int32_t each,
                           std::map<std::string, std::string> environment = {}) {
    Variables variables(environment);
    SpawnRank wanted = request({"true"});  // local rank 1 of 4
    auto launch = std::make_shared<Launch>(*wanted.launch);
    launch->gpus = std::move(gpus);
    launch->spec.gpus_per_rank = each;
    launch->spec.environment = std::move(environment);
    wanted.launch = launch;
    EXPECT_TRUE(add_program_variables(wanted, variables).ok());
    return variables.contains("JAX_LOCAL_DEVICE_IDS") ? variables["JAX_LOCAL_DEVICE_IDS"] : "-";
  };
  EXPECT_EQ(devices({7, 2, 5, 0}, 1), "1");
  EXPECT_EQ(devices({7, 2, 5, 0, 6, 1, 4, 3}, kGpusOfSlot), "1,5");
  EXPECT_EQ(devices({7, 2, 5, 0, 6, 1, 4, 3}, 2), "-") << "it sees no others";
  EXPECT_EQ(devices({}, 0), "-");
  EXPECT_EQ(devices({7, 2, 5, 0}, 1, {{"CUDA_VISIBLE_DEVICES", "3"}}), "-");
  EXPECT_EQ(devices({7, 2, 5, 0}, 1, {{"JAX_LOCAL_DEVICE_IDS", "0"}}), "0");
}

TEST_F(ProgramTest, InsideASlurmJobARankIsATask) {
  const auto variables = launcher({"SLURM_JOB_ID=9", "SLURM_PROCID=0", "SLURM_NTASKS=2"})
                             .environment(request({"true"}));
  ASSERT_TRUE(variables.ok());
  for (const std::string expected : {"SLURM_JOB_ID=9", "SLURM_PROCID=5", "SLURM_NTASKS=8",
                                     "SLURM_LOCALID=1", "SLURM_NODEID=1"}) {
    EXPECT_THAT(*variables, Contains(expected));
  }
}

TEST_F(ProgramTest, RunsInTheSubmissionFolderWithUnchangedArguments) {
  const std::string path =
      "./" + std::filesystem::path(script("for word in \"$@\"; do echo \"<$word>\"; done; pwd"))
                 .filename()
                 .string();
  const Launcher subject = launcher();
  const auto pid = subject.launch(request({path, "a b", "", "*"}));
  ASSERT_TRUE(pid.ok()) << pid.status();
  ASSERT_EQ(waitpid(*pid, nullptr, 0), *pid);
  EXPECT_EQ(read_file(subject.folders().log_path({JobId(7), Attempt(2), Rank(5)})),
            "<a b>\n<>\n<*>\n" + folder.string() + "\n");
}

TEST_F(ProgramTest, ReportsProgramsThatCannotStart) {
  const auto problem = [&](std::vector<std::string> command) {
    return launcher().launch(request(std::move(command))).status();
  };
  EXPECT_TRUE(absl::IsNotFound(problem({"nosuchprogram"})));
  EXPECT_THAT(std::string(problem({"nosuchprogram"}).message()),
              HasSubstr("there is no program nosuchprogram in PATH=/usr/bin:/bin"));
  EXPECT_THAT(std::string(problem({"./gone.sh"}).message()), HasSubstr("/gone.sh"));
  std::ofstream(folder / "plain.sh") << "echo";
  EXPECT_TRUE(absl::IsPermissionDenied(problem({"./plain.sh"})));
  EXPECT_THAT(std::string(problem({"plain.sh"}).message()), HasSubstr("would be ./plain.sh"));
  SpawnRank elsewhere = request({"true"});
  auto launch = std::make_shared<Launch>(*elsewhere.launch);
  launch->spec.working_directory = folder / "gone";
  elsewhere.launch = launch;
  const absl::Status status = launcher().launch(elsewhere).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("entering the working directory"));
}

// A listener on some port.
class Listener {
 public:
  explicit Listener(int family) : fd_(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_storage address{};
    address.ss_family = static_cast<sa_family_t>(family);
    socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    usable_ = bind(fd_, reinterpret_cast<sockaddr*>(&address), size) == 0 && listen(fd_, 1) == 0;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(
        reinterpret_cast<sockaddr_in*>(&address)->sin_port);  // the same offset in both structs
  }
  ~Listener() { close(fd_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  bool usable() const { return usable_; }
  int32_t port() const { return port_; }

 private:
  int fd_;
  bool usable_ = false;
  int32_t port_ = 0;
};

TEST_F(ProgramTest, APortThatAnotherProgramHasIsNoPort) {
  EXPECT_TRUE(absl::IsFailedPrecondition(check_program_port(0)));
  for (const int family : {AF_INET, AF_INET6}) {
    const auto listener = std::make_unique<Listener>(family);
    if (!listener->usable()) continue;  // no IPv6 here
    port = listener->port();
    const absl::Status status = launcher().launch(request({"true"}, 0)).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(port)));
    const auto other = launcher().launch(request({"true"}, 1));
    ASSERT_TRUE(other.ok()) << "only rank 0 listens";
    waitpid(*other, nullptr, 0);
  }
}

TEST_F(ProgramTest, WorkersOfAHostKeepDifferentPortsBelowTheKernels) {
  std::filesystem::create_directories(folder / "proc/sys/net/ipv4");
  const auto kernel_begins = [&](int32_t first) {
    std::ofstream(folder / "proc/sys/net/ipv4/ip_local_port_range") << first << "\t60999\n";
  };
  // Few enough blocks to take them all; other workers of this machine may have some.
  kernel_begins(12'000 + 5 * kProgramPorts + 7);
  std::vector<std::unique_ptr<ProgramPorts>> taken;
  std::set<int32_t> firsts;
  for (auto ports = ProgramPorts::reserve(folder / "proc", 3); ports.ok();
       ports = ProgramPorts::reserve(folder / "proc", 3)) {
    const PortRange range = (*ports)->range();
    EXPECT_EQ(range.count, kProgramPorts);
    EXPECT_GE(range.first, 12'000);
    EXPECT_LE(range.first + range.count, 12'000 + 5 * kProgramPorts);
    EXPECT_TRUE(firsts.insert(range.first).second) << range.first << " is given twice";
    taken.push_back(*std::move(ports));
    ASSERT_LE(taken.size(), 5U);
  }
  ASSERT_FALSE(taken.empty());
  EXPECT_TRUE(absl::IsResourceExhausted(ProgramPorts::reserve(folder / "proc", 3).status()));
  taken.pop_back();
  EXPECT_TRUE(ProgramPorts::reserve(folder / "proc", 3).ok()) << "what is let go of is free";
  kernel_begins(1'024);  // no room below
  const auto anywhere = ProgramPorts::reserve(folder / "proc", 3);
  ASSERT_TRUE(anywhere.ok());
  EXPECT_LE((*anywhere)->range().first + kProgramPorts, 32'768);
}

}  // namespace
}  // namespace muster::worker
