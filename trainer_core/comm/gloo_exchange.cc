#include "trainer_core/comm/gloo_exchange.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <set>
#include <string>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <gloo/transport/pair.h>

namespace muster::trainer {
namespace {

using std::chrono::milliseconds;

// How long a failed round asks each other peer whether it is gone, too.
constexpr milliseconds kProbe{2};

bool is_timeout(const char* error) { return std::strstr(error, "Timed out") != nullptr; }

std::string rank_list(const std::set<int>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

}  // namespace

absl::Status GlooExchange::run(uint64_t slot, const std::vector<OutgoingPart>& out,
                               const std::vector<IncomingPart>& in) {
  if (closed_) return absl::UnavailableError("an earlier collective of the group failed");
  absl::Status status = post(slot, out, in);
  if (status.ok()) status = wait_all(sends_, receives_, out, in);
  if (!status.ok()) close();
  const std::lock_guard lock(mutex_);
  sends_.clear();
  receives_.clear();
  return status;
}

// Hands every part to Gloo, which refuses those of a connection that is lost already.
absl::Status GlooExchange::post(uint64_t slot, const std::vector<OutgoingPart>& out,
                                const std::vector<IncomingPart>& in) {
  const std::lock_guard lock(mutex_);
  int peer = -1;
  try {
    for (const IncomingPart& part : in) {
      peer = part.peer;
      receives_.push_back(context_->createUnboundBuffer(part.data, part.count * sizeof(float)));
      if (part.count > 0) receives_.back()->recv(peer, slot);
    }
    for (const OutgoingPart& part : out) {
      peer = part.peer;
      sends_.push_back(
          context_->createUnboundBuffer(const_cast<float*>(part.data), part.count * sizeof(float)));
      if (part.count > 0) sends_.back()->send(peer, slot);
    }
  } catch (const std::exception& e) {
    return absl::UnavailableError(
        absl::StrCat("the connection to rank ", peer, " is lost: ", e.what()));
  }
  return absl::OkStatus();
}

absl::Status GlooExchange::wait_all(Buffers& sends, Buffers& receives,
                                    const std::vector<OutgoingPart>& out,
                                    const std::vector<IncomingPart>& in) {
  const auto aborted = [] { return absl::UnavailableError("aborted"); };
  size_t i = 0;
  try {
    for (; i < in.size(); ++i) {
      if (in[i].count == 0) continue;
      if (aborted_ || !receives[i]->waitRecv(timeout_)) return aborted();
    }
  } catch (const std::exception& e) {
    return explain_failure(receives, in, i, e.what());
  }
  for (size_t k = 0; k < out.size(); ++k) {
    if (out[k].count == 0) continue;
    try {
      if (aborted_ || !sends[k]->waitSend(timeout_)) return aborted();
    } catch (const std::exception& e) {
      return absl::UnavailableError(
          absl::StrCat("the connection to rank ", out[k].peer, " is lost: ", e.what()));
    }
  }
  return absl::OkStatus();
}

// The wait for part `first` ended with `error`. A peer that fails because of a third one closes its
// connections as well, so the others are asked: every closed connection is named, and the one that
// died first is among them.
absl::Status GlooExchange::explain_failure(Buffers& receives, const std::vector<IncomingPart>& in,
                                           size_t first, const char* error) {
  std::set<int> lost;
  std::set<int> silent;
  (is_timeout(error) ? silent : lost).insert(in[first].peer);
  for (size_t i = first + 1; i < in.size(); ++i) {
    if (in[i].count == 0) continue;
    try {
      if (!receives[i]->waitRecv(kProbe)) return absl::UnavailableError("aborted");
    } catch (const std::exception& e) {
      (is_timeout(e.what()) || is_timeout(error) ? silent : lost).insert(in[i].peer);
    }
  }
  if (!lost.empty()) {
    return absl::UnavailableError(absl::StrCat("the connection to ", rank_list(lost), " is lost"));
  }
  return absl::DeadlineExceededError(
      absl::StrCat("nothing came from ", rank_list(silent), " within ", timeout_.count(), " ms"));
}

void GlooExchange::abort() {
  aborted_ = true;
  const std::lock_guard lock(mutex_);
  for (auto& buffer : receives_) buffer->abortWaitRecv();
  for (auto& buffer : sends_) buffer->abortWaitSend();
}

void GlooExchange::close() {
  closed_ = true;
  try {
    context_->closeConnections();
  } catch (const std::exception&) {
    // Closed is closed; the first failure is the one to report.
  }
}

}  // namespace muster::trainer
