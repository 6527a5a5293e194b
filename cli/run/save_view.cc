#include "cli/run/save_view.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "cli/terminal/terminal.h"
#include "common/text/absl_view.h"

namespace muster::cli {
namespace {

// The interval of lines about one save.
constexpr Duration kLinePeriod = std::chrono::seconds(2);
// A save that writes nothing for so long pauses.
constexpr Duration kPauseShown = std::chrono::seconds(5);
constexpr uint64_t kMibPerGib = 1024;

}  // namespace

SaveProgress save_of(const v1::Job& job) {
  SaveProgress save;
  for (const v1::RankStatus& rank : job.ranks()) {
    save.total += rank.checkpoints().saving_mib();
    save.written += rank.checkpoints().written_mib();
  }
  return save;
}

std::string written_text(const SaveProgress& save) {
  if (save.total < kMibPerGib) return absl::StrCat(save.written, " of ", save.total, " MiB");
  const auto gib = [](uint64_t mib) { return static_cast<double>(mib) / kMibPerGib; };
  return absl::StrFormat("%.1f of %.1f GiB", gib(save.written), gib(save.total));
}

std::string SaveReport::line(const SaveProgress& save, int64_t completed_steps, Instant now) {
  if (save.total == 0) {
    total_ = 0;
    return "";
  }
  if (save != newest_) advanced_at_ = now;
  newest_ = save;
  // During an upload the size and the written part grow alike, so the rest shows a new save.
  const uint64_t rest = save.total - std::min(save.written, save.total);
  const bool is_new = total_ == 0 || rest > rest_ || save.written < written_first_;
  total_ = save.total;
  rest_ = rest;
  if (is_new) {
    written_first_ = save.written;
    began_ = now;
  } else if (now - printed_at_ < kLinePeriod) {
    return "";
  }
  printed_at_ = now;
  std::string line = absl::StrCat("saving a checkpoint, ", completed_steps,
                                  completed_steps == 1 ? " step is" : " steps are",
                                  " completed: ", written_text(save));
  const uint64_t done = save.written - written_first_;
  if (save.written >= save.total) {
    absl::StrAppend(&line, " written; waits until they are durable");
  } else if (now - advanced_at_ >= kPauseShown) {
    absl::StrAppend(&line, " written, nothing for ",
                    format_duration(to_seconds(now - advanced_at_)),
                    "; the save is given up after ", format_duration(to_seconds(kSaveStallMax)),
                    " without progress");
  } else if (done > 0) {
    const double pace = static_cast<double>(done) / to_seconds(now - began_);
    absl::StrAppend(&line, " written, about ",
                    format_duration(static_cast<double>(save.total - save.written) / pace),
                    " left");
  } else {
    absl::StrAppend(&line, " written");
  }
  return line;
}

std::optional<std::string> reason_not_saved(std::string_view text) {
  for (const std::string_view mark : {" is not saved: ", "exiting without a checkpoint"}) {
    const size_t at = text.find(mark);
    if (at == std::string_view::npos) continue;
    const bool follows = mark.back() == ' ';  // the reason follows the mark
    const size_t line = text.rfind('\n', at);
    const size_t begin =
        follows ? at + mark.size() : (line == std::string_view::npos ? 0 : line + 1);
    return std::string(text.substr(begin, text.find('\n', at) - begin));
  }
  return std::nullopt;
}

std::string save_result(int64_t completed_steps, int64_t saved_step,
                        const SaveCircumstances& circumstances) {
  if (completed_steps > 0 && saved_step >= completed_steps)
    return absl::StrCat("checkpoint of step ", saved_step, " saved");
  if (completed_steps <= 0) return "no checkpoint saved, because no step is completed";
  std::string why;
  if (!circumstances.saves) {
    why = "enable_checkpointing is false";
  } else if (!circumstances.reason.empty()) {
    why = circumstances.reason;
  } else {
    const std::string state = circumstances.save.total > 0
                                  ? absl::StrCat(" with ", written_text(circumstances.save))
                                  : std::string();
    if (circumstances.was_killed)
      why = absl::StrCat("a second request killed the ranks", state);
    else if (circumstances.leave_seconds)
      why = absl::StrCat("it was not complete within --leave-seconds ",
                         *circumstances.leave_seconds, state);
    else
      why = absl::StrCat("the ranks made no progress for too long", state);
  }
  return absl::StrCat(
      "no checkpoint of step ", completed_steps, " saved, because ", why,
      saved_step > 0 ? absl::StrCat("; the newest is that of step ", saved_step) : "");
}

}  // namespace muster::cli
