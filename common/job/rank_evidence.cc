#include "common/job/rank_evidence.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include <absl/strings/str_format.h>

#include "common/job/mesh.h"
#include "common/text/escape.h"

namespace muster {
namespace {

// Returns a page's NUL-padded field as printable text; the rank's program controls the bytes.
template <size_t N>
std::string printable(const std::array<char, N>& field) {
  const auto end = std::ranges::find(field, '\0');
  return escape_controls({field.data(), static_cast<size_t>(end - field.begin())},
                         Layout::kOneLine);
}

Duration since(int64_t then_ns, Instant now) {
  return then_ns <= 0 ? Duration{} : std::max(now - instant_from_ns(then_ns), Duration{});
}

// Returns `seconds`, or 0 for a value that cannot be a duration: programs may corrupt their pages.
double sane(double seconds) { return std::isfinite(seconds) && seconds > 0 ? seconds : 0; }

// Returns the ring's record of the group's first collective that is not completed. If the ring does
// not have it, returns the newest record of the group that is not completed; if there is none, the
// newest record of the group; nullptr if the ring has no record of the group.
const CollectiveRecord* record_of(const ProgressPage& page, uint32_t group) {
  const CollectiveRecord* best = nullptr;
  const auto weight = [&](const CollectiveRecord& record) {
    const bool is_open = record.completed_ns == 0;
    return std::tuple(is_open && record.seq == page.groups[group].completed + 1, is_open,
                      record.seq);
  };
  for (const CollectiveRecord& record : page.ring) {
    if (record.seq == 0 || record.group != group) continue;
    if (best == nullptr || weight(record) > weight(*best)) best = &record;
  }
  return best;
}

GroupEvidence group_evidence(const ProgressPage& page, uint32_t index, Instant now) {
  const GroupProgress& group = page.groups[index];
  GroupEvidence evidence{.name = printable(group.name),
                         .members = group.members,
                         .id = group.id,
                         .enqueued = group.enqueued,
                         .started = group.started,
                         .completed = group.completed,
                         .kind = group.kind,
                         .dtype = group.dtype,
                         .bytes = group.bytes,
                         .collective = {}};
  if (const CollectiveRecord* record = record_of(page, index)) {
    evidence.kind = record->kind;
    evidence.bytes = record->bytes;
    evidence.collective = printable(record->name);
    evidence.age = since(record->enqueued_ns, now);
    if (record->seq != group.enqueued) evidence.called = record->seq;
  }
  return evidence;
}

bool consume(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Consumes a positive number. Returns false, and leaves `text` unchanged, if it begins otherwise.
bool consume_number(std::string_view& text, int32_t& number) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || number <= 0) return false;
  text = {rest, static_cast<size_t>(end - rest)};
  return true;
}

// Consumes an AxisSet's text ("fsdp+context", "none"). Returns false if `text` begins otherwise.
bool consume_axes(std::string_view& text) {
  if (consume(text, AxisSet().to_string())) return true;
  bool found = false;
  for (const std::string_view axis : kMeshAxisNames) {
    std::string_view rest = text;
    if (found && !consume(rest, "+")) break;
    if (!consume(rest, axis)) continue;
    text = rest;
    found = true;
  }
  return found;
}

}  // namespace

std::string to_string(const MemoryUse& use) {
  constexpr double kGib = 1 << 30;
  return absl::StrFormat("%.1f of %.1f GiB", static_cast<double>(use.used) / kGib,
                         static_cast<double>(use.limit) / kGib);
}

int32_t GroupEvidence::channel() const {
  std::string_view rest = name;
  if (!consume_axes(rest)) return 0;
  if (int32_t run = 0; consume(rest, "/") && !consume_number(rest, run)) {
    if (!consume(rest, "ends")) return 0;
  } else {
    consume(rest, "/ends");
  }
  int32_t number = 0;
  if (!consume(rest, "#") || !consume_number(rest, number)) return 0;
  // Pages cut long names, so the suffix may be incomplete.
  return std::string_view(" nccl").starts_with(rest) ? number : 0;
}

RankEvidence evidence_from_page(const ProgressPage& page, Instant now) {
  RankEvidence evidence{.rank = page.rank,
                        .pid = page.pid,
                        .page_problem = {},
                        .phase = page.phase,
                        .phase_age = since(page.phase_start_ns, now),
                        .step = page.step,
                        .progress_age = since(page.last_progress_ns, now),
                        .step_seconds = sane(page.step_seconds),
                        .collective_wait_seconds = sane(page.collective_wait_seconds),
                        .data_wait_seconds = sane(page.data_wait_seconds),
                        .groups = {},
                        .wait_channel = {},
                        .stack_problem = {},
                        .stack_note = {},
                        .last_lines = {}};
  const uint32_t groups = std::min<uint32_t>(page.group_count, kProgressGroupsMax);
  for (uint32_t i = 0; i < groups; ++i) evidence.groups.push_back(group_evidence(page, i, now));
  return evidence;
}

}  // namespace muster
