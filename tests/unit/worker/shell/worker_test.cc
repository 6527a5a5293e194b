// The real muster-worker: it registers, runs ranks, reports, loses its coordinator and leaves.
#include <gmock/gmock.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/unit/worker/shell/worker_fixture.h"

namespace muster::worker {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST_F(WorkerTest, RegistersStartsReportsAndLeaves) {
  coordinator.start();
  start_worker(script("echo rank $RANK of $WORLD_SIZE; exit $RANK"));
  const auto registration = coordinator.next_register();
  ASSERT_TRUE(registration) << worker_log();
  EXPECT_EQ(registration->worker(), "node0");
  EXPECT_EQ(registration->slots(), 4);
  EXPECT_NE(registration->incarnation(), 0U);
  EXPECT_THAT(registration->rendezvous_address(), HasSubstr("127.0.0.1:"));
  EXPECT_EQ(registration->running_size(), 0);

  start_ranks(1, 3);
  for (int i = 0; i < 3; ++i) {
    const auto exited = coordinator.next_exit();
    ASSERT_TRUE(exited) << worker_log();
    EXPECT_EQ(exited->exit_code(), exited->rank());
    EXPECT_EQ(exited->detail(), absl::StrCat("rank ", exited->rank(), " of 3"));
    ASSERT_EQ(exited->evidence_size(), 1) << "what it left behind";
    EXPECT_EQ(exited->evidence(0).rank(), exited->rank());
    ASSERT_EQ(exited->evidence(0).last_lines_size(), 1);
    EXPECT_EQ(coordinator.log(exited->rank()), absl::StrCat("rank ", exited->rank(), " of 3\n"))
        << "the log is complete before the report";
    coordinator.acknowledge(exited->report_id());
  }
  kill(pid_, SIGTERM);
  EXPECT_EQ(wait_for_worker(), 0) << worker_log();
}

TEST_F(WorkerTest, SendsHeartbeatsAndServesItsPages) {
  begin(script("sleep 1000"));
  start_ranks(1, 2);
  const auto heartbeat = next_with_ranks(2);
  ASSERT_TRUE(heartbeat) << worker_log();
  EXPECT_GT(heartbeat->heartbeat().ranks(0).pid(), 0);
  EXPECT_TRUE(coordinator.next([](const v1::WorkerMessage& m) {
    return m.has_heartbeat() && m.heartbeat().ranks_size() == 0;
  }));
  EXPECT_THAT(get("/readyz"), HasSubstr("200 OK"));
  EXPECT_THAT(get("/healthz"), HasSubstr("200 OK"));
  const std::string metrics = get("/metrics");
  EXPECT_THAT(metrics, HasSubstr("\nmuster_worker_ranks_running 2"));
  EXPECT_THAT(metrics, HasSubstr("muster_rank_progress_age_seconds{"));
  coordinator.stop();
  EXPECT_TRUE(eventually([&] { return get("/readyz").find("run on") != std::string::npos; }));
  EXPECT_THAT(get("/readyz"), HasSubstr("200 OK"));
}

TEST_F(WorkerTest, WithoutRanksItIsReadyWhileItHasACoordinator) {
  begin(script("sleep 1000"));
  EXPECT_TRUE(eventually([&] { return get("/readyz").find("200 OK") != std::string::npos; }));
  coordinator.stop();
  EXPECT_TRUE(eventually([&] { return get("/readyz").find(" 503 ") != std::string::npos; }));
  EXPECT_THAT(get("/healthz"), HasSubstr("200 OK"));
}

TEST_F(WorkerTest, AKilledRankIsReportedWithItsSignal) {
  begin(script("echo about to die; kill -9 $$"));
  start_ranks(1, 1);
  const auto exited = coordinator.next_exit();
  ASSERT_TRUE(exited) << worker_log();
  EXPECT_EQ(exited->signal(), SIGKILL);
  EXPECT_EQ(exited->exit_code(), -1);
  EXPECT_EQ(exited->last_step(), -1);
  EXPECT_EQ(exited->detail(), "") << "the last line of the output is not the reason of a SIGKILL";
}

TEST_F(WorkerTest, AProgramThatCannotBeRunIsReportedWithTheReason) {
  const std::string trainer = script("exit 0");
  std::ofstream(trainer) << "#!/nonexistent/interpreter\n";
  begin(trainer);
  start_ranks(1, 1);
  const auto exited = coordinator.next_exit();
  ASSERT_TRUE(exited) << worker_log();
  EXPECT_THAT(exited->detail(), HasSubstr("could not be started"));
  EXPECT_THAT(exited->detail(),
              HasSubstr("the interpreter /nonexistent/interpreter, which does not exist"));
}

TEST_F(WorkerTest, ReportsAndLogsAreRepeatedToTheNextCoordinator) {
  coordinator.acknowledge_logs(false);
  begin(script("echo first; while [ ! -e ../../../go ]; do sleep 0.02; done; echo last; exit 4"));
  start_ranks(1, 1);
  ASSERT_TRUE(eventually([&] { return coordinator.log(0) == "first\n"; })) << worker_log();
  coordinator.stop();
  coordinator.lose_log(0, 0);
  std::ofstream(folder / "go") << "";
  ASSERT_TRUE(eventually([&] { return worker_log().find("exit code 4") != std::string::npos; }));
  coordinator.set_epoch(2);
  coordinator.start();
  const auto registration = coordinator.next_register();
  ASSERT_TRUE(registration) << worker_log();
  ASSERT_EQ(registration->running_size(), 1);
  auto exited = coordinator.next_exit();
  ASSERT_TRUE(exited) << worker_log();
  EXPECT_EQ(exited->exit_code(), 4);
  EXPECT_EQ(coordinator.log(0), "first\nlast\n");

  coordinator.stop();  // without an acknowledgement
  coordinator.start();
  const uint64_t report_id = exited->report_id();
  exited = coordinator.next_exit();
  ASSERT_TRUE(exited) << worker_log();
  EXPECT_EQ(exited->report_id(), report_id);
}

TEST_F(WorkerTest, RanksDoNotNoticeThatTheCoordinatorIsAway) {
  begin(
      script("trap 'echo signalled; exit 9' TERM INT HUP; while [ ! -e ../../../go ]; do sleep "
             "0.02; done"));
  start_ranks(1, 2);
  ASSERT_TRUE(next_with_ranks(2));
  coordinator.stop();
  // The worker has noticed: so could a rank.
  ASSERT_TRUE(
      eventually([&] { return worker_log().find("lost the coordinator") != std::string::npos; }));
  coordinator.start();
  const auto registration = coordinator.next_register();
  ASSERT_TRUE(registration);
  EXPECT_EQ(registration->running_size(), 2);
  EXPECT_GT(registration->running(0).pid(), 0);
  std::ofstream(folder / "go") << "";
  for (int i = 0; i < 2; ++i) EXPECT_EQ(coordinator.next_exit()->exit_code(), 0);
}

TEST_F(WorkerTest, StoppingIsPoliteAndThenIsNot) {
  begin(script(
      "if [ $RANK = 0 ]; then trap 'echo saved; exit 75' TERM; else trap '' TERM; fi; echo up; "
      "while :; do sleep 0.02; done"));
  start_ranks(1, 2);
  ASSERT_TRUE(
      eventually([&] { return coordinator.log(0) == "up\n" && coordinator.log(1) == "up\n"; }));
  stop_ranks(1, 400);
  const auto polite = coordinator.next_exit();
  const auto stubborn = coordinator.next_exit();
  ASSERT_TRUE(polite && stubborn) << worker_log();
  EXPECT_EQ(polite->rank(), 0);
  EXPECT_EQ(polite->exit_code(), 75);
  EXPECT_EQ(polite->detail(), "saved");
  EXPECT_EQ(stubborn->signal(), SIGKILL);
}

// Jobs of one rank each that share the node: together they use its cores, not each of them.
TEST_F(WorkerTest, CoresAreDividedBySlots) {
  cpu_set_t set;
  CPU_ZERO(&set);
  ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  const int cores = CPU_COUNT(&set);
  coordinator.start();
  for (const int slots : {1, cores, 3 * cores}) {
    start_worker(script("echo $OMP_NUM_THREADS"), {"--slots", absl::StrCat(slots)});
    ASSERT_TRUE(coordinator.next_register()) << worker_log();
    start_ranks(1, 1);
    const auto exited = coordinator.next_exit();
    ASSERT_TRUE(exited) << worker_log();
    EXPECT_EQ(exited->detail(), absl::StrCat(slots == 1 ? cores : 1)) << slots << " slots";
    coordinator.acknowledge(exited->report_id());
    kill(pid_, SIGTERM);
    EXPECT_EQ(wait_for_worker(), 0);
  }
}

TEST_F(WorkerTest, ANewAttemptRunsOnceTheOldOneIsGone) {
  begin(script("echo attempt $MUSTER_ATTEMPT; [ $MUSTER_ATTEMPT = 2 ] || sleep 1000"));
  start_ranks(1, 1);
  ASSERT_TRUE(eventually([&] { return coordinator.log(0) == "attempt 1\n"; }));
  start_ranks(2, 1);
  const auto old = coordinator.next_exit();
  ASSERT_TRUE(old);
  EXPECT_EQ(old->attempt(), 1U);
  EXPECT_EQ(old->signal(), SIGKILL);
  const auto fresh = coordinator.next_exit();
  ASSERT_TRUE(fresh);
  EXPECT_EQ(fresh->attempt(), 2U);
  EXPECT_EQ(fresh->exit_code(), 0);
}

TEST_F(WorkerTest, ManyLinesArriveCompleteAndBeforeTheReport) {
  begin(
      script("i=0; while [ $i -lt 20000 ]; do echo line $i of a log that is longer than one chunk; "
             "i=$((i+1)); done"));
  start_ranks(1, 2);
  for (int i = 0; i < 2; ++i) {
    const auto exited = coordinator.next_exit();
    ASSERT_TRUE(exited) << worker_log();
    const std::string log = coordinator.log(exited->rank());
    EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 20'000);
    EXPECT_THAT(log, EndsWith("line 19999 of a log that is longer than one chunk\n"));
  }
}

// select() does not support high descriptors: only the worker itself needs many.
TEST_F(WorkerTest, RaisesItsOwnDescriptorLimitButNotItsRanks) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max <= 200) GTEST_SKIP() << "the hard limit is " << limit.rlim_max;
  coordinator.start();
  start_worker(script("ulimit -Sn"), {}, 200);
  ASSERT_TRUE(coordinator.next_register()) << worker_log();
  start_ranks(1, 1);
  const auto exited = coordinator.next_exit();
  ASSERT_TRUE(exited) << worker_log();
  EXPECT_EQ(exited->detail(), "200");
  rlimit own{};
  ASSERT_EQ(prlimit(pid_, RLIMIT_NOFILE, nullptr, &own), 0);
  EXPECT_EQ(own.rlim_cur, limit.rlim_max);
}

