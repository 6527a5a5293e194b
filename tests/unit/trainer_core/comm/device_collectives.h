// Runs collectives of fp32 buffers in device memory on three ranks.
#pragma once

#include <memory>
#include <vector>

#include "tests/unit/trainer_core/comm/collectives.h"
#include "trainer_core/base/device_memory.h"

namespace muster::trainer {

constexpr int kDeviceRanks = 3;

// An fp32 vector in device or host memory.
class Vector {
 public:
  Vector(const DeviceMemory& memory, std::vector<float> values)
      : memory_(memory), count_(values.size()), data_(memory.allocate(bytes())) {
    memory_.upload(values.data(), data_.get(), bytes());
  }
  Vector(const DeviceMemory& memory, size_t count) : Vector(memory, std::vector<float>(count)) {}

  BufferView all() { return {data_.get(), count_, DType::kF32}; }
  void set(float value) {
    const std::vector<float> values(count_, value);
    memory_.upload(values.data(), data_.get(), bytes());
  }
  std::vector<float> values() const {
    std::vector<float> values(count_);
    memory_.download(data_.get(), values.data(), bytes());
    return values;
  }

 private:
  size_t bytes() const { return count_ * sizeof(float); }

  const DeviceMemory& memory_;
  size_t count_;
  std::shared_ptr<void> data_;
};

// Runs every collective, one after the other. Stores the results of rank 1 in `all`.
inline void run_collectives(ProcessGroup& group, const DeviceMemory& memory,
                            std::vector<std::vector<float>>& all) {
  constexpr int kRanks = kDeviceRanks;
  const int rank = group.rank(), next = (rank + 1) % kRanks, before = (rank + 2) % kRanks;
  const auto keep = [&](const Vector& vector) {
    EXPECT_TRUE(succeeds(group.finish()));
    if (rank == 1) all.push_back(vector.values());
  };
  for (const size_t count : {size_t{1}, size_t{7}, size_t{5000}}) {
    Vector sum(memory, input_of(rank, count)), largest(memory, input_of(rank, count));
    EXPECT_TRUE(succeeds(group.all_reduce(sum.all(), "sum")));
    EXPECT_TRUE(succeeds(group.all_reduce_max(largest.all(), "largest")));
    keep(sum), keep(largest);

    Vector own(memory, input_of(rank, count)), gathered(memory, count * kRanks);
    EXPECT_TRUE(succeeds(group.all_gather(own.all(), gathered.all(), "gather")));
    keep(gathered);
    Vector in_place(memory, input_of(rank, count * kRanks));
    const BufferView mine = in_place.all().part(static_cast<size_t>(rank) * count, count);
    EXPECT_TRUE(succeeds(group.all_gather(mine, in_place.all(), "gather in place")));
    keep(in_place);

    Vector whole(memory, input_of(rank, count * kRanks)), slice(memory, count);
    EXPECT_TRUE(succeeds(group.reduce_scatter(whole.all(), slice.all(), "scatter")));
    keep(slice);
    Vector swapped(memory, count * kRanks);
    EXPECT_TRUE(succeeds(group.all_to_all(whole.all(), swapped.all(), "swap")));
    keep(swapped);
    const std::vector<size_t> counts = {count, 2 * count, 0};
    const std::vector<size_t> sends(kRanks, counts[static_cast<size_t>(rank)]);
    Vector outgoing(memory, input_of(rank, kRanks * counts[static_cast<size_t>(rank)]));
    Vector incoming(memory, 3 * count);
    EXPECT_TRUE(
        succeeds(group.all_to_all_v(outgoing.all(), sends, incoming.all(), counts, "uneven swap")));
    keep(incoming);

    Vector sent(memory, input_of(rank, count));
    EXPECT_TRUE(succeeds(group.broadcast(sent.all(), 2, "broadcast")));
    keep(sent);
    Vector passed(memory, count);
    EXPECT_TRUE(succeeds(group.send_recv(sent.all(), next, passed.all(), before, "pass")));
    keep(passed);
    absl::Status alone;
    if (rank == 0) alone = group.send(own.all(), 1, "send");
    if (rank == 1) alone = group.recv(passed.all(), 0, "send");
    EXPECT_TRUE(succeeds(alone));
    keep(passed);
  }
  EXPECT_TRUE(succeeds(group.barrier("end")));
}

}  // namespace muster::trainer
