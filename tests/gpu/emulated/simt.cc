// Runs a block's threads as fibers: each runs until it waits at a barrier of its block or warp. A
// warp runs as far as it can without the others, so that work which another warp should have done
// first is missing. A thread that ends without having waited leaves its fiber to the next one, so
// kernels without barriers need no switches. makecontext() starts a fiber; later switches use
// jumps, which need no system call: a training switches some hundred million times.

// _FORTIFY_SOURCE reports a jump to another stack as an error.
#undef _FORTIFY_SOURCE
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda_runtime.h"
#include "device_memory.h"

namespace emulated {

void fail(const char* what) {
  std::fprintf(stderr, "emulated GPU: block (%u, %u, %u): %s\n", blockIdx.x, blockIdx.y, blockIdx.z,
               what);
  std::abort();
}

namespace {

constexpr unsigned kWarp = 32, kThreadsMax = 1024;
constexpr size_t kStackBytes = 128 << 10;
constexpr size_t kWordBytes = 24;  // maximum size of a word that lanes exchange
constexpr size_t kSharedBytes = 256 << 10, kPage = 4096;

enum class State : uint8_t { kFree, kReady, kAtWarp, kAtBlock };

struct Fiber {
  ucontext_t context{};
  jmp_buf resume_point{};
  bool begun = false;
  std::unique_ptr<char[]> stack;
  bool is_free = true;
  unsigned thread = 0;
};

// Switches to `to`; returns when another fiber switches back to `from`.
[[gnu::noinline]] void jump(jmp_buf& from, jmp_buf& to) {
  if (_setjmp(from) == 0) _longjmp(to, 1);
}
[[gnu::noinline]] void begin(jmp_buf& from, ucontext_t& to) {
  if (_setjmp(from) == 0) setcontext(&to);
}

// Returns whether the last thread, warp and block run first: one of the two orders reveals a
// synchronisation error.
bool is_reversed() {
  static const bool reversed = std::getenv("MUSTER_EMULATED_REVERSED") != nullptr;
  return reversed;
}

// A lane's word for its warp. Exchanges are numbered through all blocks, so that no lane reads
// another block's word.
struct Word {
  uint64_t exchange = 0;
  alignas(8) unsigned char bytes[kWordBytes];
};

class Block {
 public:
  void run(unsigned threads, const std::function<void()>& body) {
    threads_ = threads, body_ = &body, free_ = 0;
    exchanges_.assign(threads, ++blocks_ << 32);
    states_.assign(threads, State::kFree);
    waiting_.resize(threads);
    const unsigned warps = (threads + kWarp - 1) / kWarp;
    bool begins = true;
    do {
      for (unsigned i = 0; i < warps; ++i) run_warp(reversed_ ? warps - 1 - i : i, begins);
      begins = false;
    } while (release_block());
  }
  Fiber& now() { return *now_; }

  // Suspends the running fiber until the threads that it waits for have arrived.
  void wait(State state) {
    Fiber& self = *now_;
    states_[self.thread] = state;
    waiting_[self.thread] = &self;
    leave(self);
    threadIdx = dim3(self.thread);
  }
  // Words of consecutive exchanges are in different buffers. A lane that reaches the exchange after
  // next has waited for all lanes that read this one.
  uint64_t share(const void* mine, size_t bytes) {
    if (bytes > kWordBytes) fail("lanes exchange more than 24 bytes");
    const uint64_t exchange = ++exchanges_[now_->thread];
    Word& word = words_[exchange % 2][now_->thread];
    word.exchange = exchange;
    std::memcpy(word.bytes, mine, bytes);
    wait(State::kAtWarp);
    return exchange;
  }
  // Returns null if the lane did not take part.
  const void* shared_by(unsigned lane) const {
    const uint64_t exchange = exchanges_[now_->thread];
    const Word& word = words_[exchange % 2][now_->thread / kWarp * kWarp + lane];
    return word.exchange == exchange ? word.bytes : nullptr;
  }
  // The body of a fiber, which runs threads of one block after the other.
  void entry() {
    while (true) {
      while (next_ < lanes_) {
        const unsigned thread = thread_of(next_++);
        now_->thread = thread;
        threadIdx = dim3(thread);
        (*body_)();
        check_copies();
      }
      now_->is_free = true;
      leave(*now_);
    }
  }

 private:
  // Returns the thread that runs as the i-th of the warp.
  unsigned thread_of(unsigned i) const { return first_ + (reversed_ ? lanes_ - 1 - i : i); }

