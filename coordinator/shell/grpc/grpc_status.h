// Converts absl::Status to grpc::Status; both use the same codes.
#pragma once

#include <string>

#include <absl/status/status.h>
#include <grpcpp/support/status.h>

namespace muster::coordinator {

inline grpc::Status to_grpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

}  // namespace muster::coordinator
