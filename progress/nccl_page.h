// Changes groups of the progress page during their life, which the NCCL plugin needs because
// communicators are created and destroyed. As in muster_progress.h, calls are thread-safe, and do
// nothing without a page or for group -1.
#pragma once

#include <cstdint>

#include "progress/muster_progress.h"

namespace muster::nccl {

constexpr int kAtMembers = 96;
constexpr int kAtId = 100;
constexpr int kAtRecordGroup = 8;

// Replaces a closed group by a new one in the same place of the page. The numbers of collectives
// restart, and the old group's records in the ring are erased.
inline void replace_group(muster_progress* page, int group, const char* name, uint32_t members,
                          uint32_t id) {
  if (!muster_is_open(page) || group < 0 || group >= MUSTER_GROUPS_MAX) return;
  const uint64_t mine = muster_lock(page);
  const int at = muster_group_at(group);
  for (int i = 0; i < MUSTER_GROUP_BYTES; i += 8) muster_store64(page, at + i, 0);
  for (int i = 0; i < MUSTER_RING_LENGTH; ++i) {
    const int record = MUSTER_AT_RING + i * MUSTER_RECORD_BYTES;
    if (muster_load32(page, record + kAtRecordGroup) == static_cast<uint32_t>(group))
      muster_store64(page, record, 0);
  }
  muster_store_name(page, at, MUSTER_GROUP_NAME_BYTES, name);
  muster_store32(page, at + kAtMembers, members);
  muster_store32(page, at + kAtId, id);
  muster_unlock(page, mine);
}

// Marks the number of the group's ranks as unknown.
inline void forget_members(muster_progress* page, int group) {
  if (!muster_is_open(page) || group < 0 || group >= MUSTER_GROUPS_MAX) return;
  const uint64_t mine = muster_lock(page);
  muster_store32(page, muster_group_at(group) + kAtMembers, 0);
  muster_unlock(page, mine);
}

}  // namespace muster::nccl
