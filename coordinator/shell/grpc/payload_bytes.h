// Serializes payloads for workers.
//
// A job's spec may have a megabyte, and is the same in the orders to all workers of an attempt. It
// is serialized once, and the bytes are shared by these orders.
#pragma once

#include <memory>

#include <grpcpp/grpcpp.h>

#include "common/job/ids.h"
#include "coordinator/core/action.h"

namespace muster::coordinator {

// Called on the core loop's thread only.
class PayloadBytes {
 public:
  explicit PayloadBytes(Epoch epoch) : epoch_(epoch) {}

  // Returns the bytes of a CoordinatorMessage.
  grpc::ByteBuffer of(const WorkerPayload& payload);

 private:
  const Epoch epoch_;
  // The spec of the last order to start ranks, and its bytes.
  std::shared_ptr<const JobSpec> spec_;
  grpc::Slice spec_bytes_;
};

}  // namespace muster::coordinator
