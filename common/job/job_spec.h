// A job as its user submits it, and the table of its plain fields. The coordinator and the workers
// use this type; the API uses muster.v1.JobSpec. A value without behaviour.
//
// Each plain field (a number, a truth value, a text or a list of texts) has one row in kJobFields.
// The table drives:
//
//   daemon/job_spec_messages.cc            conversion to and from muster.v1.JobSpec, both daemons
//   coordinator/shell/storage/job_record.cc        the stored job
//   coordinator/core/queue/validation.cc   the valid values
//   daemon/json/job_json.cc                the keys of --json
//   tests/scenarios/scenario.cc            FIELD=VALUE in a scenario's `submit`
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "common/job/gpu.h"
#include "common/job/ids.h"
#include "common/job/limits.h"
#include "common/job/stack_trace_spec.h"

namespace muster {

// The fields of a job at a smaller size that differ from its JobSpec.
struct SmallerJob {
  int32_t nodes = 0;
  std::string train_config_json{};

  friend bool operator==(const SmallerJob&, const SmallerJob&) = default;
};

// The end of another job that a dependency requires.
enum class DependencyKind {
  kAfterOk,     // SUCCEEDED
  kAfterAny,    // any end
  kAfterNotOk,  // FAILED or CANCELLED
};
// The names in stored jobs and in --json.
inline constexpr std::array<std::string_view, 3> kDependencyKindNames = {"after_ok", "after_any",
                                                                         "after_not_ok"};
constexpr std::string_view dependency_kind_name(DependencyKind kind) {
  return kDependencyKindNames[static_cast<size_t>(kind)];
}

// A job that must end before another one may start.
struct JobDependency {
  JobId job;
  DependencyKind kind = DependencyKind::kAfterOk;

  friend bool operator==(const JobDependency&, const JobDependency&) = default;
};

// See muster.v1.JobSpec for the meaning of the fields.
struct JobSpec {
  std::string name{};
  std::string user{};
  int32_t priority = 0;
  int32_t nodes = 1;
  int32_t ranks_per_node = 1;
  int32_t restarts_max = 0;
  std::string output_directory{};
  std::string train_config_json{};
  std::string settings_json{};
  std::map<std::string, std::string> environment{};
  int64_t steps = 0;
  StackTraceSpec stack_traces{};
  std::vector<std::string> command{};
  std::string working_directory{};
  int64_t hang_after_seconds = 0;
  int32_t spares = 0;
  int32_t min_nodes = 0;
  int32_t segment_nodes = 0;
  std::vector<SmallerJob> smaller{};
  // The number of GPUs that each rank gets exclusively, or kGpusOfSlot.
  int32_t gpus_per_rank = 0;
  int64_t planned_step_us = 0;
  int64_t planned_communication_us = 0;
  int64_t planned_data_us = 0;
  int64_t planned_checkpoint_us = 0;
  int64_t planned_memory_bytes = 0;
  std::string owner{};
  std::string team{};
  std::vector<JobDependency> dependencies{};
  int64_t time_limit_seconds = 0;
  std::string array{};
  int32_t array_index = 0;
  int32_t array_running_max = 0;
  std::vector<std::string> node_selector{};
  std::vector<std::string> tolerations{};
  int64_t time_limit_notice_seconds = 0;

