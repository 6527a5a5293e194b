// A thread's registers in DWARF numbering, for the processors that Muster supports.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>

namespace muster::worker {

#if defined(__x86_64__)
constexpr size_t kDwarfRegisters = 17;  // rax rdx rcx rbx rsi rdi rbp rsp r8 … r15, return address
// below the stack pointer, used by leaf functions
constexpr uint64_t kRedZoneBytes = 128;
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

// Reads the registers of a stopped thread that the calling thread traces. kOtherWordSize: a 32-bit
// program.
RegistersRead read_registers(pid_t tid, Registers& out);

}  // namespace muster::worker
