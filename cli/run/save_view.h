// The lines that `muster run` prints about the checkpoint that its ranks save before they exit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/progress/save_progress.h"
#include "common/time/time.h"
#include "muster/v1/muster.pb.h"

namespace muster::cli {

// Returns the summed progress of the saves of all ranks of the job.
SaveProgress save_of(const v1::Job& job);

// Returns "1.2 of 53.9 GiB" or "12 of 40 MiB".
std::string written_text(const SaveProgress& save);

// Decides when a line about a save is due. Not thread-safe.
class SaveReport {
 public:
  // Returns the line about `save`, or "" if no line is due.
  std::string line(const SaveProgress& save, int64_t completed_steps, Instant now);

 private:
  Instant began_{};  // time at which the current save was first seen
  Instant printed_at_{};
  uint64_t written_first_ = 0;
  uint64_t total_ = 0;
  uint64_t rest_ = 0;  // the part that is not written yet
  SaveProgress newest_;
  Instant advanced_at_{};  // time of the last change of newest_
};

// Returns the reason for an unsaved last state if `text`, a line of a rank's output, states one;
// otherwise nullopt.
std::optional<std::string> reason_not_saved(std::string_view text);

// The facts that explain the result of a save.
struct SaveCircumstances {
  bool saves = true;                          // the value of the key enable_checkpointing
  bool was_killed = false;                    // the user's second request killed the ranks
  std::optional<int32_t> leave_seconds = {};  // time limit of the save, if the user has set one
  SaveProgress save = {};                     // the newest progress that was seen
  std::string reason = {};                    // result of reason_not_saved(); "" if there was none
};
// Returns "checkpoint of step 120 saved" or "no checkpoint of step 120 is saved, because …".
// `completed_steps`: the job's last step; `saved_step`: the step of its newest checkpoint.
std::string save_result(int64_t completed_steps, int64_t saved_step,
                        const SaveCircumstances& circumstances);

}  // namespace muster::cli
