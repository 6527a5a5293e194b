// One call of a method without streams: answers it, counts the answer and its time, and
// writes its line in the audit log.
//
// Handlers and their callbacks copy it. Requires that the metrics outlive the call. Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <absl/status/status.h>
#include <grpcpp/grpcpp.h>

#include "common/time/time.h"
#include "coordinator/shell/audit/audit_log.h"
#include "coordinator/shell/grpc/grpc_status.h"
#include "coordinator/shell/grpc/retry_hint.h"
#include "coordinator/shell/metrics/shell_metrics.h"

namespace muster::coordinator {

class UnaryCall {
 public:
  // `method`: a constant ("GetJob").
  UnaryCall(grpc::CallbackServerContext& context, ShellMetrics& metrics, std::string_view method,
            Audit audit)
      : context_(&context),
        reactor_(context.DefaultReactor()),
        metrics_(&metrics),
        method_(method),
        audit_(std::move(audit)) {}

  grpc::ServerUnaryReactor* reactor() const { return reactor_; }

  std::string_view method() const { return method_; }

  // Refuses the call, which the caller should repeat after `time`. Call it instead of finish().
  void refuse(const absl::Status& status, Duration time) const {
    add_retry_hint(*context_, time);
    finish(status);
  }
  // Sends the answer. Call it once, for one of the copies. `target`: see Audit::finish().
  void finish(const absl::Status& status, std::string target = {}) const {
    audit_.finish(status, std::move(target));
    metrics_->count_rpc(method_, status);
    metrics_->time_rpc(method_, monotonic_now() - begun_);
    reactor_->Finish(to_grpc(status));
  }

 private:
  grpc::CallbackServerContext* context_;
  grpc::ServerUnaryReactor* reactor_;
  ShellMetrics* metrics_;
  std::string_view method_;
  Audit audit_;
  Instant begun_ = monotonic_now();
};

}  // namespace muster::coordinator
