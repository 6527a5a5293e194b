#include "trainer_core/comm/nccl_communicator.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/text/escape.h"
#include "common/time/time.h"

namespace muster::trainer {
namespace {

// A step's collectives take microseconds to milliseconds: the wait polls without pausing at first,
// then with a pause that frees the core.
constexpr auto kEagerFor = std::chrono::microseconds(200);
constexpr auto kPause = std::chrono::microseconds(50);
// The maximum time to wait for operations that peers still need when a rank destroys its
// communicator.
constexpr auto kFinalizeTimeout = std::chrono::seconds(5);

// Additional results; those of NCCL are never negative.
constexpr NcclResult kAborted = -1, kGone = -2;

constexpr size_t kIdWords = sizeof(NcclUniqueId) / sizeof(int32_t);

// Returns the names of the interfaces that NCCL could use, in order.
std::string interface_names() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return "unknown interfaces";
  const absl::Cleanup release = [first] { freeifaddrs(first); };
  std::set<std::string> names;
  for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
    const bool has_address = at->ifa_addr != nullptr && (at->ifa_addr->sa_family == AF_INET ||
                                                         at->ifa_addr->sa_family == AF_INET6);
    if (has_address && (at->ifa_flags & IFF_UP) != 0) names.insert(at->ifa_name);
  }
  return names.empty() ? "no interface that is up" : absl::StrJoin(names, ", ");
}

// Returns advice for a failed communicator, with this rank's network settings.
std::string network_advice() {
  constexpr size_t kValueBytesMax = 64;
  const char* const wanted = std::getenv("NCCL_SOCKET_IFNAME");
  return absl::StrCat("check the network between their nodes: NCCL_SOCKET_IFNAME (here ",
                      wanted == nullptr ? "unset" : printable(wanted, kValueBytesMax), ", of ",
                      interface_names(),
                      ") and NCCL_IB_HCA choose it, NCCL_DEBUG=INFO shows where each rank waits");
}

// Returns whether the environment makes NCCL 2.26 or newer impose a launch order, which channels do
// not have (nccl_group.h).
bool orders_launches() {
  const char* const order = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  return order != nullptr && std::string_view(order) != "0";
}

// Returns whether a call that does not block has succeeded.
bool is_called(NcclResult found) { return found == kNcclSuccess; }

}  // namespace

NcclEnd::~NcclEnd() {
  if (communicator_ == nullptr) return;
  const bool gone = is_aborted() || wait(options_.api->finalize(communicator_), kFinalizeTimeout,
                                         Manner::kEager, is_called) != kNcclSuccess;
  (void)(gone ? options_.api->abort(communicator_) : options_.api->destroy(communicator_));
}

std::string NcclEnd::text_of(NcclResult result) const {
  return result == kAborted ? "aborted" : absl::StrCat("NCCL: ", options_.api->error_text(result));
}

absl::Status NcclEnd::give_up(absl::Status status) {
  const std::lock_guard lock(mutex_);
  if (communicator_ != nullptr) (void)options_.api->abort(communicator_);
  communicator_ = nullptr;
  if (broken_.ok()) broken_ = std::move(status);
  return broken_;
}

NcclResult NcclEnd::query() const {
  const std::lock_guard lock(mutex_);
  if (communicator_ == nullptr) return kGone;
  NcclResult found = kNcclSuccess;
  const NcclResult outcome = options_.api->async_error(communicator_, &found);
  return outcome == kNcclSuccess ? found : outcome;
}

