// Makes a job from settings: computes open values (-1, relative paths, the number of ranks), and
// validates everything that can be checked without the job's files. Pure: reads no file, clock or
// environment.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

#include "common/job/mesh.h"
#include "jobspec/config.h"
#include "jobspec/keys/text_keys.h"
#include "muster/v1/muster.pb.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// The CPU of a plan, which determines the default of dtype (precision_keys.h).
struct PlannedCpu {
  std::string name = {};  // for a warning: "the CPU of compile_topology=NAME"; empty: no plan
  std::optional<double> bfloat16_speed = {};  // unset: that of this machine applies
};

// The options of the command line besides key=value, and values that a pure function cannot read
// itself.
struct LaunchOptions {
  // Number of nodes, and ranks per node. If `nodes` is unset, it is the product of the mesh degrees
  // between nodes; if `ranks_per_node` is unset, it is the product of those inside a node. A degree
  // of -1 counts as 1 there, except inside a node with `node_gpus` > 0: then the node has one rank
  // per GPU.
  std::optional<int32_t> nodes;
  std::optional<int32_t> ranks_per_node;
  std::optional<int32_t> spares;  // the same as the keys spares and min_nodes
  std::optional<int32_t> min_nodes;
  std::string working_directory;  // absolute; the base of relative paths
  std::string home;               // replaces a leading ~/ in paths; may be empty
  std::string default_run_name;   // replaces an empty run_name
  std::string user;
  int32_t priority = 0;
  std::optional<int32_t> gpus_per_rank;  // unset: depends on hardware
  // The command starts workers on this machine for this job alone.
  bool own_workers = false;
  // Number of GPUs that each node gives to the job; 0: none, or unknown.
  int32_t node_gpus = 0;
  std::optional<double> cpu_bfloat16_speed;        // see precision_keys.h
  PlannedCpu planned_cpu = {};                     // for a plan for CPUs
  std::map<std::string, std::string> environment;  // variables for every rank
};

// A job that can be submitted.
struct ResolvedJob {
  explicit ResolvedJob(const Mesh& resolved) : mesh(resolved) {}

  trainer::TrainConfig train;
  v1::JobSpec spec;
  Mesh mesh;
  std::vector<std::string> warnings;  // warnings of load_config() and of resolve_job()
  // The value of compile_topology, with ConfigSource::is_for_plan; "": none.
  std::string planned_topology = {};
  // Text that must be tokenized before the job starts. Until then, the data paths in `train` and
  // `spec` are the text's paths.
  JobTexts texts;
};

// Resolves a config. Returns InvalidArgument with one sentence that names the conflicting keys,
// their values, and what is allowed.
absl::StatusOr<ResolvedJob> resolve_job(const Config& config, const LaunchOptions& options);

}  // namespace muster::jobspec
