// A program with known stacks for the tests of worker/stacks. `stack_subject MODE` prints "ready\n"
// when it has reached its position, and stays there until it is killed.
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#ifdef SUBJECT_TELLS
#include "common/stacks/self_stacks.h"
#endif

namespace subject {

// Prevents tail calls, so that callers keep their frames.
std::atomic<int> depth{0};

void report_ready() {
  if (write(STDOUT_FILENO, "ready\n", 6) != 6) std::abort();
}

[[gnu::noinline]] void wait_forever() {
  report_ready();
  while (true) pause();
  ++depth;
}

[[gnu::noinline]] void innermost() {
  wait_forever();  // the line that tests expect: innermost
  ++depth;
}

#ifdef SUBJECT_INLINES
[[gnu::always_inline]] inline
#else
[[gnu::noinline]]
#endif
    void
    middle() {
  innermost();  // the line that tests expect: middle
  ++depth;
}

[[gnu::noinline]] void outermost() {
  middle();  // the line that tests expect: outermost
  ++depth;
}

[[gnu::noinline]] int recurse(int left) {
  if (left == 0) wait_forever();
  volatile char space[64];
  space[0] = 1;
  return recurse(left - 1) + space[0];
}

pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

[[gnu::noinline]] void* wait_for_lock(void*) {
  pthread_mutex_lock(&held);
  return nullptr;
}

[[gnu::noinline]] void* sleep_long(void*) {
  timespec time{.tv_sec = 1000, .tv_nsec = 0};
  while (nanosleep(&time, &time) != 0) {
  }
  return nullptr;
}

[[gnu::noinline]] void* spin(void*) {
  while (true) depth.fetch_add(1);
}

void start(void* (*body)(void*), const char* name) {
  pthread_t thread;
  if (pthread_create(&thread, nullptr, body, nullptr) != 0) std::abort();
  pthread_setname_np(thread, name);
}

void run_threads() {
  pthread_mutex_lock(&held);
  start(wait_for_lock, "locked");
  start(sleep_long, "sleeper");
  start(spin, "spinner");
  start(sleep_long, "bad\x1b[31m\n\x07");
  outermost();
}

void* end_at_once(void*) { return nullptr; }

// Threads that come and go, some of them at any moment.
void run_churn() {
  report_ready();
  start(sleep_long, "steady");
  while (true) {
    std::array<pthread_t, 8> threads;
    for (pthread_t& thread : threads) {
      if (pthread_create(&thread, nullptr, end_at_once, nullptr) != 0) std::abort();
    }
    for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  }
}

// Executes itself repeatedly. Its lives alternate from 1 ms to half a second: some end while they
// are read, and some outlast any read.
void run_exec(const char* program, int life) {
  if (life == 0) report_ready();
  usleep(1000U << (life % 10));
  execl(program, program, "exec", std::to_string(life + 1).c_str(), nullptr);
}

// The parent of a vfork sleeps uninterruptibly until the child has called exec or ended.
[[gnu::noinline]] void wait_for_vfork() {
  const pid_t child = vfork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    report_ready();
    while (true) pause();
  }
  ++depth;
}

[[gnu::noinline]] void above_vfork() {
  wait_for_vfork();
  ++depth;
}

// A function without a file: it keeps a frame pointer and calls its argument.
void run_jit() {
#if defined(__x86_64__)
  constexpr uint8_t kCode[] = {0x55, 0x48, 0x89, 0xe5,
                               0xff, 0xd7, 0x5d, 0xc3};  // push, mov, call rdi, pop, ret
#elif defined(__aarch64__)
  // stp x29, x30, [sp, -16]!; mov x29, sp; blr x0; ldp x29, x30, [sp], 16; ret
  constexpr uint32_t kCode[] = {0xa9bf7bfd, 0x910003fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0};
#endif
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  std::memcpy(memory, kCode, sizeof(kCode));
  if (mprotect(memory, 4096, PROT_READ | PROT_EXEC) != 0) std::abort();
  __builtin___clear_cache(static_cast<char*>(memory), static_cast<char*>(memory) + sizeof(kCode));
  reinterpret_cast<void (*)(void (*)())>(memory)(&innermost);
  ++depth;
}

void run_many() {
  for (int i = 0; i < 20; ++i) start(sleep_long, "one of many");
  outermost();
}

#ifdef SUBJECT_TELLS
std::atomic<int> registered = 0;

[[gnu::noinline]] void* answer_and_sleep(void* argument) {
  const muster::SelfStackThread answers;
  registered.fetch_add(1);
  return sleep_long(argument);
}

[[gnu::noinline]] void* answer_and_spin(void* argument) {
  muster::answer_for_stack();
  registered.fetch_add(1);
  return spin(argument);
}

// Offers its own stacks, except for one thread.
void run_self(const char* path) {
  if (!muster::offer_self_stacks(path).ok()) std::abort();
  const muster::SelfStackThread answers;
  start(answer_and_sleep, "sleeper");
  start(answer_and_spin, "spinner");
  start(sleep_long, "silent");
  while (registered.load() < 2) sched_yield();
  outermost();
}
#endif

}  // namespace subject

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "nested";
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // Yama: other test programs trace it, too
  if (mode == "nested") subject::outermost();
  if (mode == "deep") subject::recurse(1000);
  if (mode == "threads") subject::run_threads();
  if (mode == "churn") subject::run_churn();
  if (mode == "exec") subject::run_exec(argv[0], argc > 2 ? std::atoi(argv[2]) : 0);
  if (mode == "vfork") subject::above_vfork();
  if (mode == "jit") subject::run_jit();
  if (mode == "many") subject::run_many();
#ifdef SUBJECT_TELLS
  if (mode == "self" && argc > 2) subject::run_self(argv[2]);
#endif
  return 2;
}
