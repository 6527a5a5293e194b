// Exit codes that the trainer, the worker, the coordinator's restart policy and the CLI agree on.
#pragma once

namespace muster {

enum class ExitCode : int {
  kOk = 0,
  kFailure = 1,       // anything not named below; the job may be retried
  kBadInput = 2,      // config, data or checkpoint is wrong: retrying cannot help
  kNotFinite = 3,     // NaN or Inf in loss or gradient: retrying would repeat it
  kPreempted = 75,    // checkpointed and left on SIGTERM (EX_TEMPFAIL: start again to go on)
  kPeerLost = 76,     // a collective failed because another rank is gone: a victim, not a cause
  kInterrupted = 130  // the CLI was left with Ctrl-C
};

constexpr int to_int(ExitCode code) { return static_cast<int>(code); }

}  // namespace muster
