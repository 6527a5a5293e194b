#include "cli/run/run_watch.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include <absl/strings/str_cat.h>

#include "cli/jobs/job_view.h"
#include "cli/run/save_view.h"

namespace muster::cli {
namespace {

// The interval between samples of the figures of ranks that leave.
constexpr Duration kRanksSampled = std::chrono::milliseconds(200);
// The pause after a sample, as a multiple of the time that it took.
constexpr int kPause = 4;

}  // namespace

RunWatch::RunWatch(Client& client, LogPrinter& printer, const v1::JobSpec& spec,
                   WatchOptions options)
    : client_(client),
      printer_(printer),
      event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      options_(std::move(options)),
      notices_(" --coordinator " + options_.address) {
  watching_ = std::thread([this, spec] { submit_and_watch(spec); });
}

RunWatch::~RunWatch() {
  stop();
  for (std::thread* thread : {&watching_, &following_, &cancelling_}) {
    if (thread->joinable()) thread->join();
  }
  close(event_fd_);
}

void RunWatch::stop() { client_.stop(); }

void RunWatch::cancel() {
  set_end_known(false);
  {
    // A periodic save that failed earlier is not the one that is reported at the end.
    const std::lock_guard lock(mutex_);
    reason_not_saved_.clear();
  }
  cancelling_ = std::thread([this, id = job().id()] {
    // Waits for a coordinator that restarts: the ranks save because of this call.
    const absl::Status status = with_reconnection(
        client_, [&] { return client_.cancel_job(id, /*force=*/false).status(); },
        [](const absl::Status&) {});
    if (status.ok()) sample_ranks(id);
    set_end_known(true);
    changed();
    if (status.ok() || absl::IsCancelled(status) || has_ended()) return;
    printer_.notice(absl::StrCat("cannot cancel the job: ", status.message()));
  });
}

void RunWatch::sample_ranks(uint64_t id) {
  for (bool is_last = false; !is_last;) {
    is_last = has_ended();
    const Instant begin = monotonic_now();
    const auto job = client_.get_job(id, Client::Ranks::kAll);
    if (absl::IsCancelled(job.status())) return;
    if (job.ok()) {
      const std::lock_guard lock(mutex_);
      leaving_job_ = *job;
    }
    changed();
    // Each page of ranks occupies the coordinator's loop, so a large job is sampled less often.
    if (!is_last)
      std::this_thread::sleep_for(std::max(kRanksSampled, kPause * (monotonic_now() - begin)));
  }
}

void RunWatch::reset_event() const {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(event_fd_, &count, sizeof(count));
}

void RunWatch::changed() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = write(event_fd_, &one, sizeof(one));
}

void RunWatch::submit_and_watch(const v1::JobSpec& spec) {
  const auto submitted = submit_with_repeats(client_, spec, options_.request_id, kSubmitPatience,
                                             [](const absl::Status&) {});
  absl::Status status = submitted.status();
  if (status.ok()) {
    {
      const std::lock_guard lock(mutex_);
      job_ = *submitted;
    }
    following_ = std::thread([this, id = submitted->id()] { follow(id); });
    status = watch(submitted->id());
  }
  {
    const std::lock_guard lock(mutex_);
    trouble_ = status;
  }
  changed();
}

absl::Status RunWatch::watch(uint64_t id) {
  const auto take = [&](const v1::Job& job) {
    const bool is_waiting = options_.is_own && job.state() == v1::QUEUED && job.attempt() == 0;
    for (const std::string& sentence : notices_.update(job)) {
      if (!is_waiting) printer_.notice(sentence);
    }
    {
      const std::lock_guard lock(mutex_);
      job_ = job;
    }
    changed();
    if (job.incident().id() > newest_incident_)
      options_.on_incident(newest_incident_ = job.incident().id());
    return true;
  };
  // The owner of the coordinator reports its restart.
  return with_reconnection(
      client_, [&] { return client_.watch_job(id, take); }, [](const absl::Status&) {});
}

void RunWatch::follow(uint64_t id) {
  v1::FollowLogsRequest request;
  request.set_job_id(id);
  request.set_rank(-1);
  request.set_follow(true);
  const auto take = [&](const v1::LogChunk& chunk) {
    if (auto reason = cli::reason_not_saved(chunk.data())) {
      const std::lock_guard lock(mutex_);
      reason_not_saved_ = *std::move(reason);
    }
    if (printer_.take(chunk)) return true;
    const std::lock_guard lock(mutex_);
    output_closed_ = true;
    return false;
  };
  const absl::Status ignored = with_reconnection(
      client_, [&] { return client_.follow_logs(request, take); }, [](const absl::Status&) {});
  printer_.finish();
  {
    const std::lock_guard lock(mutex_);
    logs_complete_ = true;
  }
  changed();
}

v1::Job RunWatch::job() const {
  const std::lock_guard lock(mutex_);
  return job_;
}

v1::Job RunWatch::leaving_job() const {
  const std::lock_guard lock(mutex_);
  return leaving_job_;
}

void RunWatch::set_end_known(bool is_known) {
  const std::lock_guard lock(mutex_);
  end_known_ = is_known;
}

bool RunWatch::end_is_known() const {
  const std::lock_guard lock(mutex_);
  return end_known_;
}

std::string RunWatch::reason_not_saved() const {
  const std::lock_guard lock(mutex_);
  return reason_not_saved_;
}

bool RunWatch::has_ended() const {
  const std::lock_guard lock(mutex_);
  return is_terminal_state(job_.state());
}

bool RunWatch::logs_are_complete() const {
  const std::lock_guard lock(mutex_);
  return logs_complete_;
}

bool RunWatch::output_is_closed() const {
  const std::lock_guard lock(mutex_);
  return output_closed_;
}

absl::Status RunWatch::trouble() const {
  const std::lock_guard lock(mutex_);
  return is_terminal_state(job_.state()) ? absl::OkStatus() : trouble_;
}

}  // namespace muster::cli
