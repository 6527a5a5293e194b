#include "daemon/activity_messages.h"

#include <algorithm>

#include "common/text/escape.h"
#include "daemon/evidence_messages.h"

namespace muster::daemon {
namespace {

constexpr size_t kProcessNameBytesMax = 64;  // the kernel's names have 15 bytes before escaping

}  // namespace

ProcessActivity activity_from_proto(const v1::ProcessActivity& proto) {
  return {.is_known = true,
          .cpu = age_from(proto.cpu_ns()),
          .io_bytes = proto.io_bytes(),
          .busy = proto.busy(),
          .is_asleep = proto.is_asleep(),
          .has_device = proto.has_device(),
          .stopped_pid = std::max(proto.stopped_pid(), 0),
          .stopped_name = muster::printable(proto.stopped_name(), kProcessNameBytesMax)};
}

void activity_to_proto(const ProcessActivity& activity, v1::ProcessActivity& proto) {
  proto.set_cpu_ns(activity.cpu.count());
  proto.set_io_bytes(activity.io_bytes);
  proto.set_busy(activity.busy);
  proto.set_is_asleep(activity.is_asleep);
  proto.set_has_device(activity.has_device);
  proto.set_stopped_pid(activity.stopped_pid);
  proto.set_stopped_name(muster::printable(activity.stopped_name, kProcessNameBytesMax));
}

}  // namespace muster::daemon