NcclResult NcclEnd::wait(NcclResult called, Duration timeout, Manner manner,
                         absl::FunctionRef<bool(NcclResult found)> done) const {
  if (called != kNcclSuccess && called != kNcclInProgress) return called;
  const Instant began = monotonic_now();
  for (;;) {
    const NcclResult found = query();
    if (found != kNcclSuccess && found != kNcclInProgress) return found;
    if (done(found)) return kNcclSuccess;
    if (is_aborted()) return kAborted;
    const Duration waited = monotonic_now() - began;
    if (waited >= timeout) return kNcclInProgress;
    if (manner == Manner::kEager && waited < kEagerFor) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
}

// Broadcasts the id of rank 0. First compares versions and forbidden environment variables of all
// ranks, because another version of NCCL may misread the id without an error.
absl::StatusOr<NcclUniqueId> NcclEnd::share_id(ProcessGroup& group) {
  const auto size = static_cast<size_t>(group.size());
  int32_t version = 0;
  if (const NcclResult result = options_.api->version(&version); result != kNcclSuccess)
    return absl::UnavailableError(text_of(result));
  const std::array<int32_t, 2> mine = {version, orders_launches() ? 1 : 0};
  std::vector<int32_t> all(mine.size() * size);
  if (auto status = group.all_gather(mine, all, "nccl version"); !status.ok()) return status;
  for (size_t rank = 0; rank < size; ++rank) {
    const std::string subject = absl::StrCat("rank ", rank, " of group ", group.name(), " has ");
    if (all[2 * rank] != all[0])
      return absl::FailedPreconditionError(
          absl::StrCat(subject, "NCCL ", nccl_version_text(all[2 * rank]), ", and rank 0 ",
                       nccl_version_text(all[0]), "; every node needs the same libnccl.so.2"));
    if (all[2 * rank + 1] != 0)
      return absl::FailedPreconditionError(
          absl::StrCat(subject,
                       "NCCL_LAUNCH_ORDER_IMPLICIT in its environment: several threads of a rank "
                       "call NCCL, in orders that differ from rank to rank; unset it"));
  }
  version_ = version;
  NcclUniqueId id;
  std::vector<int32_t> words(1 + kIdWords);  // the result, then the id
  if (group.rank() == 0) {
    words[0] = options_.api->unique_id(&id);
    std::memcpy(words.data() + 1, id.bytes.data(), sizeof(id));
  }
  if (auto status = group.broadcast(words, 0, "nccl id"); !status.ok()) return status;
  if (words[0] != kNcclSuccess) return no_id(group, words[0]);
  std::memcpy(id.bytes.data(), words.data() + 1, sizeof(id));
  return id;
}

// Returns the error if rank 0 gets no id: rank 0's own error on rank 0, the loss of rank 0 on the
// others.
absl::Status NcclEnd::no_id(const ProcessGroup& group, NcclResult found) const {
  const std::string what =
      absl::StrCat("rank 0 of group ", group.name(), " cannot begin NCCL (", text_of(found), ")");
  return group.rank() == 0
             ? absl::FailedPreconditionError(absl::StrCat(what, "; ", network_advice()))
             : absl::UnavailableError(absl::StrCat(what, "; its log has the reason"));
}

NcclResult NcclEnd::init(const NcclUniqueId& id, int ranks, int rank) {
  NcclConfig config = NcclConfig::of(version_);
  if (options_.blocks_max > 0) config.max_ctas = options_.blocks_max;
  NcclResult called = kNcclSuccess;
  {
    const std::lock_guard lock(mutex_);
    called = options_.api->init(&communicator_, ranks, id, rank, &config);
  }
  return wait(called, options_.connect_timeout, Manner::kEager, is_called);
}

// Requires that the ranks have compared versions: only then do result codes have the same meaning
// on all ranks.
absl::Status NcclEnd::judge(const ProcessGroup& group, std::span<const int32_t> found) const {
  std::map<NcclResult, std::string> missing;  // ranks by result
  for (size_t rank = 0; rank < found.size(); ++rank) {
    if (found[rank] == kNcclSuccess) continue;
    std::string& ranks = missing[found[rank]];
    absl::StrAppend(&ranks, ranks.empty() ? "" : ", ", rank);
  }
  if (missing.empty()) return absl::OkStatus();
  const NcclResult mine = found[static_cast<size_t>(group.rank())];
  // Ranks that only waited are listed last, because the error of another rank is the cause.
  const auto waited = missing.extract(kNcclInProgress);
  std::string text =
      absl::StrCat("of group ", group.name(), " these ranks have no NCCL communicator: ");
  for (const auto& [result, ranks] : missing)
    absl::StrAppend(&text, ranks, " (", text_of(result), "); ");
  if (!waited.empty()) {
    absl::StrAppend(&text, waited.mapped(), " (nothing for ", to_seconds(options_.connect_timeout),
                    " s", missing.empty() ? ", and NCCL has found no error on any rank); " : "); ");
  }
  absl::StrAppend(&text, network_advice());
  if (missing.empty()) return absl::DeadlineExceededError(text);
  // A rank that reports an error has not lost a peer; its peers have lost this rank. The exception
  // is this error code.
  constexpr NcclResult kRemoteError = 6;
  const bool own = mine > kNcclSuccess && mine != kNcclInProgress && mine != kRemoteError;
  return own ? absl::FailedPreconditionError(text) : absl::UnavailableError(text);
}

absl::Status NcclEnd::connect(ProcessGroup& group) {
  if (!broken_.ok()) return broken_;
  if (queue_ == nullptr) queue_ = memory_.open_queue();
  const auto id = share_id(group);
  if (!id.ok()) return id.status();
  const NcclResult mine = init(*id, group.size(), group.rank());
  // The ranks exchange their results before any rank waits in a collective for a rank without a
  // communicator. NCCL itself does not notify the other ranks.
  std::vector<int32_t> all(static_cast<size_t>(group.size()));
  const absl::Status gathered =
      group.all_gather(std::vector<int32_t>{mine}, all, "nccl communicator");
  const absl::Status together = gathered.ok()          ? judge(group, all)
                                : mine == kNcclSuccess ? gathered
                                                       : absl::UnavailableError(text_of(mine));
  connected_ = together.ok();
  return connected_ ? together : give_up(together);
}

absl::Status NcclEnd::launch(Call call) {
  NcclResult called = kAborted;
  {
    const std::lock_guard lock(mutex_);
    if (!broken_.ok()) return broken_;
    if (!is_aborted()) called = call(communicator_, queue_->handle());
  }
  return conclude(wait(called, options_.timeout, Manner::kEager, is_called), options_.timeout);
}

absl::Status NcclEnd::await(const DeviceMark& mark, Duration timeout, Manner manner) {
  // Ignores NCCL's state, because a later call may be in progress.
  const auto done = [&](NcclResult) { return mark.is_done(); };
  return conclude(wait(kNcclInProgress, timeout, manner, done), timeout);
}

absl::Status NcclEnd::conclude(NcclResult result, Duration timeout) {
  if (result == kNcclSuccess) return absl::OkStatus();
  return give_up(result == kNcclInProgress ? absl::DeadlineExceededError(absl::StrCat(
                                                 "NCCL: nothing for ", to_seconds(timeout), " s"))
                                           : absl::UnavailableError(text_of(result)));
}

}  // namespace muster::trainer
