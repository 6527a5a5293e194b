#include "trainer_core/comm/nccl_communicator.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

#include "common/time.h"

namespace muster::trainer {
namespace {

// A collective of a step takes from microseconds to milliseconds: first it is asked for without a pause, then with one that costs no
// core.
constexpr auto kEagerFor = std::chrono::microseconds(200);
constexpr auto kPause = std::chrono::microseconds(50);
// What peers may still want of a communicator that its rank leaves.
constexpr auto kFinalizeTimeout = std::chrono::seconds(5);

// Beside NCCL's own results, none of which is negative.
constexpr NcclResult kAborted = -1, kGone = -2;

constexpr size_t kIdWords = sizeof(NcclUniqueId) / sizeof(int32_t);

// Of calls that do not block.
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

NcclResult NcclEnd::ask() const {
  const std::lock_guard lock(mutex_);
  if (communicator_ == nullptr) return kGone;
  NcclResult found = kNcclSuccess;
  const NcclResult asked = options_.api->async_error(communicator_, &found);
  return asked == kNcclSuccess ? found : asked;
}

NcclResult NcclEnd::wait(NcclResult called, Duration timeout, Manner manner,
                         absl::FunctionRef<bool(NcclResult found)> done) const {
  if (called != kNcclSuccess && called != kNcclInProgress) return called;
  const Instant began = monotonic_now();
  for (;;) {
    const NcclResult found = ask();
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

// The versions first: an id of another one may not be understood, and nobody would know.
absl::StatusOr<NcclUniqueId> NcclEnd::share_id(ProcessGroup& group) {
  const auto size = static_cast<size_t>(group.size());
  int32_t version = 0;
  if (const NcclResult result = options_.api->version(&version); result != kNcclSuccess)
    return absl::UnavailableError(text_of(result));
  std::vector<int32_t> versions(size);
  if (auto status = group.all_gather(std::vector<int32_t>{version}, versions, "nccl version");
      !status.ok())
    return status;
  const auto other = std::ranges::find_if(versions, [&](int32_t v) { return v != versions[0]; });
  if (other != versions.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", other - versions.begin(), " of group ", group.name(), " has NCCL ",
                     nccl_version_text(*other), ", and rank 0 ", nccl_version_text(versions[0]),
                     "; every node needs the same libnccl.so.2"));
  }
  NcclUniqueId id;
  std::vector<int32_t> words(1 + kIdWords);  // the result, then the id
  if (group.rank() == 0) {
    words[0] = options_.api->unique_id(&id);
    std::memcpy(words.data() + 1, id.bytes.data(), sizeof(id));
  }
  if (auto status = group.broadcast(words, 0, "nccl id"); !status.ok()) return status;
  if (words[0] != kNcclSuccess) return absl::UnavailableError(text_of(words[0]));
  std::memcpy(id.bytes.data(), words.data() + 1, sizeof(id));
  return id;
}

NcclResult NcclEnd::init(const NcclUniqueId& id, int ranks, int rank) {
  NcclConfig config;
  NcclResult called = kNcclSuccess;
  {
    const std::lock_guard lock(mutex_);
    called = options_.api->init(&communicator_, ranks, id, rank, &config);
  }
  return wait(called, options_.connect_timeout, Manner::kEager, is_called);
}

// Of ranks that have compared versions: one knows what another's number means.
absl::Status NcclEnd::judge(const ProcessGroup& group, std::span<const int32_t> found) const {
  std::map<NcclResult, std::string> missing;  // ranks by what they found
  for (size_t rank = 0; rank < found.size(); ++rank) {
    if (found[rank] == kNcclSuccess) continue;
    std::string& ranks = missing[found[rank]];
    absl::StrAppend(&ranks, ranks.empty() ? "" : ", ", rank);
  }
  if (missing.empty()) return absl::OkStatus();
  // Those who only waited come last: an error of another's is why.
  const auto waited = missing.extract(kNcclInProgress);
  std::string text =
      absl::StrCat("of group ", group.name(), " these ranks have no NCCL communicator: ");
  for (const auto& [result, ranks] : missing)
    absl::StrAppend(&text, ranks, " (", text_of(result), "); ");
  if (!waited.empty()) {
    absl::StrAppend(&text, waited.mapped(), " (nothing for ", to_seconds(options_.connect_timeout),
                    " s", missing.empty() ? ", and NCCL has found no error on any rank); " : "); ");
  }
  absl::StrAppend(&text,
                  "look at the network between their nodes: NCCL_SOCKET_IFNAME and "
                  "NCCL_IB_HCA choose it, NCCL_DEBUG=INFO says where each rank waits");
  return missing.empty() ? absl::DeadlineExceededError(text) : absl::UnavailableError(text);
}

absl::Status NcclEnd::connect(ProcessGroup& group) {
  if (!broken_.ok()) return broken_;
  if (queue_ == nullptr) queue_ = memory_.open_queue();
  const auto id = share_id(group);
  if (!id.ok()) return id.status();
  const NcclResult mine = init(*id, group.size(), group.rank());
  // All of them know who has none before anybody waits for it in a collective. NCCL tells the others nothing: they wait, and each for all.
  std::vector<int32_t> all(static_cast<size_t>(group.size()));
  const absl::Status told = group.all_gather(std::vector<int32_t>{mine}, all, "nccl communicator");
  const absl::Status together = told.ok()              ? judge(group, all)
                                : mine == kNcclSuccess ? told
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
  // A later call may be in progress meanwhile.
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
