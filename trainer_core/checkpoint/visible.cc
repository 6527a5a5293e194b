#include "trainer_core/checkpoint/visible.h"

#include <algorithm>
#include <thread>

#include <absl/strings/cord.h>
#include <absl/strings/str_cat.h>

namespace muster::trainer {
namespace {

constexpr char kNotVisibleYet[] = "muster/not-visible-yet";
constexpr Duration kFirstPause = std::chrono::milliseconds(20);
constexpr Duration kLongestPause = std::chrono::seconds(2);

}  // namespace

absl::Status not_visible_yet(absl::Status status) {
  status.SetPayload(kNotVisibleYet, absl::Cord());
  return status;
}

absl::Status when_visible(absl::FunctionRef<absl::Status()> read, Duration within, Duration silence,
                          std::ostream& log) {
  const Instant begin = monotonic_now();
  const Instant deadline = begin + within;
  bool is_silent = true;
  for (Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    absl::Status status = read();
    if (!status.GetPayload(kNotVisibleYet).has_value()) return status;
    if (monotonic_now() + pause > deadline) {
      return absl::Status(status.code(),
                          absl::StrCat(status.message(), ", after ", to_seconds(within),
                                       " seconds in which it could become visible"));
    }
    if (is_silent && monotonic_now() - begin >= silence) {
      is_silent = false;
      log << absl::StrCat("waiting for a checkpoint of other ranks to become visible here: ",
                          status.message(), "\n")
          << std::flush;
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace muster::trainer
