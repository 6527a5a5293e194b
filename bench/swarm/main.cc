// Runs many simulated workers in one process, for bench/swarm.py.
//
//   swarm --coordinator HOST:PORT --workers N [--first I] [--slots 8] [--tls-ca FILE]
//
// Reads commands from standard input, one per line, and ends with the input:
//   report   prints the record of all workers since the last report as one line of JSON
//   kill     reports the death of one rank of the first worker that has one
//   lose     begins another incarnation of the first worker that has ranks, without these ranks
//   queue COUNT NODES   submits COUNT jobs of NODES nodes, and prints how many were accepted
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iostream>
#include <queue>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/strings/str_cat.h>
#include <absl/synchronization/mutex.h>

#include "bench/swarm/sim_worker.h"
#include "daemon/process.h"

namespace muster::bench {
namespace {

// One heartbeat in this many is followed by a probe of the round trip.
constexpr uint64_t kProbeEvery = 20;
constexpr int32_t kSlotsDefault = 8;
constexpr Duration kSpread = std::chrono::seconds(1);

struct Beat {
  Instant due;
  size_t worker;

  bool operator>(const Beat& other) const { return due > other.due; }
};

// Calls `visit(worker, count)` for each worker at the time that its last call returned, for ever.
// The first calls are spread over kSpread.
template <class Visit>
void visit_forever(size_t workers, Visit visit) {
  std::priority_queue<Beat, std::vector<Beat>, std::greater<>> beats;
  const Instant start = monotonic_now();
  for (size_t i = 0; i < workers; ++i)
    beats.push({start + kSpread * static_cast<int64_t>(i) / static_cast<int64_t>(workers), i});
  uint64_t count = 0;
  while (true) {
    const Beat next = beats.top();
    beats.pop();
    const Instant now = monotonic_now();
    if (next.due > now) std::this_thread::sleep_for(next.due - now);
    beats.push({visit(next.worker, std::max(next.due, now), ++count), next.worker});
  }
}

// Submits jobs one after the other. Returns the number of accepted jobs.
int64_t fill_queue(const SimWorkerOptions& options, int64_t count, int32_t nodes) {
  const auto stub = v1::Muster::NewStub(grpc::CreateChannel(
      options.coordinator,
      options.credentials != nullptr ? options.credentials : grpc::InsecureChannelCredentials()));
  int64_t accepted = 0;
  for (int64_t i = 0; i < count; ++i) {
    v1::SubmitJobRequest request;
    v1::JobSpec& spec = *request.mutable_spec();
    spec.set_name(absl::StrCat("waiting-", i));
    spec.set_nodes(nodes);
    spec.set_ranks_per_node(options.slots);
    spec.set_output_directory(absl::StrCat("/out/waiting-", i));
    spec.set_working_directory("/");
    spec.add_command("true");
    v1::SubmitJobResponse response;
    grpc::ClientContext context;
    accepted += stub->SubmitJob(&context, request, &response).ok() ? 1 : 0;
  }
  return accepted;
}

void obey(const std::string& line, const SimWorkerOptions& options,
          std::vector<std::unique_ptr<SimWorker>>& workers, SwarmRecord& record) {
  std::istringstream words(line);
  std::string command;
  words >> command;
  if (command == "report") {
    std::cout << record.take() << std::endl;
  } else if (command == "kill") {
    for (const auto& worker : workers)
      if (worker->kill_a_rank()) break;
    std::cout << monotonic_now().time_since_epoch().count() << std::endl;
  } else if (command == "lose") {
    const Instant begin = monotonic_now();
    for (const auto& worker : workers)
      if (worker->lose_node()) break;
    std::cout << begin.time_since_epoch().count() << std::endl;
  } else if (command == "queue") {
    int64_t count = 0;
    int32_t nodes = 0;
    words >> count >> nodes;
    std::cout << fill_queue(options, count, nodes) << std::endl;
  }
}

std::string contents_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

int run(int argc, char** argv) {
  CLI::App app("Simulated workers on real streams.", "swarm");
  SimWorkerOptions options;
  size_t count = 1;
  size_t first = 0;
  std::string ca;
  options.slots = kSlotsDefault;
  app.add_option("--coordinator", options.coordinator, "Address: host:port")->required();
  app.add_option("--workers", count, "Number of workers; 0: none")->required();
  app.add_option("--first", first, "Number of the first worker, in its name");
  app.add_option("--slots", options.slots, "Slots of each worker");
  app.add_option("--tls-ca", ca, "Connect by TLS, with the CA in this file");
  CLI11_PARSE(app, argc, argv);
  daemon::raise_open_files_limit();
  if (!ca.empty()) options.credentials = grpc::SslCredentials({contents_of(ca), "", ""});
  // Never destroyed, because gRPC's callbacks use them until the process ends.
  auto* record = new SwarmRecord;
  auto* workers = new std::vector<std::unique_ptr<SimWorker>>;
  for (size_t i = 0; i < count; ++i) {
    SimWorkerOptions own = options;
    own.name = absl::StrCat("w", first + i);
    workers->push_back(std::make_unique<SimWorker>(std::move(own), *record));
  }
  // Opening a channel takes up to a millisecond, which must not delay heartbeats. The threads end
  // with the process.
  if (count > 0) {
    (void)new std::thread([workers] {
      visit_forever(workers->size(), [&](size_t i, Instant now, uint64_t) {
        return (*workers)[i]->connect_if_due(now);
      });
    });
    (void)new std::thread([workers] {
      visit_forever(workers->size(), [&](size_t i, Instant now, uint64_t calls) {
        return (*workers)[i]->beat(now, calls % kProbeEvery == 0);
      });
    });
  }
  std::string command;
  while (std::getline(std::cin, command)) obey(command, options, *workers, *record);
  std::cout.flush();
  _exit(0);
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) {
#ifdef NDEBUG
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);  // as in the daemons
#endif
  return muster::bench::run(argc, argv);
}