  // Returns the number of ranks of an attempt at full size, which is the maximum.
  int32_t world_size() const { return nodes * ranks_per_node; }
  // Returns whether the job runs a user program instead of the built-in trainer: its exit codes
  // have no meaning here, and it may report no progress.
  bool is_program() const { return !command.empty(); }
  bool is_array_task() const { return !array.empty(); }
  // Returns whether the output of a rank counts as progress.
  bool output_is_progress() const { return hang_after_seconds > 0; }
  friend bool operator==(const JobSpec&, const JobSpec&) = default;
};

// The valid numbers of a field, both bounds included.
struct NumberRange {
  int64_t min = 0;
  int64_t max = 0;
  // Only 0 is valid for a job that runs the trainer.
  bool only_programs = false;
};

enum class TextForm {
  // 1 or more of the characters A-Z a-z 0-9 . _ -
  kName,
  // no control characters
  kLine,
  // no control characters, and a / in front
  kAbsolutePath,
  // no NUL; it may have several lines
  kText,
};

// The valid texts of a field.
struct TextRule {
  TextForm form = TextForm::kLine;
  size_t bytes_max = 0;
};

// The valid lists of a field: at most `words_max` texts without NUL. `bytes_max` bounds their total
// size, with one byte more for each text.
struct ListRule {
  size_t words_max = 0;
  size_t bytes_max = 0;
};

// The table has no rule: the field is a truth value, or check_spec() checks it together with other
// fields.
struct NoRule {};

// One plain field of JobSpec. `name` is the name in muster.v1.JobSpec, in stored jobs and in
// --json. A stored job without the field has the member's default.
struct JobField {
  std::string_view name;
  std::variant<int32_t JobSpec::*, int64_t JobSpec::*, bool JobSpec::*, std::string JobSpec::*,
               std::vector<std::string> JobSpec::*>
      member;
  std::variant<NoRule, NumberRange, TextRule, ListRule> rule;
};

// Bound of a job's priority in both directions.
inline constexpr int32_t kPriorityMax = 1'000'000;
// A day, in microseconds: more than any step takes.
inline constexpr int64_t kPlannedUsMax = int64_t{86'400} * 1'000'000;
// Ten years, in seconds: a longer limit is a typing error.
inline constexpr int64_t kTimeLimitSecondsMax = int64_t{10} * 365 * 86'400;
// The bound of the numbers of an array's tasks, and of those that run at the same time.
inline constexpr int32_t kArrayIndexMax = 1'000'000;
// Linux's PATH_MAX, in bytes.
inline constexpr size_t kPathBytesMax = 4096;

// The rows of all plain fields. Fields are checked in this order, and the first error is reported.
inline constexpr auto kJobFields = std::to_array<JobField>({
    {"name", &JobSpec::name, TextRule{TextForm::kName, kNameBytesMax}},
    {"user", &JobSpec::user, TextRule{TextForm::kLine, kNameBytesMax}},
    {"priority", &JobSpec::priority, NumberRange{-kPriorityMax, kPriorityMax}},
    {"nodes", &JobSpec::nodes, NumberRange{1, kNodesMax}},
    {"ranks_per_node", &JobSpec::ranks_per_node, NumberRange{1, kRanksPerNodeMax}},
    {"gpus_per_rank", &JobSpec::gpus_per_rank, NumberRange{kGpusOfSlot, kGpusPerNodeMax}},
    {"restarts_max", &JobSpec::restarts_max, NumberRange{0, kRestartsMax}},
    {"steps", &JobSpec::steps, NumberRange{0, std::numeric_limits<int64_t>::max()}},
    {"hang_after_seconds", &JobSpec::hang_after_seconds,
     NumberRange{0, kHangAfterSecondsMax, /*only_programs=*/true}},
    {"output_directory", &JobSpec::output_directory,
     TextRule{TextForm::kAbsolutePath, kPathBytesMax}},
    {"train_config_json", &JobSpec::train_config_json,
     TextRule{TextForm::kText, kTrainConfigBytesMax}},
    {"settings_json", &JobSpec::settings_json, TextRule{TextForm::kText, kTrainConfigBytesMax}},
    {"spares", &JobSpec::spares, NumberRange{0, kNodesMax}},
    {"planned_step_us", &JobSpec::planned_step_us, NumberRange{0, kPlannedUsMax}},
    {"planned_communication_us", &JobSpec::planned_communication_us, NumberRange{0, kPlannedUsMax}},
    {"planned_data_us", &JobSpec::planned_data_us, NumberRange{0, kPlannedUsMax}},
    {"planned_checkpoint_us", &JobSpec::planned_checkpoint_us, NumberRange{0, kPlannedUsMax}},
    {"planned_memory_bytes", &JobSpec::planned_memory_bytes,
     NumberRange{0, std::numeric_limits<int64_t>::max()}},
    {"owner", &JobSpec::owner, TextRule{TextForm::kLine, kNameBytesMax}},
    {"team", &JobSpec::team, TextRule{TextForm::kLine, kNameBytesMax}},
    {"time_limit_seconds", &JobSpec::time_limit_seconds, NumberRange{0, kTimeLimitSecondsMax}},
    {"array_index", &JobSpec::array_index, NumberRange{0, kArrayIndexMax}},
    {"array_running_max", &JobSpec::array_running_max, NumberRange{0, kArrayIndexMax}},
    // Conditions and taints as in common/job/node_labels.h.
    {"node_selector", &JobSpec::node_selector, NoRule{}},
    {"tolerations", &JobSpec::tolerations, NoRule{}},
    {"time_limit_notice_seconds", &JobSpec::time_limit_notice_seconds,
     NumberRange{0, kTimeLimitSecondsMax}},
    // Empty, or a name.
    {"array", &JobSpec::array, NoRule{}},
    // It divides `nodes`.
    {"segment_nodes", &JobSpec::segment_nodes, NoRule{}},
    // At most `nodes`.
    {"min_nodes", &JobSpec::min_nodes, NoRule{}},
    {"command", &JobSpec::command, ListRule{kCommandWordsMax, kCommandBytesMax}},
    // Empty for the trainer, an absolute path for a program.
    {"working_directory", &JobSpec::working_directory, NoRule{}},
});

// Calls visit(field, member) for each row, where `member` is the pointer to the member.
template <class Visit>
constexpr void for_each_job_field(Visit&& visit) {
  for (const JobField& field : kJobFields)
    std::visit([&](auto member) { visit(field, member); }, field.member);
}

// Returns whether the rule of a row applies to the type of its member.
constexpr bool rule_fits(const JobField& field) {
  return std::visit(
      [&](auto member) {
        using Value = std::remove_cvref_t<decltype(std::declval<JobSpec>().*member)>;
        if (std::holds_alternative<NumberRange>(field.rule))
          return std::is_integral_v<Value> && !std::is_same_v<Value, bool>;
        if (std::holds_alternative<TextRule>(field.rule)) return std::is_same_v<Value, std::string>;
        return std::holds_alternative<NoRule>(field.rule) ||
               std::is_same_v<Value, std::vector<std::string>>;
      },
      field.member);
}
static_assert(std::all_of(kJobFields.begin(), kJobFields.end(), rule_fits));

}  // namespace muster
