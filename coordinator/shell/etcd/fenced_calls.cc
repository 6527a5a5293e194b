#include "coordinator/shell/etcd/fenced_calls.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include <absl/strings/str_cat.h>

namespace muster::coordinator {
namespace {

namespace api = etcdserverpb;

// The time of one call. A call to a member that does not answer is repeated at another one, early
// enough for the lease, and late enough for a slow disk.
constexpr Duration kCallTime = std::chrono::milliseconds(1'500);
constexpr Duration kPause = std::chrono::milliseconds(50);

}  // namespace

absl::Status FencedCalls::deposed() const {
  return absl::AbortedError(absl::StrCat("this coordinator no longer leads: the key ", lease_.key(),
                                         " of etcd at ", client_.endpoints(),
                                         " is not its own, or its lease could not be renewed"));
}

Duration FencedCalls::call_time() const { return std::min(kCallTime, lease_.time_left()); }

void FencedCalls::pause() const { std::this_thread::sleep_for(kPause); }

void FencedCalls::add_fence(api::TxnRequest& request) const {
  api::Compare& compare = *request.add_compare();
  compare.set_key(lease_.key());
  compare.set_target(api::Compare::CREATE);
  compare.set_create_revision(lease_.term());
}

absl::StatusOr<api::RangeResponse> FencedCalls::read_once(const api::RangeRequest& request,
                                                          Duration timeout) {
  if (!lease_.is_held()) return deposed();
  auto found = client_.range(request, timeout);
  if (found.ok()) revision_ = std::max(revision_, found->header().revision());
  return found;
}

absl::StatusOr<api::RangeResponse> FencedCalls::range(const api::RangeRequest& request) {
  while (true) {
    auto found = read_once(request, call_time());
    if (!absl::IsUnavailable(found.status())) return found;
    pause();
  }
}

absl::StatusOr<api::TxnResponse> FencedCalls::try_once(const api::TxnRequest& request) {
  if (!lease_.is_held()) return deposed();
  auto done = client_.txn(request, call_time());
  if (done.ok()) revision_ = std::max(revision_, done->header().revision());
  return done;
}

}  // namespace muster::coordinator
