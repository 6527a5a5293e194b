// Exit codes shared by the trainer, the worker, the coordinator's restart policy and the CLI.
#pragma once

namespace muster {

enum class ExitCode : int {
  kOk = 0,
  // any other failure; the job may be retried
  kFailure = 1,
  // config, data or checkpoint is invalid: a retry cannot help
  kBadInput = 2,
  // NaN or Inf in the loss or a gradient: a retry would repeat it
  kNotFinite = 3,
  // no space for a checkpoint, or a quota is exhausted
  kDiskFull = 4,
  // the checkpoint directory of a job that has trained before is away: a failed mount, a store that
  // does not respond
  kStorageAway = 5,
  // checkpointed and exited on SIGTERM (EX_TEMPFAIL: a restart resumes the job)
  kPreempted = 75,
  // a collective failed because another rank was lost: a victim, not a cause
  kPeerLost = 76,
  // a foreign program is not executable, as shells report it
  kNotExecutable = 126,
  // a foreign program was not found, as shells report it
  kProgramNotFound = 127,
  // the user interrupted the CLI with Ctrl-C
  kInterrupted = 130
};

// The worker's finding about the end of a rank, beyond its exit code or signal.
enum class ExitCause {
  kUnknown = 0,
  // the kernel killed the rank for memory
  kOutOfMemory = 1,
  // a GPU of the rank was lost or reported an error; the detail begins with that GPU
  kGpuFault = 2,
  // the worker could not use its own folder or start a process, so the rank never ran; the detail
  // names the file
  kNodeFault = 3,
  // the worker stood still for most of its lease, so its guard ended the rank
  kWorkerStalled = 4
};

constexpr int to_int(ExitCode code) { return static_cast<int>(code); }

}  // namespace muster
