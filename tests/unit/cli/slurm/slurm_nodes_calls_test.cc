// SlurmNodes against a coordinator that the test implements, and with a `scontrol` that the test
// writes: the calls for reservations and states of nodes.
#include <gmock/gmock.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "cli/slurm/slurm_nodes.h"
#include "tests/unit/temp_folder.h"

namespace muster::cli {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kMinuteNs = int64_t{60} * 1'000'000'000;

class NodesCoordinator : public v1::Muster::Service {
 public:
  explicit NodesCoordinator(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      workers_[name].set_name(name);
      workers_[name].set_connected(true);
    }
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~NodesCoordinator() override { server_->Shutdown(std::chrono::system_clock::now()); }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  grpc::Status ListWorkers(grpc::ServerContext*, const v1::ListWorkersRequest*,
                           v1::ListWorkersResponse* response) override {
    const std::lock_guard lock(mutex_);
    ++lists_;
    for (const auto& [name, worker] : workers_) *response->add_workers() = worker;
    return grpc::Status::OK;
  }
  grpc::Status ExcludeWorker(grpc::ServerContext*, const v1::ExcludeWorkerRequest* request,
                             v1::ExcludeWorkerResponse*) override {
    const std::lock_guard lock(mutex_);
    if (refusals_ > 0) {
      --refusals_;
      return {grpc::StatusCode::UNAVAILABLE, "restarting"};
    }
    excluded_.push_back(*request);
    v1::NodeExclusion& exclusion = *workers_.at(request->worker()).mutable_exclusion();
    exclusion.set_reason(request->reason());
    exclusion.set_drain_unix_ns(request->drain_unix_ns());
    return grpc::Status::OK;
  }
  grpc::Status AdmitWorker(grpc::ServerContext*, const v1::AdmitWorkerRequest* request,
                           v1::AdmitWorkerResponse*) override {
    const std::lock_guard lock(mutex_);
    admitted_.push_back(request->worker());
    workers_.at(request->worker()).clear_exclusion();
    return grpc::Status::OK;
  }

  void refuse(int calls) {
    const std::lock_guard lock(mutex_);
    refusals_ = calls;
  }
  int refusals_left() {
    const std::lock_guard lock(mutex_);
    return refusals_;
  }
  int lists() {
    const std::lock_guard lock(mutex_);
    return lists_;
  }
  void exclude_by_hand(const std::string& name) {
    const std::lock_guard lock(mutex_);
    workers_.at(name).mutable_exclusion()->set_reason("fan");
  }
  std::vector<v1::ExcludeWorkerRequest> excluded() {
    const std::lock_guard lock(mutex_);
    return excluded_;
  }
  std::vector<std::string> admitted() {
    const std::lock_guard lock(mutex_);
    return admitted_;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, v1::WorkerInfo> workers_;
  std::vector<v1::ExcludeWorkerRequest> excluded_;
  std::vector<std::string> admitted_;
  int refusals_ = 0;
  int lists_ = 0;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class SlurmNodesCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = temp_.path();
    const std::string script = (folder_ / "scontrol").string();
    write_file(script,
               absl::StrCat("#!/bin/sh\ncase \"$2\" in\n  reservation) cat ", folder_.string(),
                            "/reservations;;\n  node) cat ", folder_.string(),
                            "/nodes;;\n  hostnames) echo node1; echo node2;;\n", "esac\n"));
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    old_path_ = getenv("PATH");
    setenv("PATH", absl::StrCat(folder_.string(), ":", old_path_).c_str(), 1);
    set("reservations", "No reservations in the system\n");
    set("nodes", nodes("ALLOCATED"));
  }
  void TearDown() override { setenv("PATH", old_path_.c_str(), 1); }

  // A rename, because a command may read the file at any time.
  void set(const std::string& name, const std::string& text) {
    write_file(folder_ / (name + ".new"), text);
    std::filesystem::rename(folder_ / (name + ".new"), folder_ / name);
  }
  static std::string nodes(const std::string& state_of_node3) {
    std::string text;
    for (const char* name : {"node1", "node2"})
      absl::StrAppend(&text, "NodeName=", name, " State=ALLOCATED\n");
    return absl::StrCat(text, "NodeName=node3 State=", state_of_node3, "\n");
  }
  static std::string reservation(int64_t start_unix_ns) {
    return absl::StrCat("ReservationName=kernel StartTime=",
                        absl::FormatTime("%Y-%m-%dT%H:%M:%S", absl::FromUnixNanos(start_unix_ns),
                                         absl::LocalTimeZone()),
                        " Nodes=node[1-2] Flags=MAINT,SPEC_NODES State=INACTIVE\n");
  }
  static int64_t in_minutes(int64_t minutes) {
    constexpr int64_t kSecondNs = 1'000'000'000;
    return (wall_clock_unix_ns() + minutes * kMinuteNs) / kSecondNs * kSecondNs;
  }
  static SlurmNodes::Options options() {
    SlurmNodes::Options options;
    options.job.id = "12";
    options.job.node_names = {"node1", "node2", "node3"};
    options.fewest = 1;
    options.nodes_period = options.maintenance_period = std::chrono::milliseconds(20);
    return options;
  }
  static bool becomes_true(const std::function<bool()>& holds) {
    const Instant give_up = monotonic_now() + std::chrono::seconds(60);
    bool does_hold = holds();
    for (; !does_hold && monotonic_now() < give_up; does_hold = holds())
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return does_hold;
  }

