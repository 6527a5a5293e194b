// The calls about deep checks of nodes.
#include <utility>

#include <absl/strings/str_cat.h>

#include "coordinator/shell/calls/muster_calls.h"
#include "coordinator/shell/messages/sweep_messages.h"

namespace muster::coordinator {
namespace {

absl::Status no_loop() { return absl::UnavailableError("the coordinator is shutting down"); }

}  // namespace

absl::Status MusterCalls::check_nodes(const v1::CheckNodesRequest& request,
                                      Done<v1::NodeSweep> done) {
  return loop_.check_nodes(
      sweep_request_from_proto(request),
      [this, done = std::move(done)](const absl::Status& status, const Core&, const Job*, Instant) {
        if (!status.ok()) return done(status, {});
        const absl::Status queried = get_sweep({}, done);
        if (!queried.ok()) done(queried, {});
      });
}

absl::Status MusterCalls::get_sweep(const v1::GetNodeSweepRequest& request,
                                    Done<v1::NodeSweep> done) {
  return loop_.query([id = request.id(), done = std::move(done)](const Core* core, Instant) {
    if (core == nullptr) return done(no_loop(), {});
    const Sweep* sweep = core->sweep();
    if (sweep == nullptr)
      return done(absl::NotFoundError("no sweep has begun since the coordinator started"), {});
    if (id != 0 && id != sweep->id()) {
      return done(absl::NotFoundError(
                      absl::StrCat("sweep ", id, " is not retained; the newest is ", sweep->id())),
                  {});
    }
    done(absl::OkStatus(), sweep_to_proto(*sweep));
  });
}

absl::Status MusterCalls::list_node_checks(const v1::ListNodeChecksRequest& request,
                                           Done<v1::ListNodeChecksResponse> done) {
  const WorkerName name(request.worker());
  return loop_.query([name, done = std::move(done)](const Core* core, Instant) {
    if (core == nullptr) return done(no_loop(), {});
    const DeepChecks& checks = core->deep_checks().of(name);
    if (checks.empty() && !core->workers().contains(name) && !core->nodes().contains(name))
      return done(absl::NotFoundError(absl::StrCat("there is no node ", name.value())), {});
    v1::ListNodeChecksResponse response;
    for (auto check = checks.rbegin(); check != checks.rend(); ++check)
      *response.add_checks() = deep_check_to_proto(*check);
    done(absl::OkStatus(), std::move(response));
  });
}

}  // namespace muster::coordinator