TEST_F(WorkerTest, ReportsItsPorts) {
  begin("/bin/true");
  const auto ports = nlohmann::json::parse(read_file(folder / "ports"));
  EXPECT_THAT(
      worker_log(),
      HasSubstr(absl::StrCat("serves HTTP on port ", ports["http_port"].get<int>(),
                             " and the rendezvous on port ", ports["rendezvous_port"].get<int>())));
}

class WorkerLeaves : public WorkerTest, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Signals, WorkerLeaves, ::testing::Values(SIGTERM, SIGINT, SIGHUP));

TEST_P(WorkerLeaves, LettingRanksCheckpointAndReportingThem) {
  begin(script("trap 'exit 75' TERM; echo up; while :; do sleep 0.02; done"));
  start_ranks(1, 2);
  ASSERT_TRUE(
      eventually([&] { return coordinator.log(0) == "up\n" && coordinator.log(1) == "up\n"; }));
  kill(pid_, GetParam());
  for (int i = 0; i < 2; ++i) {
    const auto exited = coordinator.next_exit();
    ASSERT_TRUE(exited) << worker_log();
    EXPECT_EQ(exited->exit_code(), 75);
    coordinator.acknowledge(exited->report_id());
  }
  EXPECT_EQ(wait_for_worker(), 0);
}

