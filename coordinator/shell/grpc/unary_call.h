// One call of a method without streams: answers it, and counts the answer and its time.
//
// Handlers and their callbacks copy it. Requires that the metrics outlive the call. Thread-safe.
#pragma once

#include <string_view>

#include <absl/status/status.h>
#include <grpcpp/grpcpp.h>

#include "common/time/time.h"
#include "coordinator/shell/grpc/grpc_status.h"
#include "coordinator/shell/grpc/retry_hint.h"
#include "coordinator/shell/metrics/shell_metrics.h"

namespace muster::coordinator {

class UnaryCall {
 public:
  // `method`: a constant ("GetJob").
  UnaryCall(grpc::CallbackServerContext& context, ShellMetrics& metrics, std::string_view method)
      : context_(&context),
        reactor_(context.DefaultReactor()),
        metrics_(&metrics),
        method_(method) {}

  grpc::ServerUnaryReactor* reactor() const { return reactor_; }

  std::string_view method() const { return method_; }

  // Refuses the call, which the caller should repeat after `time`. Call it instead of finish().
  void refuse(const absl::Status& status, Duration time) const {
    add_retry_hint(*context_, time);
    finish(status);
  }
  // Sends the answer. Call it once, for one of the copies.
  void finish(const absl::Status& status) const {
    metrics_->count_rpc(method_, status);
    metrics_->time_rpc(method_, monotonic_now() - begun_);
    reactor_->Finish(to_grpc(status));
  }

 private:
  grpc::CallbackServerContext* context_;
  grpc::ServerUnaryReactor* reactor_;
  ShellMetrics* metrics_;
  std::string_view method_;
  Instant begun_ = monotonic_now();
};

}  // namespace muster::coordinator
