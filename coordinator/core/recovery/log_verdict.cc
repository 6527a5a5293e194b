#include "coordinator/core/recovery/log_verdict.h"

#include <algorithm>
#include <set>
#include <string>
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

// Returns whether the error is about files and devices of a node or of a service, which may come
// and go. Errors of the program's own code do not.
bool is_of_files(ErrorOrigin origin) {
  return origin == ErrorOrigin::kData || origin == ErrorOrigin::kSetup;
}

const RankExit* exit_of(const Job& job, Rank rank) {
  const auto found = std::ranges::find(job.exits, rank, &RankExit::rank);
  return found == job.exits.end() ? nullptr : &*found;
}

const WorkerName& node_of(const Job& job, const RankExit& exit) {
  return job.placement[static_cast<size_t>(exit.rank.value())].worker;
}

// Returns the text without its digits: times, ranks and addresses differ between ranks.
std::string without_digits(std::string_view text) {
  std::string rest(text);
  std::erase_if(rest, [](char c) { return c >= '0' && c <= '9'; });
  return rest;
}

// Returns whether two errors of one family are the same: at the same place of the program, or, if
// they have no place, with the same text.
bool is_same_error(const RankExit& a, const RankExit& b) {
  const std::string place = error_place(a.detail);
  if (place != error_place(b.detail)) return false;
  return !place.empty() || without_digits(a.detail) == without_digits(b.detail);
}

// Returns whether the end of a rank contradicts that all ranks had one error: it has another cause.
// A rank that was ordered to stop, and reports nothing, could have had the same one.
bool has_own_cause(const RankExit& exit, const ErrorFamily* family) {
  if (exit.cause != ExitCause::kUnknown || is_success(exit)) return true;
  const bool is_consequence = family != nullptr && family->origin == ErrorOrigin::kPeer;
  if (exit.stop_ordered) return family != nullptr && !is_consequence;
  return !is_consequence || !may_be_victim(exit);
}

// Returns whether the ends have the same family. A large job has many equal ends, and the search in
// the table takes some microseconds.
bool is_same_end(const RankExit& a, const RankExit& b) {
  return a.detail == b.detail && a.signal == b.signal && a.exit_code == b.exit_code &&
         a.cause == b.cause && a.of_program == b.of_program && a.stop_ordered == b.stop_ordered;
}

}  // namespace

const ErrorFamily* family_of(const RankExit& exit) {
  // The detail of a rank that was stopped without an error of its own is the reason for the stop.
  const bool was_stopped = exit.stop_ordered && absl::StartsWith(exit.detail, "stopped");
  if (!exit.of_program || exit.cause != ExitCause::kUnknown || is_success(exit) || was_stopped)
    return nullptr;
  const ErrorFamily* family = find_error_family(exit.detail);
  // The last line of output may be unrelated to the end, such as "wandb: WARNING 403 Forbidden".
  if (family != nullptr && family->origin != ErrorOrigin::kPeer && !is_error_text(exit.detail))
    family = nullptr;
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

bool is_of_hardware(const Fault& fault) {
  const ErrorFamily* family = family_of(fault);
  return family != nullptr && family->origin == ErrorOrigin::kNode;
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
  else if (family != nullptr && family->origin == ErrorOrigin::kSetup && !fault.place.empty())
    fault.error = absl::StrCat(error_type(exit.detail), " at ", fault.place);
}

bool is_witness(const RankExit& exit) {
  const ErrorFamily* family = family_of(exit);
  return may_be_victim(exit) && family != nullptr && family->origin == ErrorOrigin::kPeer;
}

bool is_of_setup(const Fault& fault) {
  const ErrorFamily* family = family_of(fault);
  return family != nullptr && family->origin == ErrorOrigin::kSetup;
}

bool may_be_outage(const Fault& fault) {
  const ErrorFamily* family = family_of(fault);
  return family != nullptr && has_trained(fault) &&
         (is_of_files(family->origin) || family->name == "storage service" ||
          family->name == "network file system" || family->name == "name resolution");
}

int32_t ranks_with_same_error(const Job& job) {
  const Fault& fault = job.faults.back();
  const ErrorFamily* family = family_of(fault);
  const RankExit* first = exit_of(job, fault.rank);
  if (family == nullptr || first == nullptr || !is_jobs_own(family->origin)) return 0;
  if (may_be_outage(fault)) return 0;
  int32_t ranks = 0;
  std::set<WorkerName> nodes;
  for (const RankExit& exit : job.exits) {
    const ErrorFamily* other = is_same_end(exit, *first) ? family : family_of(exit);
    if (other == family && is_same_error(exit, *first)) {
      ++ranks;
      nodes.insert(node_of(job, exit));
    } else if (has_own_cause(exit, other)) {
      return 0;
    }
  }
  const bool are_many = ranks >= 2 && 2 * int64_t{ranks} >= std::ssize(job.placement);
  // One node may lack a file, or read it badly, that another node has.
  const bool is_nodes = is_of_files(family->origin) && fault.has_elsewhere;
  return are_many && (nodes.size() >= 2 || (nodes_now(job) == 1 && !is_nodes)) ? ranks : 0;
}

bool shares_no_node(const Job& job) {
  const std::set<WorkerName> before(job.previous_nodes.begin(), job.previous_nodes.end());
  return !before.empty() && std::ranges::none_of(job.placement, [&](const RankPlacement& rank) {
    return before.contains(rank.worker);
  });
}

bool is_on_several_nodes(const Job& job) {
  const ErrorFamily* family = family_of(job.faults.back());
  std::set<WorkerName> nodes;
  for (const RankExit& exit : job.exits) {
    if (family != nullptr && family_of(exit) == family) nodes.insert(node_of(job, exit));
    if (nodes.size() >= 2) return true;
  }
  return false;
}

}  // namespace muster::coordinator
