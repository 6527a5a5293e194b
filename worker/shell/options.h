// Command-line options of the worker.
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
  std::string name;           // empty: the host name
  int32_t slots = 0;          // 0: one for each GPU, or one
  bool pin_ranks = true;      // to the CPUs near their GPUs
  std::string switches;       // above this node, outermost first: "spine.leaf3"
  std::string switches_file;  // first line replaces `switches`; empty: no file
  Duration leave_grace = kLeaveGrace;
  int leave_exit_code = 0;  // if the worker was asked to leave
  std::string work_dir;
  std::string http = "127.0.0.1:0";
  std::string rendezvous = "127.0.0.1:0";
  std::string trainer;  // empty: muster-trainer beside the worker's own executable
  std::string port_file;
  daemon::ClientTrust trust;
  bool insecure = false;         // permits an open connection and open listeners
  bool trusted_network = false;  // permits open listeners
  mode_t rank_umask = 022;
  rlim_t rank_open_files = 0;  // soft limit; 0: the worker's
  std::string proc_root = "/proc";
  GpuWatchOptions gpus;                            // CUDA_VISIBLE_DEVICES is this process's
  std::string stack_trace_dir = "/tmp/debugging";  // MaxText's default
  std::string local_dir = "/dev/shm";              // see local_copies.h
  int32_t rank_series = daemon::kSeriesSample;     // see Metrics::Options
  bool passes_input = false;  // to rank 0 of programs: this process's standard input
  std::string otlp_endpoint;  // empty: from OTEL_EXPORTER_OTLP_ENDPOINT
};

}  // namespace muster::worker
