#include "worker/stacks/registers.h"

#include <elf.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

namespace muster::worker {
namespace {

#if defined(__x86_64__)
using KernelRegisters = user_regs_struct;

Registers from_kernel(const KernelRegisters& r) {
  return {.dwarf = {r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10,
                    r.r11, r.r12, r.r13, r.r14, r.r15, r.rip},
          .instruction = r.rip,
          .stack_pointer = r.rsp};
}
#elif defined(__aarch64__)
using KernelRegisters = user_regs_struct;

Registers from_kernel(const KernelRegisters& r) {
  Registers out{.instruction = r.pc, .stack_pointer = r.sp};
  for (size_t i = 0; i < 31; ++i) out.dwarf[i] = r.regs[i];
  out.dwarf[31] = r.sp;
  return out;
}
#endif

}  // namespace

RegistersRead read_registers(pid_t tid, Registers& out) {
  KernelRegisters registers{};
  iovec buffer{&registers, sizeof(registers)};
  if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &buffer) != 0) return RegistersRead::kNotStopped;
  // A 32-bit program's registers are a smaller struct.
  if (buffer.iov_len != sizeof(registers)) return RegistersRead::kOtherWordSize;
#if defined(__x86_64__)
  constexpr uint64_t kCompatCodeSegment = 0x23;
  if (registers.cs == kCompatCodeSegment) return RegistersRead::kOtherWordSize;
#endif
  out = from_kernel(registers);
  return RegistersRead::kYes;
}

}  // namespace muster::worker
