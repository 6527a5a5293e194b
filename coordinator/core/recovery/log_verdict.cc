#include "coordinator/core/recovery/log_verdict.h"

#include <set>
#include <string_view>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "common/text/program_error.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {
namespace {

constexpr int32_t kInvalidCodeSignal = 4;

bool is_jobs_own(ErrorOrigin origin) {
  return origin == ErrorOrigin::kProgram || origin == ErrorOrigin::kData ||
         origin == ErrorOrigin::kSetup;
}

}  // namespace

const ErrorFamily* family_of(const RankExit& exit) {
  // The detail of a rank that was stopped without an error of its own is the reason for the stop.
  const bool was_stopped = exit.stop_ordered && absl::StartsWith(exit.detail, "stopped");
  if (!exit.of_program || exit.cause != ExitCause::kUnknown || is_success(exit) || was_stopped)
    return nullptr;
  const ErrorFamily* family = find_error_family(exit.detail);
  // A program that does not exist or is not executable has a rule of its own, and its message only
  // names it. A missing library is a fault of the node.
  const bool was_no_program =
      exit.signal == 0 && (exit.exit_code == to_int(ExitCode::kNotExecutable) ||
                           exit.exit_code == to_int(ExitCode::kProgramNotFound));
  if (was_no_program && family != error_family_named("library missing")) return nullptr;
  return family == nullptr && exit.signal == kInvalidCodeSignal ? find_error_family("SIGILL")
                                                                : family;
}

const ErrorFamily* family_of(const Fault& fault) {
  return fault.family.empty() ? nullptr : error_family_named(fault.family);
}

bool names_its_node(const Fault& fault) {
  const ErrorFamily* family = family_of(fault);
  return family != nullptr && !fault.worker.value().empty() &&
         (family->origin == ErrorOrigin::kNode || family->origin == ErrorOrigin::kSetup);
}

void take_family(const RankExit& exit, Fault& fault) {
  const ErrorFamily* family = family_of(exit);
  if (family != nullptr) {
    fault.family = family->name;
    fault.place = error_place(exit.detail);
  }
  if (!may_be_victim(exit) || is_witness(exit)) return;
  if (!reports_environment(exit.detail))
    fault.error = error_signature(exit.detail);
  else if (family->origin == ErrorOrigin::kSetup && !fault.place.empty())
    fault.error = absl::StrCat(error_type(exit.detail), " at ", fault.place);
}

bool is_witness(const RankExit& exit) {
  const ErrorFamily* family = family_of(exit);
  return may_be_victim(exit) && family != nullptr && family->origin == ErrorOrigin::kPeer;
}

int32_t ranks_with_same_error(const Job& job) {
  const Fault& fault = job.faults.back();
  const ErrorFamily* family = family_of(fault);
  if (family == nullptr || !is_jobs_own(family->origin)) return 0;
  int32_t ranks = 0;
  std::set<WorkerName> nodes;
  for (const RankExit& exit : job.exits) {
    const ErrorFamily* other = family_of(exit);
    if (other == family && error_place(exit.detail) == fault.place) {
      ++ranks;
      nodes.insert(job.placement[static_cast<size_t>(exit.rank.value())].worker);
    } else if (is_success(exit) || (other != nullptr && other->origin != ErrorOrigin::kPeer)) {
      return 0;
    }
  }
  const bool are_many = ranks >= 2 && 2 * int64_t{ranks} >= std::ssize(job.placement);
  return are_many && (nodes.size() >= 2 || nodes_now(job) == 1) ? ranks : 0;
}

}  // namespace muster::coordinator
