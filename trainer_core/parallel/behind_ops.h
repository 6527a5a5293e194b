// Collectives beside the computation, of what it has made.
#pragma once

#include <utility>

#include "trainer_core/comm/comm_stream.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// The work begins when all that `ops` was called for until now is done. The operations go on meanwhile: what they are called for later is
// not waited for.
inline CommTicket enqueue_behind(Ops& ops, CommStream& stream, CommStream::Work work) {
  const auto queue = ops.queue();
  if (queue == nullptr) return stream.enqueue(std::move(work));
  return stream.enqueue(std::move(work), [mark = queue->mark()] { mark->wait(); });
}

}  // namespace muster::trainer
