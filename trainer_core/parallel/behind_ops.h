// Runs collectives of computed tensors concurrently with the computation that follows.
#pragma once

#include <utility>

#include "trainer_core/comm/comm_stream.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// Enqueues work in `stream` that begins when all operations that `ops` has enqueued so far are
// done. Operations that are enqueued later run concurrently with the work.
inline CommTicket enqueue_after(Ops& ops, CommStream& stream, CommStream::Work work) {
  const auto queue = ops.queue();
  if (queue == nullptr) return stream.enqueue(std::move(work));
  return stream.enqueue(std::move(work), [mark = queue->mark()] { mark->wait(); });
}

}  // namespace muster::trainer
