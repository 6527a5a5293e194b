// muster-trainer with faults on order (fault_orders.h); a worker runs it by --trainer. After each
// step all ranks make one more collective, which a fault can skip.
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <thread>
#include <vector>

#include "bench/faults/fault_orders.h"
#include "bench/faults/faults.h"
#include "trainer_core/commands.h"
#include "trainer_core/rank/signal_watcher.h"
#include "trainer_core/startup/uncaught.h"

namespace {

using namespace muster;  // NOLINT(google-build-using-namespace): this program's own parts and the trainer's

double seconds_from(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::atof(text);
}

class FaultyRank {
 public:
  void after_step(trainer::ProcessGroups& groups, ProgressWriter& page,
                  const trainer::StepRecord& /*record*/) {
    if (orders_ == nullptr) {
      const char* folder = std::getenv("FAULT_ORDERS");
      orders_ =
          std::make_unique<faults::FaultOrders>(folder == nullptr ? "" : folder, groups.rank());
    }
    auto collective = faults::Collective::kAsAll;
    if (const auto fault = orders_->take()) {
      orders_->record_time(*fault);
      collective = faults::inject(*fault, page, slow_factor_);
    }
    // This comes first, while all ranks are present, so that the wait for a slow rank happens in
    // the next step's collectives.
    meet(groups.world(), collective);
    std::this_thread::sleep_for(std::chrono::duration<double>(pace_ * slow_factor_));
  }

 private:
  static void meet(trainer::ProcessGroup& group, faults::Collective collective) {
    std::array<float, 2> sums{1, 1};
    absl::Status status;
    if (collective == faults::Collective::kAsAll) {
      status = group.all_reduce(std::span<float>(sums), "after step");
    } else if (collective == faults::Collective::kAnother) {
      status = group.barrier("another one");
    }
    if (!status.ok()) {
      std::cerr << "rank " << group.rank() << ": " << status << std::endl;
      _exit(to_int(ExitCode::kPeerLost));
    }
  }

  std::unique_ptr<faults::FaultOrders> orders_;
  double slow_factor_ = 1;
  // Seconds that a step takes besides its computation, as if it ran on a device: eight ranks on two
  // cores would only measure the kernel's scheduler.
  double pace_ = seconds_from("FAULT_PACE");
};

void end_process(ExitCode code) { _exit(to_int(code)); }

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  trainer::end_at_uncaught_exceptions("faulty_trainer");
  if (argc < 2 || std::string_view(argv[1]) != "train") {
    std::cerr << "faulty_trainer: only `train` is done here\n";
    return to_int(ExitCode::kBadInput);
  }
  const std::vector<std::string_view> arguments(argv + 2, argv + argc);
  trainer::StopSignals signals;
  const trainer::SignalWatcher watcher(signals, end_process);
  FaultyRank rank;
  return to_int(trainer::train_command(
      arguments, signals,
      [&rank](trainer::ProcessGroups& groups, ProgressWriter& page,
              const trainer::StepRecord& record) { rank.after_step(groups, page, record); }));
}
