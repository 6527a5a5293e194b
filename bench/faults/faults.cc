#include "bench/faults/faults.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

namespace muster::faults {
namespace {

using std::chrono::steady_clock;

constexpr auto kForever = std::chrono::hours(1);  // bounded in case the process is not killed

void sleep_forever() { std::this_thread::sleep_for(kForever); }

void sleep_in_data(ProgressWriter& page) {
  page.set_phase(Phase::kData, monotonic_now());
  sleep_forever();
}

// Pretends to try out kernels, or to compile for a new shape. This is not a fault.
void compile(ProgressWriter& page, double seconds) {
  page.set_phase(Phase::kCompile, monotonic_now());
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  page.set_phase(Phase::kStep, monotonic_now());
}

// Another thread holds the lock and waits for something else.
void wait_for_lock() {
  static std::timed_mutex mutex;
  std::atomic<bool> taken{false};
  std::thread owner([&] {
    const std::lock_guard lock(mutex);
    taken = true;
    sleep_forever();
  });
  while (!taken) std::this_thread::yield();
  const std::lock_guard lock(mutex);
  owner.join();
}

void loop() {
  volatile double sum = 0;
  const auto end = steady_clock::now() + kForever;
  while (steady_clock::now() < end) {
    for (int i = 1; i < 1'000'000; ++i) sum = sum + 1.0 / i;
  }
}

// The parent of a vfork is in uninterruptible sleep until its child calls exec or exits.
void wait_uninterruptibly() {
  const pid_t child = vfork();
  if (child == 0) {
    pause();
    _exit(0);
  }
}

// Blocks in the kernel on a file system that an order has frozen.
void write_through(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) {
    std::fprintf(stderr, "faults: %s: %s\n", path.c_str(), std::strerror(errno));
    std::exit(1);
  }
  const char byte = 0;
  (void)!write(fd, &byte, 1);
  fsync(fd);
  close(fd);
}

void use_all_memory() {
  constexpr size_t kBlock = size_t{16} << 20;
  std::vector<void*> blocks;
  while (true) {
    void* block = mmap(nullptr, kBlock, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (block == MAP_FAILED) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    blocks.push_back(block);
  }
}

// Causes a segmentation fault by a memory access, not by raise().
void touch_nothing() {
  void* page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *static_cast<volatile int*>(page) = 1;
}

}  // namespace

Collective inject(const Fault& fault, ProgressWriter& page, double& slow_factor) {
  if (fault.kind == "skip_collective") return Collective::kSkipped;
  if (fault.kind == "other_collective") return Collective::kAnother;
  if (fault.kind == "slow") {
    slow_factor = fault.factor;
    return Collective::kAsAll;
  }
  const std::map<std::string, std::function<void()>> kinds = {
      {"sleep", sleep_forever},
      {"compile", [&fault, &page] { compile(page, fault.seconds); }},
      {"sleep_in_data", [&page] { sleep_in_data(page); }},
      {"lock", wait_for_lock},
      {"busy_loop", loop},
      {"uninterruptible", wait_uninterruptibly},
      {"fsync", [&fault] { write_through(fault.path); }},
      {"out_of_memory", use_all_memory},
      {"segv", touch_nothing},
      {"abort", [] { std::abort(); }},
      {"bad_alloc", [] { throw std::bad_alloc(); }},
      {"exit_0", [] { _exit(0); }},
      {"exit_1", [] { _exit(1); }},
      // ends this thread only: other threads and connections stay
      {"zombie", [] { syscall(SYS_exit, 0); }},
  };
  const auto kind = kinds.find(fault.kind);
  if (kind == kinds.end()) {
    std::fprintf(stderr, "faults: unknown kind \"%s\"\n", fault.kind.c_str());
    std::exit(2);
  }
  kind->second();
  return Collective::kAsAll;
}

}  // namespace muster::faults
