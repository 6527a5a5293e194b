// The flags of Pax and AXLearn, and their meaning here. Used by dialect.cc only.
#pragma once

#include <span>
#include <string_view>

namespace muster::jobspec {

enum class FlagEffect {
  kKey,       // sets `key` to its value
  kNoEffect,  // accepted with one warning: `note` has the reason
  kQuiet,     // accepted silently: it only changes how the other program prints
  kOff,       // accepted if it switches something off: `note` names what is missing
  // Handled individually in dialect.cc:
  kPaxConfig,       // names an experiment: paxml.contrib.gpu.scripts_gpu.configs.GPT126M
  kPaxMode,         // train
  kPaxData,         // a folder, or None
  kPaxRemat,        // AutodiffCheckpointType.SAVE_NOTHING
  kPaxSchedule,     // linear_rampup_cosine_decay
  kPaxCosine,       // sets `key` if the schedule is linear_rampup_cosine_decay
  kPaxExponential,  // sets `key` if the schedule is linear_rampup_exponential_decay
  kPaxOne,          // accepted if it is 1
  kPaxFp8,          // quantization=fp8 if it switches fp8 on
  kPaxIciMesh,      // [data,fsdp,tensor]
  kPaxDcnMesh,      // the same between nodes
  kModule,          // text.gpt.c4_trainer
  kAxlearnConfig,   // fuji-7B-v2-flash
  kAxlearnData,     // a folder, or FAKE
  kAxlearnMesh,     // gpu-p5.48xlarge-256
  kDirectory,       // base_output_directory/run_name
  kPaxWorkspace,    // the parent of a relative kPaxLogs
  kPaxLogs,         // same as kDirectory
};

struct Flag {
  std::string_view name;  // without dashes
  FlagEffect effect;
  std::string_view key;
  std::string_view note;
  bool is_switch = false;  // may have no value; --noNAME switches it off
};

// --NAME=VALUE of paxml.main
std::span<const Flag> pax_flags();
// --fdl.NAME=VALUE
std::span<const Flag> pax_parameters();
// NAME=VALUE in front of JAX-Toolbox's scripts
std::span<const Flag> pax_variables();
// --NAME=VALUE of launch_trainer_main
std::span<const Flag> axlearn_flags();

}  // namespace muster::jobspec
