#include "common/stacks/self_stacks.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "common/process/address.h"

namespace muster {
namespace {

// The size of a handler's stack. The kernel saves some 11 KiB of registers on processors with
// matrix units; the handler itself needs a few KiB.
constexpr size_t kHandlerStackBytes = 64 << 10;
constexpr size_t kChunkBytes = 4096;
#if defined(__x86_64__)
constexpr uint64_t kRedZoneBytes = 128;
#else
constexpr uint64_t kRedZoneBytes = 0;
#endif

// A signal handler receives only a number, so its inputs are globals of the process and the thread.
std::atomic<int> stacks_file{-1};
std::array<std::atomic<bool>, kSelfSlots> taken{};

struct Answering {
  int slot = -1;  // -1: none
  uint64_t stack_begin = 0;
  uint64_t stack_end = 0;
};
thread_local constinit Answering answering;

// Writes by a system call and not by libc's pwrite(), because sanitizers check the bytes that
// pwrite() reads, and do not permit reads of some parts of a stack.
size_t write_at(int fd, const void* data, size_t size, off_t offset) {
  const long written = syscall(SYS_pwrite64, fd, data, size, offset);
  return written > 0 ? static_cast<size_t>(written) : 0;
}

void take_registers(const ucontext_t& context, SelfStackRecord& record) {
#if defined(__x86_64__)
  // rax rdx rcx rbx rsi rdi rbp rsp r8 … r15, return address
  constexpr std::array<int, 17> kOrder = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
                                          REG_RBP, REG_RSP, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                          REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
  for (size_t i = 0; i < kOrder.size(); ++i)
    record.registers[i] = static_cast<uint64_t>(context.uc_mcontext.gregs[kOrder[i]]);
  record.stack_pointer = static_cast<uint64_t>(context.uc_mcontext.gregs[REG_RSP]);
  record.instruction = static_cast<uint64_t>(context.uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  for (size_t i = 0; i < 31; ++i) record.registers[i] = context.uc_mcontext.regs[i];
  record.registers[31] = context.uc_mcontext.sp;
  record.stack_pointer = context.uc_mcontext.sp;
  record.instruction = context.uc_mcontext.pc;
#else
#error "copying stacks needs this processor's registers"
#endif
}

void write_maps(int fd, uint64_t request) {
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return;
  std::array<char, kChunkBytes> chunk;
  SelfMapsRecord record{.request = request, .bytes = 0};
  while (record.bytes < kSelfMapsBytesMax) {
    const ssize_t got = read(maps, chunk.data(), chunk.size());
    if (got <= 0) break;
    const off_t offset = kSelfMapsOffset + static_cast<off_t>(kSelfStackOffset + record.bytes);
    const size_t written = write_at(fd, chunk.data(), static_cast<size_t>(got), offset);
    record.bytes += written;
    if (written < static_cast<size_t>(got)) break;
  }
  close(maps);
  write_at(fd, &record, sizeof(record), kSelfMapsOffset);
}

void write_thread(int fd, const ucontext_t& context, uint64_t request) {
  SelfStackRecord record;
  record.tid = static_cast<int32_t>(syscall(SYS_gettid));
  record.request = request;
  take_registers(context, record);
  const off_t offset = self_slot_offset(static_cast<size_t>(answering.slot));
  const uint64_t pointer = record.stack_pointer;
  if (pointer >= answering.stack_begin + kRedZoneBytes && pointer < answering.stack_end) {
    record.stack_address = (pointer - kRedZoneBytes) & ~uint64_t{7};
    const size_t used =
        std::min<uint64_t>(answering.stack_end - record.stack_address, kSelfStackBytesMax);
    const void* stack = pointer_at(record.stack_address);
    record.stack_bytes = static_cast<uint32_t>(
        write_at(fd, stack, used, offset + static_cast<off_t>(kSelfStackOffset)));
  }
  // The request comes last: it marks the record complete.
  write_at(fd, &record, sizeof(record), offset);
}

void answer(int, siginfo_t* info, void* context) {
  const int error = errno;
  const int fd = stacks_file.load(std::memory_order_relaxed);
  const auto number = reinterpret_cast<uint64_t>(info->si_value.sival_ptr);
  if (fd >= 0 && answering.slot >= 0 && info->si_code == SI_QUEUE) {
    if (number % 2 != 0) write_maps(fd, number / 2);
    write_thread(fd, *static_cast<const ucontext_t*>(context), number / 2);
  }
  errno = error;
}

// Finds the bounds of this thread's stack. For the main thread these are the bounds of the area
// into which the stack may grow.
void find_stack(Answering& out) {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
  void* begin = nullptr;
  size_t bytes = 0;
  if (pthread_attr_getstack(&attributes, &begin, &bytes) == 0) {
    out.stack_begin = reinterpret_cast<uint64_t>(begin);
    out.stack_end = out.stack_begin + bytes;
  }
  pthread_attr_destroy(&attributes);
}

void write_owner(int slot, int32_t tid) {
  const SelfStackRecord record{.tid = tid};
  write_at(stacks_file, &record, sizeof(record), self_slot_offset(static_cast<size_t>(slot)));
}

}  // namespace

std::string self_stacks_path(const std::string& page_path) {
  return absl::StrCat(page_path, ".stacks");
}

absl::Status offer_self_stacks(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return errno_status(errno, absl::StrCat("file of stacks ", path));
  const int signal = SIGRTMIN + 3;  // any unused signal: the header contains its number
  struct sigaction action {};
  action.sa_sigaction = &answer;
  // SA_RESTART: interrupted waits of a thread resume, as far as the kernel can do that.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigfillset(&action.sa_mask);
  stacks_file = fd;
  const SelfStacksHeader header{.pid = getpid(), .signal = signal};
  if (sigaction(signal, &action, nullptr) == 0 &&
      write_at(fd, &header, sizeof(header), 0) == sizeof(header)) {
    return absl::OkStatus();
  }
  const int error = errno;
  stacks_file = -1;
  close(fd);
  return errno_status(error, absl::StrCat("file of stacks ", path));
}

SelfStackThread::SelfStackThread() {
  if (stacks_file < 0 || answering.slot >= 0) return;
  const auto free = std::find_if(taken.begin(), taken.end(), [](std::atomic<bool>& slot) {
    return !slot.load(std::memory_order_relaxed) && !slot.exchange(true);
  });
  if (free == taken.end()) return;
  stack_t before{};
  sigaltstack(nullptr, &before);
  if ((before.ss_flags & SS_DISABLE) != 0) {
    void* memory = mmap(nullptr, kHandlerStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) {
      *free = false;
      return;
    }
    handler_stack_ = memory;
    const stack_t stack{.ss_sp = memory, .ss_flags = 0, .ss_size = kHandlerStackBytes};
    sigaltstack(&stack, nullptr);
  }
  find_stack(answering);
  answering.slot = static_cast<int>(free - taken.begin());
  write_owner(answering.slot, static_cast<int32_t>(syscall(SYS_gettid)));
  owns_slot_ = true;
}

void answer_for_stack() { thread_local const SelfStackThread answers; }

SelfStackThread::~SelfStackThread() {
  if (!owns_slot_) return;
  const int slot = answering.slot;
  write_owner(slot, 0);
  // A signal that arrives later finds no slot.
  answering.slot = -1;
  if (handler_stack_ != nullptr) {
    const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
    sigaltstack(&none, nullptr);
    munmap(handler_stack_, kHandlerStackBytes);
  }
  taken[static_cast<size_t>(slot)] = false;
}

}  // namespace muster
