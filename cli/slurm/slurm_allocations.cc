#include "cli/slurm/slurm_allocations.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "cli/slurm/slurm_commands.h"
#include "common/files/file_write.h"
#include "common/process/exit_code.h"

namespace muster::cli {
namespace {

// A program that ran this long may have made progress that it does not report.
constexpr Duration kWorthwhileAllocation = std::chrono::minutes(10);
constexpr int64_t kSignalSecondsMax = 65'535;  // sbatch's limit
constexpr int64_t kMinute = 60;

// An unreadable file counts as no record: the job then gets all its allocations again.
AllocationRecord read_record(const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("job") || !json["job"].is_string()) return {};
  const auto number = [&](const char* name, int64_t otherwise) {
    return json.contains(name) && json[name].is_number_integer() ? json[name].get<int64_t>()
                                                                 : otherwise;
  };
  const int64_t fruitless =
      std::clamp<int64_t>(number("fruitless_turns", 0), 0, kFruitlessAllocationsMax);
  const int64_t allocations = std::clamp<int64_t>(number("turns", 0), 0, kAllocationsMax);
  return {json["job"].get<std::string>(), number("step", -1), static_cast<int32_t>(fruitless),
          static_cast<int32_t>(allocations)};
}

std::string text_of(const AllocationRecord& record) {
  return nlohmann::json{{"job", record.job},
                        {"step", record.step},
                        {"fruitless_turns", record.fruitless},
                        {"turns", record.allocations}}
             .dump() +
         "\n";
}

}  // namespace

AllocationRecord with_allocation(const AllocationRecord& before, const Allocation& allocation) {
  const AllocationRecord last =
      before.job == allocation.job ? before : AllocationRecord{.job = allocation.job};
  const bool reports_steps = allocation.counts || allocation.step >= 0 || last.step >= 0;
  const bool is_fruitful =
      allocation.step > last.step || (!reports_steps && allocation.lasted >= kWorthwhileAllocation);
  return {allocation.job, std::max(allocation.step, last.step),
          is_fruitful ? 0 : last.fruitless + 1,
          std::min(last.allocations, kAllocationsMax - 1) + 1};
}

std::string lead_advice(int64_t lead_seconds, int64_t took_seconds, bool saved) {
  if (saved && 2 * took_seconds <= lead_seconds) return "";
  const int64_t needed = saved ? took_seconds : std::max(took_seconds, lead_seconds);
  const int64_t sensible =
      std::clamp((2 * needed + kMinute - 1) / kMinute * kMinute, kMinute, kSignalSecondsMax);
  return absl::StrCat(saved ? absl::StrCat("the ranks took ", took_seconds, " s of the ",
                                           lead_seconds, " s between SIGUSR1 and the time limit")
                            : absl::StrCat("the time limit was reached ", took_seconds,
                                           " s after SIGUSR1, before the ranks had saved and left"),
                      ": --signal=B:USR1@", sensible, " (--signal-seconds ", sensible,
                      " of muster slurm submit) gives them enough time");
}

bool ends_chain(const AllocationEnd& end) {
  switch (end.verdict) {
    case Verdict::kNone:
      return false;
    case Verdict::kInput:
    case Verdict::kAllocations:
      return true;
    case Verdict::kJob:
      return end.exit_code == to_int(ExitCode::kOk) ||
             end.exit_code == to_int(ExitCode::kBadInput) ||
             end.exit_code == to_int(ExitCode::kNotFinite) || end.is_futile;
  }
  return false;
}

void NextAllocation::request(const Allocation& allocation) {
  if (is_settled_) return;
  is_settled_ = true;
  if (by_ == AllocationSource::kNone) {
    outcome_ = "is not queued again: --no-requeue";
    return;
  }
  if (outcome_.empty()) count(allocation);
  if (was_last_) return;
  if (by_ == AllocationSource::kChain) {
    outcome_ = absl::StrCat("is not queued again: the next task of its chain continues", remark_);
    return;
  }
  const absl::Status status = requeue_slurm_job(job_);
  is_settled_ = status.ok();
  outcome_ = status.ok()
                 ? absl::StrCat("is queued again and resumes from its newest checkpoint", remark_)
                 : absl::StrCat("cannot be queued again: ", std::string(status.message()));
}

void NextAllocation::count(Allocation allocation) {
  allocation.job = by_ == AllocationSource::kChain ? job_.array : job_.id;
  const AllocationRecord record = with_allocation(read_record(record_path_), allocation);
  // without the record the bound is missed
  (void)write_file_atomically(record_path_, text_of(record));
  was_last_ =
      record.fruitless >= kFruitlessAllocationsMax || record.allocations >= allocations_max_;
  if (record.fruitless >= kFruitlessAllocationsMax) {
    outcome_ = absl::StrCat("is not queued again: ", record.fruitless,
                            " allocations in a row made no progress beyond ",
                            record.step < 0 ? "the beginning" : absl::StrCat("step ", record.step));
  } else if (was_last_) {
    outcome_ = absl::StrCat("is not queued again: it has had ", record.allocations,
                            " allocations, the limit of --max-turns ", allocations_max_);
  } else if (record.fruitless > 0) {
    remark_ = absl::StrCat("; ", record.fruitless, " allocations in a row made no progress; after ",
                           kFruitlessAllocationsMax, " it is not queued again");
  }
}

}  // namespace muster::cli