TEST_F(WorkerTest, RanksDieWithAKilledWorker) {
  begin(script("echo $$; exec sleep 1000"));
  start_ranks(1, 1);
  ASSERT_TRUE(eventually([&] { return coordinator.log(0).ends_with("\n"); }));
  const pid_t rank = std::stoi(coordinator.log(0));
  kill(pid_, SIGKILL);
  wait_for_worker();
  EXPECT_TRUE(eventually([&] {
    // If no process reaps it, it stays a zombie, which is dead, too.
    const std::string state = read_file(absl::StrCat("/proc/", rank, "/stat"));
    return state.empty() || state.find(") Z ") != std::string::npos;
  }));
}

TEST_F(WorkerTest, ARefusalIsLoggedAndEndsWithExitCodeTwo) {
  for (const auto code :
       {grpc::StatusCode::FAILED_PRECONDITION, grpc::StatusCode::ALREADY_EXISTS}) {
    coordinator.refuse_with(grpc::Status(code, "version 9.9 is not 0.1"));
    coordinator.start();
    start_worker("/bin/true");
    EXPECT_EQ(wait_for_worker(), 2);
    EXPECT_THAT(worker_log(), HasSubstr("version 9.9 is not 0.1"));
    coordinator.stop();
  }
}

TEST_F(WorkerTest, RanksSurviveACoordinatorThatRefusesTheirWorker) {
  begin(script(
      "trap 'echo signalled; exit 9' TERM; while [ ! -e ../../../go ]; do sleep 0.02; done"));
  start_ranks(1, 1);
  ASSERT_TRUE(
      coordinator.next([](const v1::WorkerMessage& m) { return m.heartbeat().ranks_size() == 1; }));
  for (const auto code : {grpc::StatusCode::FAILED_PRECONDITION, grpc::StatusCode::UNIMPLEMENTED}) {
    coordinator.stop();
    const std::string reason = absl::StrCat("refused with ", code);
    coordinator.refuse_with(grpc::Status(code, reason));
    coordinator.start();
    ASSERT_TRUE(eventually([&] {
      return worker_log().find("ranks that continue: 1): " + reason) != std::string::npos;
    })) << worker_log();
  }
  coordinator.stop();
  coordinator.refuse_with(std::nullopt);
  coordinator.start();
  const auto registration = coordinator.next_register();
  ASSERT_TRUE(registration) << worker_log();
  EXPECT_EQ(registration->running_size(), 1);
  std::ofstream(folder / "go") << "";
  EXPECT_EQ(coordinator.next_exit()->exit_code(), 0);
}