  // Runs the warp until its threads have ended or wait for the block.
  void run_warp(unsigned warp, bool begins) {
    first_ = warp * kWarp, lanes_ = std::min(kWarp, threads_ - first_);
    next_ = begins ? 0 : lanes_;
    pass_ = 0;
    while (next_ < lanes_) start(free_fiber());
    if (Fiber* const ready = next_ready()) resume(*ready);
  }
  // Returns the fiber of the warp's next thread that can proceed. Releases the threads that wait
  // for their warp after each pass. Null: none can proceed.
  Fiber* next_ready() {
    do {
      while (pass_ < lanes_) {
        const unsigned thread = thread_of(pass_++);
        if (states_[thread] != State::kReady) continue;
        states_[thread] = State::kFree;
        return waiting_[thread];
      }
      pass_ = 0;
    } while (release_if_together(State::kAtWarp, first_, lanes_));
    return nullptr;
  }
  // Switches from a fiber to the next one of its warp, or to run_warp() if there is none or if
  // threads have not begun.
  void leave(Fiber& self) {
    Fiber* const ready = next_ < lanes_ ? nullptr : next_ready();
    if (ready == &self) return;
    if (ready != nullptr) now_ = ready;
    jump(self.resume_point, ready == nullptr ? scheduler_ : ready->resume_point);
  }
  // Called when no warp can proceed: releases the threads if all of them wait for the block.
  // Returns false if all have ended.
  bool release_block() {
    if (release_if_together(State::kAtBlock, 0, threads_)) return true;
    for (const State state : states_)
      if (state != State::kFree) fail("its threads wait for each other at different barriers");
    return false;
  }
  bool release_if_together(State state, unsigned first, unsigned count) {
    bool found = false;
    const unsigned end = first + count;
    for (unsigned thread = first; thread < end; ++thread) {
      if (states_[thread] == State::kFree) continue;
      if (states_[thread] != state) return false;
      found = true;
    }
    for (unsigned thread = first; thread < end; ++thread)
      if (states_[thread] == state) states_[thread] = State::kReady;
    return found;
  }

  Fiber& free_fiber() {
    // A fiber before free_ either still has its thread, or has ended it and is reused in the next
    // block.
    for (; free_ < fibers_.size(); ++free_)
      if (fibers_[free_]->is_free) return *fibers_[free_];
    if (fibers_.size() == kThreadsMax) fail("more threads than a block has");
    fibers_.push_back(std::make_unique<Fiber>());
    fibers_.back()->stack = std::make_unique<char[]>(kStackBytes);
    return *fibers_.back();
  }
  void start(Fiber& fiber);
  void resume(Fiber& fiber) {
    now_ = &fiber;
    jump(scheduler_, fiber.resume_point);
  }

  const bool reversed_ = is_reversed();
  jmp_buf scheduler_{};
  std::vector<std::unique_ptr<Fiber>> fibers_;
  // By thread; kFree: it has not begun, runs, or has ended.
  std::vector<State> states_;
  std::vector<Fiber*> waiting_;
  Word words_[2][kThreadsMax];
  std::vector<uint64_t> exchanges_;  // number of each thread's last exchange
  uint64_t blocks_ = 0;
  unsigned threads_ = 0;
  // The running warp: its first thread, its threads, and how many have begun.
  unsigned first_ = 0, lanes_ = 0, next_ = 0;
  unsigned pass_ = 0;  // threads of the warp that were visited since the last release
  size_t free_ = 0;    // index at which the search for a free fiber continues
  const std::function<void()>* body_ = nullptr;
  Fiber* now_ = nullptr;
};

Block& block() {
  static Block one;
  return one;
}

void enter() { block().entry(); }

void Block::start(Fiber& fiber) {
  fiber.is_free = false;
  if (fiber.begun) return resume(fiber);
  fiber.begun = true;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, enter, 0);
  now_ = &fiber;
  begin(scheduler_, fiber.context);
}

// Dynamic shared memory: a guard page follows it, and it is initialized to NaN.
class SharedMemory {
 public:
  SharedMemory() {
    void* const mapped =
        mmap(nullptr, kSharedBytes + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED || mprotect(mapped, kSharedBytes, PROT_READ | PROT_WRITE) != 0)
      fail("no memory");
    end_ = static_cast<char*>(mapped) + kSharedBytes;
  }
  void begin_block(size_t bytes) {
    if (bytes > kSharedBytes) fail("more shared memory than there is");
    constexpr size_t kAlignment = 16;
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    begin = end_ - bytes;
    std::memset(begin, 0xff, bytes);
  }
  char* begin = nullptr;

 private:
  char* end_;
};
SharedMemory& shared_memory() {
  static SharedMemory one;
  return one;
}

}  // namespace

int lane() { return static_cast<int>(block().now().thread % kWarp); }

uint64_t share(const void* mine, size_t bytes) { return block().share(mine, bytes); }
const void* shared_by(int from) {
  const void* const word = block().shared_by(static_cast<unsigned>(from));
  if (word == nullptr) fail("a shuffle from a lane that is not there");
  return word;
}

unsigned ballot(bool flag) {
  Block& b = block();
  b.share(&flag, sizeof(flag));
  unsigned bits = 0;
  for (unsigned i = 0; i < kWarp; ++i) {
    const void* const word = b.shared_by(i);
    if (word != nullptr && *static_cast<const bool*>(word)) bits |= 1U << i;
  }
  return bits;
}

void* dynamic_shared() { return shared_memory().begin; }

void run(dim3 grid, dim3 threads, size_t shared_bytes, const std::function<void()>& body) {
  // Shared memory and indices are static variables of the process.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (threads.x > kThreadsMax || threads.y != 1 || threads.z != 1)
    fail("a block of another shape than kernels here have");
  const DeviceMemory::Open open(memory());
  gridDim = grid;
  blockDim = threads;
  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  for (uint64_t i = 0; i < blocks; ++i) {
    const uint64_t at = is_reversed() ? blocks - 1 - i : i;
    blockIdx = dim3(static_cast<unsigned>(at % grid.x), static_cast<unsigned>(at / grid.x % grid.y),
                    static_cast<unsigned>(at / grid.x / grid.y));
    shared_memory().begin_block(shared_bytes);
    block().run(threads.x, body);
  }
}

}  // namespace emulated

void __syncthreads() { emulated::block().wait(emulated::State::kAtBlock); }
void __syncwarp(unsigned /*mask*/) { emulated::block().wait(emulated::State::kAtWarp); }
