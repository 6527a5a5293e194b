// Repetitions of calls while the coordinator cannot be reached.
#include <algorithm>
#include <chrono>

#include <absl/strings/str_cat.h>

#include "cli/client.h"
#include "common/time/time.h"
#include "daemon/process.h"

namespace muster::cli {

double draw_fraction() {
  const auto number = daemon::draw_random_id();
  return number.ok() ? static_cast<double>(*number >> 11) * 0x1p-53 : 0.5;
}

Duration pause_before_repeat(Duration hint, int repeats, double draw) {
  const Duration grown = std::min(hint * (int64_t{1} << std::min(repeats, 8)), kRepeatPauseMax);
  const Duration most = std::max(grown, 2 * hint);
  return hint + std::chrono::duration_cast<Duration>((most - hint) * draw);
}

void Client::pause_before_reconnection() {
  pause(std::chrono::duration_cast<Duration>(kReconnectPause * (1 + draw_fraction())));
}

absl::StatusOr<v1::Job> submit_with_repeats(
    Client& client, const v1::JobSpec& spec, const std::string& request_id, Duration patience,
    const std::function<void(const absl::Status&)>& on_loss) {
  const Instant give_up = monotonic_now() + patience;
  for (bool is_reported = false;; is_reported = true) {
    auto submitted = client.submit(spec, request_id);
    const bool is_lost =
        absl::IsUnavailable(submitted.status()) || absl::IsDeadlineExceeded(submitted.status());
    if (!is_lost || client.is_stopped() || monotonic_now() >= give_up) return submitted;
    if (!is_reported) on_loss(submitted.status());
    client.pause_before_reconnection();
    while (monotonic_now() < give_up && !client.is_stopped() && !client.wait_for_connection()) {
    }
  }
}

absl::Status with_reconnection(Client& client, const std::function<absl::Status()>& stream,
                               const std::function<void(const absl::Status&)>& on_loss) {
  // A stream that lived this long was healthy and resets the count of losses.
  constexpr auto kGoodStream = std::chrono::seconds(2);
  constexpr int kLossesInARowMax = kReconnectSecondsMax * 5;  // at one pause each
  for (int losses = 0;;) {
    const Instant started = monotonic_now();
    absl::Status status = stream();
    if (!absl::IsUnavailable(status)) return status;
    if (monotonic_now() - started > kGoodStream) losses = 0;
    if (losses++ == 0) on_loss(status);
    for (int waited = 0; !client.wait_for_connection(); ++waited) {
      if (waited == kReconnectSecondsMax || client.is_stopped()) return status;
    }
    if (losses > kLossesInARowMax) return status;
    client.pause_before_reconnection();
  }
}

// Omits translate()'s advice: a restarting coordinator needs none.
std::string loss_text(const absl::Status& loss) {
  const std::string message(loss.message());
  return absl::StrCat(message.substr(0, message.find("; ")), "; trying again for ",
                      kReconnectSecondsMax, " s");
}

}  // namespace muster::cli