TEST_F(WorkerTest, GarbageFromTheCoordinatorIsSurvived) {
  begin(script("echo fine"));
  v1::CoordinatorMessage message;
  coordinator.send(message);
  message.mutable_start_ranks();
  coordinator.send(message);
  message.mutable_start_ranks()->set_job_id(5);
  message.mutable_start_ranks()->set_attempt(1);
  message.mutable_start_ranks()->add_ranks()->set_rank(-5);
  coordinator.send(message);
  message.mutable_stop_ranks()->set_grace_ms(-1);
  coordinator.send(message);
  message.mutable_log_ack()->set_offset(~0ULL);
  coordinator.send(message);
  message.mutable_registered()->set_heartbeat_interval_ms(-1);
  coordinator.send(message);
  start_ranks(1, 1);
  const auto exited =
      coordinator.next([](const v1::WorkerMessage& m) { return m.rank_exited().job_id() == 1; });
  ASSERT_TRUE(exited) << worker_log();
  EXPECT_EQ(exited->rank_exited().exit_code(), 0);
}

TEST_F(WorkerTest, WrongOptionsAreClearErrorsAndExitCodeTwo) {
  coordinator.start();
  std::ofstream(folder / "file") << "";
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--slots", "0"}, "--slots: '0' is not a whole number from 1 to 1024"},
      {{"--slots", "a"}, "--slots: 'a' is not a whole number from 1 to 1024"},
      {{"--slots", "5000"}, "--slots: '5000' is not a whole number from 1 to 1024"},
      {{"--leave-exit-code", "256"}, "'256' is not a whole number from 0 to 125"},
      {{"--coordinator", "127.0.0.1:99999"}, "port '99999' is not a number from 0 to 65535"},
      {{"--name", "a b"}, "--name=a b"},
      {{"--network-devices", "eth0,*_0"}, "--network-devices=*_0: must be the name of a device"},
      {{"--coordinator", "nowhere"}, "--coordinator=nowhere"},
      {{"--rendezvous", "0.0.0.0:0"}, "--trusted-network"},
      {{"--http", "0.0.0.0:0"}, "--trusted-network"},
      {{"--coordinator", "10.0.0.1:7070"}, "the connection has no transport security"},
      {{"--coordinator", "10.0.0.1:7070", "--trusted-network"}, "give --tls-ca"},
      {{"--token-file", folder / "file"}, "--token-file needs --tls-ca"},
      {{"--run-as-owner"}, "--run-as-owner needs --tls-ca"},
      {{"--run-as-owner", "--insecure"}, "--run-as-owner needs --tls-ca"},
      {{"--tls-ca", folder / "file"}, "there is no certificate in it"},
      {{"--http", absl::StrCat("127.0.0.1:", coordinator.port())},
       absl::StrCat("--http=127.0.0.1:", coordinator.port(), ": port ", coordinator.port())},
      {{"--work-dir", folder / "file" / "x"}, "--work-dir"},
      {{"--trainer", folder / "absent"}, "--trainer"},
      {{"--log-level", "loud"}, "--log-level"},
      {{"--slosts", "4"}, "muster-worker: unknown option --slosts; did you mean --slots?"},
  };
  for (const auto& [options, printed] : cases) {
    start_worker("/bin/true", options);
    EXPECT_EQ(wait_for_worker(), 2) << printed;
    EXPECT_THAT(worker_log(), HasSubstr(printed));
    EXPECT_FALSE(std::filesystem::exists(folder / "ports"));
  }
}

TEST_F(WorkerTest, AWorkFolderHasOneWorker) {
  begin("/bin/true");
  const pid_t first = pid_;
  start_worker("/bin/true");
  EXPECT_EQ(wait_for_worker(), 2);
  EXPECT_THAT(worker_log(), HasSubstr(absl::StrCat("in use by another worker, pid ", first)));
  EXPECT_THAT(worker_log(), HasSubstr("--work-dir=" + (folder / "work").string()));
  pid_ = first;
}

TEST_F(WorkerTest, HelpTeachesByExample) {
  coordinator.start();
  start_worker("/bin/true", {"--help"});
  EXPECT_EQ(wait_for_worker(), 0);
  EXPECT_THAT(worker_log(), HasSubstr("muster-worker --coordinator 127.0.0.1:7070 --slots 4"));
  EXPECT_THAT(worker_log(), HasSubstr("cores divided by --slots"));
}

}  // namespace
}  // namespace muster::worker
