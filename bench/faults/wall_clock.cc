// A wall clock that jumps for one process only, for LD_PRELOAD: the machine's clock plus the
// nanoseconds in the first eight bytes of the file FAULT_CLOCK, which may change at any time. Other
// clocks are unchanged.
//
// A wait until an absolute time of that clock lasts as long as it would when it begins. Unlike the
// kernel's, it is not ended by a later jump.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

constexpr int64_t kNanoseconds = 1'000'000'000;
// No machine has been up for this long, and no wall clock is before it: distinguishes absolute
// times of the two clocks.
constexpr time_t kEarliestWallClock = 1'000'000'000;

const volatile int64_t* map_offset() {
  const char* path = std::getenv("FAULT_CLOCK");
  const int fd = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* memory = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  return memory == MAP_FAILED ? nullptr : static_cast<const volatile int64_t*>(memory);
}

int64_t offset() {
  static const volatile int64_t* const kOffset = map_offset();
  return kOffset == nullptr ? 0 : *kOffset;
}

timespec moved(const timespec& time, int64_t by) {
  const int64_t ns = int64_t{time.tv_sec} * kNanoseconds + time.tv_nsec + by;
  return {.tv_sec = ns / kNanoseconds, .tv_nsec = ns % kNanoseconds};
}

// Child processes get the machine's clock.
[[gnu::constructor]] void keep_to_this_process() {
  offset();
  unsetenv("LD_PRELOAD");
  unsetenv("FAULT_CLOCK");
}

timespec now() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return time;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  using Function = int (*)(clockid_t, timespec*);
  static const auto kReal = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "clock_gettime"));
  const int result = kReal(clock, time);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    *time = moved(*time, offset());
  return result;
}

int gettimeofday(timeval* __restrict time, void* __restrict) noexcept {
  const timespec t = now();
  *time = {.tv_sec = t.tv_sec, .tv_usec = t.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* out) noexcept {
  const time_t seconds = now().tv_sec;
  if (out != nullptr) *out = seconds;
  return seconds;
}

int pthread_cond_timedwait(pthread_cond_t* __restrict condition, pthread_mutex_t* __restrict mutex,
                           const timespec* __restrict until) {
  if (until->tv_sec < kEarliestWallClock)
    return pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, until);
  const timespec real = moved(*until, -offset());
  return pthread_cond_clockwait(condition, mutex, CLOCK_REALTIME, &real);
}

// Abseil waits by this system call.
long syscall(long number, ...) noexcept {
  using Function = long (*)(long, ...);
  static const auto kReal = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "syscall"));
  long arguments[6];
  va_list list;
  va_start(list, number);
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  timespec until{};
  const bool waits_for_moment =
      number == SYS_futex && (arguments[1] & FUTEX_CLOCK_REALTIME) != 0 && arguments[3] != 0;
  if (waits_for_moment) {
    until = moved(*reinterpret_cast<const timespec*>(arguments[3]), -offset());
    arguments[3] = reinterpret_cast<long>(&until);
  }
  return kReal(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
               arguments[5]);
}

}  // extern "C"
