#include "coordinator/shell/messages/attempt_messages.h"

#include "common/text/escape.h"

namespace muster::coordinator {
namespace {

constexpr size_t kEndTextBytesMax = 1'024;

}  // namespace

v1::JobAttempt attempt_to_proto(const AttemptRecord& record) {
  v1::JobAttempt proto;
  proto.set_job_id(record.job.value());
  proto.set_attempt(record.attempt.value());
  proto.set_started_unix_ns(record.started_unix_ns);
  proto.set_up_unix_ns(record.up_unix_ns);
  proto.set_ended_unix_ns(record.ended_unix_ns);
  proto.set_nodes(record.nodes);
  proto.set_ranks(record.ranks);
  proto.set_workers(record.workers);
  proto.set_first_step(record.first_step);
  proto.set_last_step(record.last_step);
  proto.set_end(printable(record.end, kEndTextBytesMax));
  proto.set_incident_id(record.incident.value());
  proto.set_revision(record.revision);
  return proto;
}

}  // namespace muster::coordinator
