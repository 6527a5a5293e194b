#include "trainer_core/comm/nccl_communicator.h"

#include <algorithm>
#include <cstring>
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

constexpr size_t kIdWords = sizeof(NcclUniqueId) / sizeof(int32_t);

}  // namespace

NcclEnd::~NcclEnd() {
  if (communicator_ == nullptr) return;
  const bool gone =
      aborted_ ||
      !wait(options_.api->finalize(communicator_), monotonic_now() + kFinalizeTimeout, [] {
         return true;
       }).ok();
  if (communicator_ == nullptr) return;
  (void)(gone ? options_.api->abort(communicator_) : options_.api->destroy(communicator_));
}

absl::Status NcclEnd::error(NcclResult result) const {
  return absl::UnavailableError(absl::StrCat("NCCL: ", options_.api->error_text(result)));
}

absl::Status NcclEnd::give_up(absl::Status status) {
  if (communicator_ != nullptr) (void)options_.api->abort(communicator_);
  communicator_ = nullptr;
  broken_ = status;
  return status;
}

absl::Status NcclEnd::wait(NcclResult called, Instant deadline, absl::FunctionRef<bool()> done) {
  if (called != kNcclSuccess && called != kNcclInProgress) return give_up(error(called));
  const Instant began = monotonic_now();
  for (;;) {
    NcclResult found = kNcclSuccess;
    if (communicator_ != nullptr) {
      const NcclResult asked = options_.api->async_error(communicator_, &found);
      if (asked != kNcclSuccess) found = asked;
    }
    if (found != kNcclSuccess && found != kNcclInProgress) return give_up(error(found));
    if (found == kNcclSuccess && done()) return absl::OkStatus();
    if (aborted_) return give_up(absl::UnavailableError("aborted"));
    const Instant now = monotonic_now();
    if (now >= deadline)
      return give_up(absl::DeadlineExceededError(
          absl::StrCat("NCCL: nothing for ", to_seconds(now - began), " s")));
    if (now - began < kEagerFor) {
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
    return error(result);
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
  if (words[0] != kNcclSuccess) return error(words[0]);
  std::memcpy(id.bytes.data(), words.data() + 1, sizeof(id));
  return id;
}

absl::Status NcclEnd::init(const NcclUniqueId& id, int ranks, int rank) {
  NcclConfig config;
  const Instant deadline = monotonic_now() + options_.connect_timeout;
  return wait(options_.api->init(&communicator_, ranks, id, rank, &config), deadline,
              [] { return true; });
}

absl::Status NcclEnd::connect(ProcessGroup& group) {
  if (!broken_.ok()) return broken_;
  queue_ = memory_.open_queue();
  const auto id = share_id(group);
  if (!id.ok()) return id.status();
  const absl::Status mine = init(*id, group.size(), group.rank());
  // All of them know who has none before anybody waits for it in a collective.
  std::vector<int32_t> there(static_cast<size_t>(group.size()));
  if (auto status =
          group.all_gather(std::vector<int32_t>{mine.ok() ? 1 : 0}, there, "nccl communicator");
      !status.ok())
    return give_up(status);
  if (!mine.ok()) return mine;
  std::string missing;
  for (size_t rank = 0; rank < there.size(); ++rank)
    if (there[rank] == 0) absl::StrAppend(&missing, missing.empty() ? "" : ", ", rank);
  if (missing.empty()) return absl::OkStatus();
  return give_up(absl::UnavailableError(absl::StrCat(
      "of group ", group.name(), " these ranks have no NCCL communicator: ", missing,
      "; their errors say why (a network interface, say: NCCL_SOCKET_IFNAME, NCCL_IB_HCA)")));
}

absl::Status NcclEnd::run(Call call) {
  if (!broken_.ok()) return broken_;
  if (aborted_) return give_up(absl::UnavailableError("aborted"));
  const Instant deadline = monotonic_now() + options_.timeout;
  return wait(call(communicator_, queue_->handle()), deadline, [&] { return queue_->is_idle(); });
}

}  // namespace muster::trainer
