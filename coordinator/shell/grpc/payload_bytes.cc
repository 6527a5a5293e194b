#include "coordinator/shell/grpc/payload_bytes.h"

#include <variant>
#include <vector>

#include "coordinator/shell/messages/job_and_worker_messages.h"
#include "daemon/valid_texts.h"

namespace muster::coordinator {
namespace {

grpc::Slice slice_of(v1::CoordinatorMessage message) {
  daemon::make_texts_valid(message);
  return grpc::Slice(message.SerializeAsString());
}

}  // namespace

grpc::ByteBuffer PayloadBytes::of(const WorkerPayload& payload) {
  const grpc::Slice bytes = slice_of(message_to_proto(payload, epoch_));
  const auto* order = std::get_if<SendStartRanks>(&payload);
  if (order == nullptr) return {&bytes, 1};
  if (spec_ != order->spec) {
    spec_ = order->spec;
    spec_bytes_ = slice_of(spec_to_proto(*spec_));
  }
  // A parser merges messages of a field that occurs twice, so the order receives the spec of the
  // second occurrence.
  const std::vector<grpc::Slice> parts = {bytes, spec_bytes_};
  return {parts.data(), parts.size()};
}

}  // namespace muster::coordinator
