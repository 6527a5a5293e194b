// Exit codes that the trainer, the worker, the coordinator's restart policy and the CLI agree on.
#pragma once

namespace muster {

enum class ExitCode : int {
  kOk = 0,
  kFailure = 1,          // anything not named below; the job may be retried
  kBadInput = 2,         // config, data or checkpoint is wrong: retrying cannot help
  kNotFinite = 3,        // NaN or Inf in loss or gradient: retrying would repeat it
  kDiskFull = 4,         // no room for a checkpoint, or a quota is used up
  kPreempted = 75,       // checkpointed and left on SIGTERM (EX_TEMPFAIL: start again to go on)
  kPeerLost = 76,        // a collective failed because another rank is gone: a victim, not a cause
  kNotExecutable = 126,  // of a program that is not ours, as shells have it
  kProgramNotFound = 127,  // likewise
  kInterrupted = 130       // the CLI was left with Ctrl-C
};

// What a worker knows of the end of a rank beyond its code or signal.
enum class ExitCause {
  kUnknown = 0,
  kOutOfMemory = 1,  // the kernel killed it for memory
  kGpuFault =
      2  // a GPU of its own was lost, or had an error of its own: its detail begins with which
};

constexpr int to_int(ExitCode code) { return static_cast<int>(code); }

}  // namespace muster
