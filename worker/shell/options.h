// What the operator says on the command line.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <string>

#include "daemon/client_trust.h"
#include "daemon/metric_words.h"
#include "worker/core/core.h"
#include "worker/gpus/gpu_watch.h"

namespace muster::worker {

struct WorkerOptions {
  std::string coordinator = "127.0.0.1:7070";
  std::string name;           // the host's name when empty
  int32_t slots = 0;          // 0: one for each GPU, or one
  bool pin_ranks = true;      // to the CPUs near their GPUs
  std::string switches;       // above this node, the outermost first: "spine.leaf3"
  std::string switches_file;  // has them in its first line; empty: `switches` has
  Duration leave_grace = kLeaveGrace;
  int leave_exit_code = 0;  // of a worker that was asked to leave
  std::string work_dir;
  std::string http = "127.0.0.1:0";
  std::string rendezvous = "127.0.0.1:0";
  std::string trainer;  // muster-trainer beside the worker's own executable when empty
  std::string port_file;
  daemon::ClientTrust trust;
  bool insecure = false;         // the connection and the listeners may be open to others
  bool trusted_network = false;  // the listeners may
  mode_t rank_umask = 022;
  rlim_t rank_open_files = 0;  // soft limit; 0: the worker's
  std::string proc_root = "/proc";
  GpuWatchOptions gpus;                            // CUDA_VISIBLE_DEVICES is this process's
  std::string stack_trace_dir = "/tmp/debugging";  // MaxText's
  std::string local_dir = "/dev/shm";              // local_copies.h
  int32_t rank_series = daemon::kSeriesSample;     // as Metrics'
  std::string otlp_endpoint;                       // OTEL_EXPORTER_OTLP_ENDPOINT's when empty
};

}  // namespace muster::worker
