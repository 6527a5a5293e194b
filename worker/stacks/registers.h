// A thread's registers in DWARF numbering, for the processors that Muster supports.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>

namespace muster::worker {

#if defined(__x86_64__)
constexpr size_t kDwarfRegisters = 17;  // rax rdx rcx rbx rsi rdi rbp rsp r8 … r15, return address
// bytes below the stack pointer that leaf functions may use
constexpr uint64_t kRedZoneBytes = 128;
#elif defined(__aarch64__)
constexpr size_t kDwarfRegisters = 32;  // x0 … x30, sp
constexpr uint64_t kRedZoneBytes = 0;
#else
#error "reading stacks needs this processor's registers"
#endif

// The registers of one thread.
struct Registers {
  std::array<uint64_t, kDwarfRegisters> dwarf{};
  uint64_t instruction = 0;
  uint64_t stack_pointer = 0;
};

// The result of read_registers(). kOtherWordSize: the thread runs a 32-bit program.
enum class RegistersRead { kYes, kOtherWordSize, kNotStopped };

// Reads the registers of a thread into `out`. Requires that the calling thread traces that thread.
RegistersRead read_registers(pid_t tid, Registers& out);

}  // namespace muster::worker
