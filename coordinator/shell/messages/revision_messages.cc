#include "coordinator/shell/messages/revision_messages.h"

#include "common/text/escape.h"
#include "daemon/job_spec_messages.h"

namespace muster::coordinator {
namespace {

// A job has up to 32 of them in each answer.
constexpr size_t kRevisionEndBytesMax = 512;

}  // namespace

void revisions_to_proto(const Job& job, v1::Job& proto) {
  proto.set_revision(job.revision);
  const auto add = [&](const RevisionNote& note) -> v1::Revision& {
    v1::Revision& revision = *proto.add_revisions();
    revision.set_revision(note.revision);
    revision.set_change(note.change);
    revision.set_unix_ns(note.unix_ns);
    revision.set_end(printable(note.end, kRevisionEndBytesMax));
    revision.set_undone(note.is_undone);
    if (job.trial && note.revision == job.revision)
      revision.set_rollback_steps(job.trial->rollback_steps);
    return revision;
  };
  for (const RevisionNote& note : job.revisions) add(note);
  if (job.trial) proto.set_former_revision(job.trial->former_revision);
  if (job.update) {
    v1::Revision& pending = add(job.update->note);
    pending.set_pending(true);
    pending.set_rollback_steps(job.update->rollback_steps);
  }
}

JobUpdateRequested update_from_proto(const v1::UpdateJobRequest& proto) {
  JobUpdateRequested event;
  event.job = JobId(proto.job_id());
  event.request_id = proto.request_id();
  event.revision = proto.revision();
  event.change = proto.change();
  event.spec = daemon::job_spec_from_proto(proto.spec());
  event.rollback_steps = proto.rollback_steps();
  if (proto.time() == v1::AT_CHECKPOINT) event.time = UpdateTime::kAtCheckpoint;
  if (proto.time() == v1::NOW) event.time = UpdateTime::kNow;
  event.withdraws = proto.withdraw();
  return event;
}

}  // namespace muster::coordinator
