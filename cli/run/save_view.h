// The lines that `muster run` prints about the checkpoint that its ranks save before they leave.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/save_progress.h"
#include "common/time.h"
#include "muster/v1/muster.pb.h"

namespace muster::cli {

// Returns the progress of the saves of all ranks.
SaveProgress save_of(const v1::Job& job);

// Returns "1.2 of 53.9 GiB" or "12 of 40 MiB".
std::string written_text(const SaveProgress& save);

// Decides when a line about a save is due. Not thread-safe.
class SaveReport {
 public:
  // Returns the line, or "" if none is due.
  std::string line(const SaveProgress& save, int64_t completed_steps, Instant now);

 private:
  Instant began_{};  // when the save in progress was first seen
  Instant printed_at_{};
  uint64_t written_first_ = 0;
  uint64_t total_ = 0;
};

// Returns the reason in a rank's output why its last state is not saved; nullopt if `text` contains
// none.
std::optional<std::string> reason_not_saved(std::string_view text);

struct SaveCircumstances {
  bool saves = true;                          // enable_checkpointing
  bool was_killed = false;                    // by a second request
  std::optional<int32_t> leave_seconds = {};  // the bound, if the user has set one
  SaveProgress save = {};                     // the newest that was seen
  std::string reason = {};                    // reason_not_saved(), "" if there was none
};
// Returns "checkpoint of step 120 saved" or "no checkpoint of step 120 is saved, because …".
std::string save_result(int64_t completed_steps, int64_t saved_step,
                        const SaveCircumstances& circumstances);

}  // namespace muster::cli
