#include "coordinator/core/blame/blame_text.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "common/text/with_commas.h"

namespace muster::coordinator {
namespace {

// The bound of a displayed name. Names on pages have at most 31 bytes; message names of user
// programs may be longer.
constexpr size_t kNameShownBytesMax = 64;
constexpr size_t kRangesShownMax = 8;

std::string in_quotes(std::string_view name) {
  return absl::StrCat("\"", printable(name, kNameShownBytesMax), "\"");
}

// Returns the call that a member of the instance shows, if its page still shows this call.
const GroupEvidence* call_of(const WaitGraph::Instance& instance) {
  for (const WaitGraph::Member& member : instance.inside)
    if (instance.seq == 0 || member.group->number() == instance.seq) return member.group;
  return nullptr;
}

// Returns "all-reduce 41", "collective 41" or "recv".
std::string number_text(const WaitGraph::Instance& instance) {
  const GroupEvidence* call = call_of(instance);
  const std::string kind =
      call == nullptr ? "collective" : std::string(collective_name(call->kind));
  return instance.seq == 0 ? kind : absl::StrCat(kind, " ", instance.seq);
}

std::string name_of(const WaitGraph::Instance& instance) {
  if (instance.seq == 0) return instance.message;
  const GroupEvidence* call = call_of(instance);
  return call == nullptr ? "" : call->collective;
}

}  // namespace

std::string rank_and_node_text(int32_t rank, const std::vector<RankPlacement>& placement) {
  const auto index = static_cast<size_t>(rank);
  if (rank < 0 || index >= placement.size()) return absl::StrCat("rank ", rank);
  return absl::StrCat("rank ", rank, " on ", placement[index].worker.value());
}

std::string ranks_text(const RankSet& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", ranks.text(kRangesShownMax));
}

RankSet ranks_of(const std::vector<WaitGraph::Member>& members) {
  RankSet ranks;
  for (const WaitGraph::Member& member : members) ranks.add(member.rank);
  return ranks;
}

RankSet ranks_of(const std::vector<int32_t>& ranks) {
  RankSet set;
  for (const int32_t rank : ranks) set.add(rank);
  return set;
}

std::string axis_text(const WaitGraph::Group& group) {
  // In a group of a user program, "x#7" is a complete name.
  const size_t end = group.channel > 0 ? group.name.rfind('#') : std::string::npos;
  return printable(std::string_view(group.name).substr(0, end), kNameShownBytesMax);
}

std::string collective_text(const WaitGraph& graph, const WaitGraph::Instance& instance) {
  const std::string name = name_of(instance);
  return absl::StrCat(number_text(instance), name.empty() ? "" : " ",
                      name.empty() ? "" : in_quotes(name), " of ",
                      axis_text(graph.groups()[instance.group]));
}

std::string collective_short(const WaitGraph::Instance& instance) {
  const std::string name = name_of(instance);
  return name.empty() ? number_text(instance) : printable(name, kNameShownBytesMax);
}

std::string call_text(const GroupEvidence& call) {
  std::string text(collective_name(call.kind));
  if (!call.collective.empty()) absl::StrAppend(&text, " ", in_quotes(call.collective));
  if (call.bytes == 0) return text;  // programs need not report a size
  const auto bytes = static_cast<int64_t>(std::min<uint64_t>(call.bytes, INT64_MAX));
  return absl::StrCat(text, " of ", with_commas(bytes), bytes == 1 ? " byte" : " bytes");
}

std::string wait_text(const std::vector<WaitGraph::Member>& inside) {
  Duration longest{};
  for (const WaitGraph::Member& member : inside) longest = std::max(longest, member.group->age);
  return longest > Duration::zero() ? absl::StrCat(" (", age_text(longest), ")") : "";
}

std::string age_text(Duration age) {
  const double seconds = to_seconds(age);
  if (seconds < 120) return absl::StrFormat("%.1f s", seconds);
  if (seconds < 7200) return absl::StrFormat("%.0f min", seconds / 60);
  return absl::StrFormat("%.1f h", seconds / 3600);
}

}  // namespace muster::coordinator
