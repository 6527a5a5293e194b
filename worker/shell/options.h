// The worker's command-line options.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/client_trust.h"
#include "daemon/metric_words.h"
#include "worker/core/core.h"
#include "worker/gpus/gpu_watch.h"
#include "worker/network/network_device.h"
#include "worker/shell/ranks/rank_guard.h"

namespace muster::worker {

struct WorkerOptions {
  std::string coordinator = "127.0.0.1:7070";
  std::string name;  // empty: the host name
  // number of ranks that may run at once; 0: one per GPU, or one without GPUs
  int32_t slots = 0;
  bool pin_ranks = true;  // true: ranks run on the CPUs near their GPUs only
  std::string switches;   // network switches above this node, outermost first: "spine.leaf3"
  std::string domain;     // the NVLink domain of this node; empty: unknown
  // The path of a file whose first line replaces `switches`, and whose second line, if there is
  // one, `domain`; empty: no file.
  std::string switches_file;
  std::vector<std::string> labels{};  // NAME=VALUE
  std::vector<std::string> taints{};  // NAME=VALUE
  Duration leave_grace = kLeaveGrace;
  int leave_exit_code = 0;  // exit code after a request to leave
  std::string work_dir;
  std::string http = "127.0.0.1:0";
  std::string rendezvous = "127.0.0.1:0";
  std::string trainer;  // empty: muster-trainer beside the worker's own executable
  std::string port_file;
  daemon::ClientTrust trust;
  bool insecure = false;         // permits a connection and listeners without TLS
  bool trusted_network = false;  // permits listeners without TLS
  mode_t rank_umask = 022;
  rlim_t rank_open_files = 0;  // soft limit of open files; 0: the worker's
  std::string proc_root = "/proc";
  // The network devices to watch (NetworkSelection).
  std::string sys_root = kSysRoot;
  std::vector<std::string> network_devices;
  // `visible` comes from this process's CUDA_VISIBLE_DEVICES
  GpuWatchOptions gpus;
  std::string stack_trace_dir = "/tmp/debugging";  // MaxText's default
  std::string local_dir = "/dev/shm";              // see local_copies.h
  int32_t rank_series = daemon::kSeriesSample;     // see Metrics::Options
  // The InputMark of this process's standard input, which rank 0 of a program gets; empty: no rank
  // gets it.
  std::string input_mark;
  // credentials of this process's environment that users' programs get (passed_environment.h)
  std::vector<std::string> pass_env;
  bool run_as_owner = false;   // run ranks as the user of the job's owner; requires root
  bool run_root_jobs = false;  // permit root as that user
  RankGuard* guard = nullptr;  // must outlive the worker; null: none
  // OpenTelemetry collector; empty: OTEL_EXPORTER_OTLP_ENDPOINT
  std::string otlp_endpoint;
};

}  // namespace muster::worker
