#include "trainer_core/report/profile_window.h"

#include <cstdlib>

namespace muster::trainer {
namespace {

// nsys sets this variable for the processes that it starts.
bool is_under_nsys() { return std::getenv("NSYS_PROFILING_SESSION_ID") != nullptr; }

}  // namespace

ProfileWindow::ProfileWindow(const ProfileConfig& config, Backend* backend, int rank,
                             std::ostream& out)
    : config_(config),
      backend_(config.profiler != Profiler::kNone && (rank == 0 || config.all_ranks) ? backend
                                                                                     : nullptr),
      rank_(rank),
      out_(out) {
  if (rank != 0 || config.profiler == Profiler::kNone) return;
  if (backend == nullptr || backend->memory().is_host()) {
    out_ << "profiler=nsys: nothing is recorded: ranks compute on the CPU; use perf" << std::endl;
  } else if (!is_under_nsys()) {
    out_
        << "profiler=nsys: nothing is recorded: nsys does not run this process; start it with nsys "
           "profile --capture-range=cudaProfilerApi --capture-range-end=stop --trace=cuda,nvtx …"
        << std::endl;
  }
}

void ProfileWindow::begin_step() {
  if (backend_ == nullptr || steps_++ != config_.skip_first_steps) return;
  records_ = backend_->record_profile(true);
  if (records_ && rank_ == 0 && is_under_nsys())
    out_ << "profiler=nsys: recording the next " << config_.steps << " steps" << std::endl;
}

void ProfileWindow::end_step() {
  if (records_ && steps_ >= config_.skip_first_steps + config_.steps) stop();
}

void ProfileWindow::stop() {
  if (!records_) return;
  records_ = false;
  (void)backend_->record_profile(false);
}

}  // namespace muster::trainer
