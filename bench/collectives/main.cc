// Collectives between processes, measured by bench/collectives.py.
//
//   collectives shm|gloo RANKS
//
// Starts RANKS processes. Rank 0 answers each line of stdin with a line of JSON:
//
//   all_reduce BYTES REPEATS | all_gather … | reduce_scatter …
//                         fp32; BYTES of the whole tensor, as in NCCL-tests
//   copy BYTES REPEATS    the bound: the bytes that an all-reduce must move between processes,
//                         without any waiting
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "bench/spawn_ranks.h"
#include "common/time/time.h"
#include "trainer_core/comm/reduce.h"
#include "trainer_core/comm/transport_group.h"
#include "trainer_core/comm/world.h"

namespace muster::trainer {
namespace {

constexpr size_t kBytesMax = size_t{64} << 20;
constexpr int kMemoryFd = 3;

enum class Op : int32_t { kEnd, kAllReduce, kAllGather, kReduceScatter, kCopy };
const std::map<std::string, Op> kOps = {{"all_reduce", Op::kAllReduce},
                                        {"all_gather", Op::kAllGather},
                                        {"reduce_scatter", Op::kReduceScatter},
                                        {"copy", Op::kCopy}};

void must(const absl::Status& status) {
  if (status.ok()) return;
  std::cerr << status << std::endl;
  std::_Exit(1);
}

// Processor time of this process.
int64_t cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

class Rank {
 public:
  Rank(int rank, int size, std::unique_ptr<ProcessGroup> group)
      : rank_(rank), size_(size), group_(std::move(group)) {
    void* const mapped = mmap(nullptr, kBytesMax * static_cast<size_t>(size),
                              PROT_READ | PROT_WRITE, MAP_SHARED, kMemoryFd, 0);
    if (mapped == MAP_FAILED) must(absl::InternalError("mmap"));
    shared_ = static_cast<std::byte*>(mapped);
    std::memset(shared_of(rank), rank, kBytesMax);
  }

  int run() {
    if (rank_ == 0) std::cout << "{\"ready\": true}" << std::endl;
    while (true) {
      std::array<int32_t, 3> command{};
      if (rank_ == 0) command = read();
      must(group_->broadcast(command, 0, "command"));
      if (static_cast<Op>(command[0]) == Op::kEnd) return 0;
      const auto [seconds, cpu] =
          measure(static_cast<Op>(command[0]), static_cast<size_t>(command[1]), command[2]);
      if (rank_ == 0) std::printf("{\"seconds\": %.9f, \"cpu_seconds\": %.9f}\n", seconds, cpu);
      std::fflush(stdout);
    }
  }

 private:
  static std::array<int32_t, 3> read() {
    std::string line;
    if (!std::getline(std::cin, line)) return {};
    std::istringstream words(line);
    std::string name;
    std::array<int32_t, 3> command{};
    words >> name >> command[1] >> command[2];
    const auto op = kOps.find(name);
    if (op == kOps.end()) return {};
    command[0] = static_cast<int32_t>(op->second);
    return command;
  }

  // Returns the time of one operation, and the processor time of all ranks.
  std::pair<double, double> measure(Op op, size_t bytes, int repeats) {
    const auto once = operation(op, bytes / sizeof(float));
    once();
    must(group_->barrier("begin"));
    // Measures from the first rank's start to the last one's end: with more processes than cores
    // they do not start together.
    std::array<int64_t, 3> times{};
    const int64_t cpu = cpu_ns();
    times[0] = to_ns(monotonic_now());
    for (int i = 0; i < repeats; ++i) once();
    times[1] = to_ns(monotonic_now());
    times[2] = cpu_ns() - cpu;
    std::vector<int64_t> all(times.size() * static_cast<size_t>(size_));
    const auto words = [](auto& numbers) {
      return std::span(reinterpret_cast<int32_t*>(numbers.data()), numbers.size() * 2);
    };
    must(group_->all_gather(words(times), words(all), "times"));
    int64_t first = all[0], last = all[1], busy = 0;
    for (size_t i = 0; i < all.size(); i += times.size()) {
      first = std::min(first, all[i]);
      last = std::max(last, all[i + 1]);
      busy += all[i + 2];
    }
    const double each = 1e9 * repeats;
    return {static_cast<double>(last - first) / each, static_cast<double>(busy) / each};
  }

  std::function<void()> operation(Op op, size_t count) {
    const std::span<float> whole = std::span(data_).first(count);
    const size_t each = count / static_cast<size_t>(size_);
    switch (op) {
      case Op::kAllReduce:
        return [=, this] { must(group_->all_reduce(whole, "all_reduce")); };
      case Op::kAllGather:
        return [=, this] {
          must(group_->all_gather(whole.first(each),
                                  std::span(out_).first(each * static_cast<size_t>(size_)),
                                  "all_gather"));
        };
      case Op::kReduceScatter:
        return [=, this] {
          must(group_->reduce_scatter(whole.first(each * static_cast<size_t>(size_)),
                                      std::span(out_).first(each), "reduce_scatter"));
        };
      default:
        return [=, this] { copy(count * sizeof(float)); };
    }
  }

  // Copies all other ranks' versions of this rank's slice, and all other ranks' slices.
  void copy(size_t bytes) {
    auto* const own = reinterpret_cast<std::byte*>(data_.data());
    auto* const versions = reinterpret_cast<std::byte*>(out_.data());
    const Slice mine = slice_of(bytes, rank_, size_);
    for (int step = 1; step < size_; ++step) {
      const int peer = (rank_ + step) % size_;
      std::memcpy(versions + static_cast<size_t>(peer) * mine.count, shared_of(peer) + mine.offset,
                  mine.count);
    }
    for (int step = 1; step < size_; ++step) {
      const int peer = (rank_ + step) % size_;
      const Slice theirs = slice_of(bytes, peer, size_);
      std::memcpy(own + theirs.offset, shared_of(peer) + theirs.offset, theirs.count);
    }
  }

  std::byte* shared_of(int rank) const { return shared_ + static_cast<size_t>(rank) * kBytesMax; }

  int rank_;
  int size_;
  std::unique_ptr<ProcessGroup> group_;
  std::vector<float> data_ = std::vector<float>(kBytesMax / sizeof(float));
  std::vector<float> out_ = std::vector<float>(kBytesMax / sizeof(float));
  std::byte* shared_ = nullptr;
};

int run_rank(const std::string& transport, int rank, int size, const std::string& store) {
  std::signal(SIGPIPE, SIG_IGN);
  WorldOptions options;
  options.gloo = {.rank = rank, .size = size, .rendezvous = store, .scope = "bench/"};
  if (transport == "gloo") options.host = "";
  auto connected = connect_world(options);
  must(connected.status());
  return Rank(rank, size, make_world_group(std::move(*connected), "bench", nullptr)).run();
}

int start_ranks(const std::vector<std::string>& arguments) {
  const int size = std::stoi(arguments[1]);
  const int memory = memfd_create("bench", 0);
  if (memory < 0 || ftruncate(memory, static_cast<off_t>(kBytesMax) * size) != 0 ||
      dup2(memory, kMemoryFd) < 0)
    return 1;
  return spawn_ranks(size, arguments);
}

}  // namespace
}  // namespace muster::trainer

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 2) return muster::trainer::start_ranks(arguments);
  if (arguments.size() == 4)
    return muster::trainer::run_rank(arguments[0], std::stoi(arguments[2]), std::stoi(arguments[1]),
                                     arguments[3]);
  std::cerr << "collectives shm|gloo RANKS\n";
  return 2;
}