  static bool reports(SlurmNodes& slurm, const std::string& event) {
    return becomes_true([&] {
      const std::vector<std::string> events = slurm.take_events();
      return std::ranges::find(events, event) != events.end();
    });
  }

  const TempFolder temp_;
  std::filesystem::path folder_;
  std::string old_path_;
};

TEST_F(SlurmNodesCalls, AReservationDrainsTheNodesOfTheJobUntilItIsMovedOrDeleted) {
  NodesCoordinator coordinator({"node1", "node3"});  // node2 has no worker yet
  coordinator.refuse(2);
  const int64_t start = in_minutes(30), later = in_minutes(40);
  set("reservations", reservation(start));
  SlurmNodes slurm(options(), {.address = coordinator.address()});
  ASSERT_TRUE(becomes_true([&] { return coordinator.excluded().size() == 1; }));
  EXPECT_EQ(coordinator.refusals_left(), 0) << "a refused request is repeated";
  const v1::ExcludeWorkerRequest first = coordinator.excluded()[0];
  EXPECT_EQ(first.worker(), "node1");
  EXPECT_EQ(first.reason(), "Slurm: reservation kernel");
  EXPECT_EQ(first.drain_unix_ns(), start);
  EXPECT_EQ(first.seconds(), 0);
  EXPECT_FALSE(first.evacuate()) << "jobs leave shortly before the drain";
  set("reservations", reservation(later));
  ASSERT_TRUE(becomes_true([&] { return coordinator.excluded().size() == 2; }));
  EXPECT_EQ(coordinator.excluded()[1].drain_unix_ns(), later);
  set("reservations", "No reservations in the system\n");
  ASSERT_TRUE(becomes_true([&] { return !coordinator.admitted().empty(); }));
  EXPECT_THAT(coordinator.admitted(), ElementsAre("node1"));
  EXPECT_TRUE(reports(slurm, "node1 has no planned maintenance in Slurm any more"));
}

TEST_F(SlurmNodesCalls, AnExclusionByHandOutlivesTheReservation) {
  NodesCoordinator coordinator({"node1", "node2", "node3"});
  set("reservations", reservation(in_minutes(30)));
  SlurmNodes slurm(options(), {.address = coordinator.address()});
  ASSERT_TRUE(becomes_true([&] { return coordinator.excluded().size() == 2; }));
  coordinator.exclude_by_hand("node2");
  // The exclusion is known before the reservation ends.
  const int lists = coordinator.lists();
  ASSERT_TRUE(becomes_true([&] { return coordinator.lists() >= lists + 2; }));
  set("reservations", "No reservations in the system\n");
  ASSERT_TRUE(reports(slurm, "node2 has no planned maintenance in Slurm any more"));
  EXPECT_THAT(coordinator.admitted(), ElementsAre("node1"));
}

TEST_F(SlurmNodesCalls, AFarReservationChangesNothingAndADrainedNodeIsEvacuated) {
  NodesCoordinator coordinator({"node1", "node2", "node3"});
  set("reservations", reservation(in_minutes(3 * 24 * 60)));
  set("nodes", nodes("ALLOCATED+DRAIN"));
  SlurmNodes slurm(options(), {.address = coordinator.address()});
  ASSERT_TRUE(becomes_true([&] { return !coordinator.excluded().empty(); }));
  set("nodes", nodes("ALLOCATED"));
  ASSERT_TRUE(becomes_true([&] { return !coordinator.admitted().empty(); }));
  ASSERT_EQ(coordinator.excluded().size(), 1U) << "the reservation is days ahead";
  EXPECT_EQ(coordinator.excluded()[0].worker(), "node3");
  EXPECT_TRUE(coordinator.excluded()[0].evacuate());
  EXPECT_EQ(coordinator.excluded()[0].drain_unix_ns(), 0);
  EXPECT_THAT(coordinator.admitted(), ElementsAre("node3"));
}

}  // namespace
}  // namespace muster::cli
