#include "coordinator/core/recovery/log_verdict.h"

#include <set>
#include <string_view>

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
  if (!exit.of_program || exit.cause != ExitCause::kUnknown || is_success(exit)) return nullptr;
  const ErrorFamily* family = find_error_family(exit.detail);
  return family == nullptr && exit.signal == kInvalidCodeSignal ? find_error_family("SIGILL") : family;
}

const ErrorFamily* family_of(const Fault& fault) {
  return fault.family.empty() ? nullptr : error_family_named(fault.family);
}

bool names_its_node(const Fault& fault) {
  const ErrorFamily* family = family_of(fault);
  return family != nullptr && !fault.worker.value().empty() &&
         (family->origin == ErrorOrigin::kNode || family->origin == ErrorOrigin::kSetup);
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
