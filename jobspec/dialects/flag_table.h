// The table of Pax's and AXLearn's flags and their effects in Muster. Used by dialect.cc only.
#pragma once

#include <span>
#include <string_view>

namespace muster::jobspec {

// The effect of a flag. Comments after the values of the second part show examples of a flag's
// value.
enum class FlagEffect {
  kKey,       // sets `key` to its value
  kNoEffect,  // accepted with a warning: `note` is the reason
  kQuiet,     // accepted silently: it only changes how the other program prints
  // accepted only if the flag switches a feature off: `note` names the feature, which Muster lacks
  kOff,
  // dialect.cc handles each of the following:
  kPaxConfig,       // names an experiment: paxml.contrib.gpu.scripts_gpu.configs.GPT126M
  kPaxMode,         // train, eval
  kPaxEvalOnly,     // a switch: --mode=eval
  kPaxData,         // a folder, or None
  kPaxRemat,        // AutodiffCheckpointType.SAVE_NOTHING
  kPaxSchedule,     // linear_rampup_cosine_decay
  kPaxCosine,       // sets `key` if the schedule is linear_rampup_cosine_decay
  kPaxExponential,  // sets `key` if the schedule is linear_rampup_exponential_decay
  kPaxOne,          // accepted only if the value is 1
  kPaxFp8,          // quantization=fp8 if the value switches fp8 on
  kPaxLora,         // enable_lora if the value switches LoRA on
  kPaxIciMesh,      // [data,fsdp,tensor]
  kPaxDcnMesh,      // the same for degrees between nodes
  kModule,          // text.gpt.c4_trainer
  kAxlearnConfig,   // fuji-7B-v2-flash
  kAxlearnData,     // a folder, or FAKE
  kAxlearnMesh,     // gpu-p5.48xlarge-256
  kDirectory,       // base_output_directory/run_name
  kPaxWorkspace,    // parent folder of a relative kPaxLogs
  kPaxLogs,         // same as kDirectory
};

// A row of the table.
struct Flag {
  std::string_view name;  // without dashes
  FlagEffect effect;
  std::string_view key;
  std::string_view note;
  bool is_switch = false;  // the flag may stand without a value; --noNAME switches it off
};

// Returns the rows for --NAME=VALUE of paxml.main.
std::span<const Flag> pax_flags();
// Returns the rows for --fdl.NAME=VALUE.
std::span<const Flag> pax_parameters();
// Returns the rows for NAME=VALUE in front of JAX-Toolbox's scripts.
std::span<const Flag> pax_variables();
// Returns the rows for --NAME=VALUE of AXLearn's launch_trainer_main.
std::span<const Flag> axlearn_flags();

}  // namespace muster::jobspec
