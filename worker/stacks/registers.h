// A thread's registers as unwinding counts them (DWARF's numbers), for the processors that Muster runs on.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>

namespace muster::worker {

#if defined(__x86_64__)
constexpr size_t kDwarfRegisters = 17;  // rax rdx rcx rbx rsi rdi rbp rsp r8 … r15, return address
constexpr uint64_t kRedZoneBytes =
    128;  // below the stack pointer, used by functions that call nobody
#elif defined(__aarch64__)
constexpr size_t kDwarfRegisters = 32;  // x0 … x30, sp
constexpr uint64_t kRedZoneBytes = 0;
#else
#error "reading stacks needs this processor's registers"
#endif

struct Registers {
  std::array<uint64_t, kDwarfRegisters> dwarf{};
  uint64_t instruction = 0;
  uint64_t stack_pointer = 0;
};

enum class RegistersRead { kYes, kOtherWordSize, kNotStopped };

// Of a thread that this one traces and that has stopped. kOtherWordSize: a 32-bit program.
RegistersRead read_registers(pid_t tid, Registers& out);

}  // namespace muster::worker
