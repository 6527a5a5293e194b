#include "common/rank_evidence.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "common/escape.h"

namespace muster {
namespace {

template <size_t N>
std::string text_of(const std::array<char, N>& name) {
  const auto end = std::find(name.begin(), name.end(), '\0');
  return printable(std::string_view(name.data(), static_cast<size_t>(end - name.begin())), N);
}

// A page is a file that its rank may write anything into.
Duration age_of(int64_t then_ns, Instant now) {
  return std::clamp(now - instant_from_ns(std::clamp<int64_t>(then_ns, 0, to_ns(now))),
                    Duration::zero(), now.time_since_epoch());
}

}  // namespace

RankEvidence evidence_from_page(const ProgressPage& page, Instant now) {
  RankEvidence evidence;
  evidence.rank = page.rank;
  evidence.pid = page.pid;
  evidence.phase = page.phase;
  evidence.phase_age = age_of(page.phase_start_ns, now);
  evidence.step = page.step;
  evidence.progress_age = age_of(page.last_progress_ns, now);
  evidence.step_seconds = page.step_seconds;
  evidence.collective_wait_seconds = page.collective_wait_seconds;
  evidence.data_wait_seconds = page.data_wait_seconds;
  const auto count = std::min<uint32_t>(page.group_count, kProgressGroupsMax);
  for (uint32_t g = 0; g < count; ++g) {
    const GroupProgress& from = page.groups[g];
    GroupEvidence& group = evidence.groups.emplace_back();
    group.name = text_of(from.name);
    group.members = from.members;
    group.id = from.id;
    group.enqueued = from.enqueued;
    group.started = from.started;
    group.completed = from.completed;
    group.kind = from.kind;
    group.dtype = from.dtype;
    group.bytes = from.bytes;
    for (const CollectiveRecord& record : page.ring) {
      if (record.group != g || record.seq != from.enqueued || record.seq == 0) continue;
      group.collective = text_of(record.name);
      group.age = age_of(record.enqueued_ns, now);
    }
  }
  return evidence;
}

}  // namespace muster
