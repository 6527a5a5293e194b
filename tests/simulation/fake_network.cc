#include "tests/simulation/fake_network.h"

#include <algorithm>

namespace muster::simulation {
namespace {

constexpr Duration kMs = std::chrono::milliseconds(1);
constexpr Duration kTcpWaitMax = std::chrono::seconds(15);

}  // namespace

StreamId FakeNetwork::open(int host, End worker, End coordinator) {
  const StreamId id = next_++;
  Stream& stream = streams_[id];
  stream.host = host;
  stream.worker = std::move(worker);
  stream.coordinator = std::move(coordinator);
  return id;
}

FakeNetwork::Stream* FakeNetwork::find(StreamId id) {
  const auto it = streams_.find(id);
  return it == streams_.end() ? nullptr : &it->second;
}

bool FakeNetwork::is_partitioned(int host) const {
  const auto it = partitioned_until_.find(host);
  return it != partitioned_until_.end() && it->second > scheduler_.now();
}

void FakeNetwork::partition(int host, Duration time) {
  Instant& until = partitioned_until_[host];
  until = std::max(until, scheduler_.now() + time);
  if (!faultless_) return;
  const auto longest = static_cast<uint64_t>(std::min(time, kTcpWaitMax) / kMs);
  for (auto& [id, stream] : streams_)
    if (stream.host == host) stream.silent_until = until + random_.between_ms(1, longest);
}

void FakeNetwork::end_partitions() {
  partitioned_until_.clear();
  for (auto& [hosts, link] : links_) link.until = std::min(link.until, scheduler_.now());
  for (auto& [id, stream] : streams_) stream.silent_until = Instant{};
}

bool FakeNetwork::is_unanswered(StreamId id, Duration time) const {
  const auto found = streams_.find(id);
  return found != streams_.end() && found->second.waits_since &&
         *found->second.waits_since + time <= scheduler_.now();
}

void FakeNetwork::cut_link(int a, int b, Duration time) {
  LinkCut& link = links_[std::minmax(a, b)];
  const Instant now = scheduler_.now();
  if (link.until <= now) {
    link.longest = std::max(link.longest, link.until - link.since);
    link.since = now;
  }
  link.until = std::max(link.until, now + time);
}

Duration FakeNetwork::longest_cut(int a, int b) const {
  const auto it = links_.find(std::minmax(a, b));
  if (it == links_.end()) return Duration::zero();
  const LinkCut& link = it->second;
  return std::max(link.longest, std::min(link.until, scheduler_.now()) - link.since);
}

std::optional<Duration> FakeNetwork::time_of_cut(int a, int b) const {
  const auto it = links_.find(std::minmax(a, b));
  const Instant now = scheduler_.now();
  if (it == links_.end() || it->second.until <= now) return std::nullopt;
  return now - it->second.since;
}

// Returns the arrival time of a message. Messages sent into a partitioned network wait in the
// kernel until the partition ends.
Instant FakeNetwork::arrival(const Stream& stream, Instant not_before) {
  const bool slow = !faultless_ && random_.chance(0.02);
  Instant when =
      scheduler_.now() + (slow ? random_.between_ms(100, 3'000) : random_.between_ms(1, 20));
  if (is_partitioned(stream.host))
    when = std::max(when, partitioned_until_.at(stream.host) + random_.between_ms(1, 200));
  if (stream.silent_until > scheduler_.now())
    when = std::max(when, stream.silent_until + random_.between_ms(1, 200));
  return std::max(when, not_before);
}

void FakeNetwork::to_coordinator(StreamId id, bool may_lag, std::function<void()> deliver) {
  Stream* stream = find(id);
  if (stream == nullptr || !stream->worker_open) return;
  Instant when = arrival(*stream, stream->last_to_coordinator);
  if (may_lag && !faultless_ && random_.chance(0.05)) {
    when += random_.between_ms(1, 2'000);
  } else {
    stream->last_to_coordinator = when;
  }
  if (!stream->waits_since &&
      (is_partitioned(stream->host) || stream->silent_until > scheduler_.now()))
    stream->waits_since = scheduler_.now();
  const int copies = !faultless_ && random_.chance(0.03) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    ++stream->undelivered;
    scheduler_.at(when, [this, id, deliver] {
      Stream* s = find(id);
      if (s == nullptr) return;
      --s->undelivered;
      s->waits_since.reset();
      if (s->coordinator_open && s->intact) deliver();
    });
  }
}

bool FakeNetwork::has_undelivered(StreamId id) const {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return false;
  const Stream& stream = found->second;
  return stream.undelivered > 0 && stream.intact && stream.coordinator_open &&
         !is_partitioned(stream.host) && stream.silent_until <= scheduler_.now();
}

void FakeNetwork::to_worker(StreamId id, std::function<void()> deliver) {
  Stream* stream = find(id);
  if (stream == nullptr || !stream->coordinator_open) return;
  const Instant when = arrival(*stream, stream->last_to_worker);
  stream->last_to_worker = when;
  const int copies = !faultless_ && random_.chance(0.03) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    scheduler_.at(when, [this, id, deliver] {
      const Stream* s = find(id);
      if (s != nullptr && s->worker_open && s->intact) deliver();
    });
  }
}

void FakeNetwork::notice(StreamId id, bool worker_side, Duration delay) {
  Stream* stream = find(id);
  if (stream == nullptr) return;
  Instant when = scheduler_.now() + delay;
  // A partition hides the break; a keepalive detects the break eventually.
  if (is_partitioned(stream->host))
    when = std::max(when,
                    std::min(partitioned_until_.at(stream->host), when + std::chrono::seconds(15)));
  scheduler_.at(when, [this, id, worker_side] {
    Stream* s = find(id);
    if (s == nullptr) return;
    bool& open = worker_side ? s->worker_open : s->coordinator_open;
    if (!open) return;
    open = false;
    const auto on_broken = worker_side ? s->worker.on_broken : s->coordinator.on_broken;
    if (!s->worker_open && !s->coordinator_open) streams_.erase(id);
    on_broken(id);
  });
}

void FakeNetwork::worker_closes(StreamId id) {
  Stream* stream = find(id);
  if (stream == nullptr || !stream->worker_open) return;
  stream->worker_open = false;
  notice(id, false, random_.between_ms(1, 50));
}

void FakeNetwork::coordinator_closes(StreamId id, std::function<void()> notify_worker) {
  Stream* stream = find(id);
  if (stream == nullptr || !stream->coordinator_open) return;
  to_worker(id, [this, id, notify = std::move(notify_worker)] {
    Stream* s = find(id);
    if (s == nullptr || !s->worker_open) return;
    s->worker_open = false;
    notify();
  });
  stream->coordinator_open = false;
}

void FakeNetwork::cut(StreamId id) {
  Stream* stream = find(id);
  if (stream == nullptr) return;
  stream->intact = false;
  notice(id, true, random_.between_ms(1, 500));
  notice(id, false,
         random_.chance(0.2) ? random_.between_ms(500, 15'000) : random_.between_ms(1, 500));
}

void FakeNetwork::cut_one_of(int host) {
  for (const auto& [id, stream] : streams_) {
    if (stream.host == host && stream.intact) return cut(id);
  }
}

}  // namespace muster::simulation
