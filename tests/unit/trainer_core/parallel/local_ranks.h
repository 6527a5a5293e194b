// Runs ranks as threads, each with its own operations.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "trainer_core/comm/comm_stream.h"
#include "trainer_core/comm/local.h"
#include "trainer_core/comm/transport_group.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// The objects that a rank uses.
struct LocalRank {
  Ops& ops;
  ProcessGroup& group;  // group of all ranks
  CommStream& stream;
  const std::shared_ptr<Transport>& transport;

  size_t index() const { return static_cast<size_t>(group.rank()); }
  // Returns the group whose i-th member is member(i).
  std::unique_ptr<ProcessGroup> subgroup(int size, const std::function<int(int)>& member) const {
    GroupSpec spec{.name = "part", .members = {}, .nodes = {}};
    for (int i = 0; i < size; ++i) spec.members.push_back(member(i));
    return make_group(transport, spec, nullptr);
  }
};

inline void on_local_ranks(int size, const std::function<void(const LocalRank&)>& body) {
  const LocalWorld world(size, std::chrono::milliseconds(20'000));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto transport = world.join(rank);
      const auto group = make_world_group(transport, "test", nullptr);
      const auto ops = cpu_ops(1);
      const auto stream = CommStream::start([&group] { group->abort(); });
      body({*ops, *group, *stream, transport});
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace muster::trainer
