// The flags of Pax and AXLearn, and what each means here. Only dialect.cc looks here.
#pragma once

#include <span>
#include <string_view>

namespace muster::jobspec {

enum class FlagEffect {
  kKey,       // its value is that of `key`
  kNoEffect,  // accepted with one warning: `note` says why
  kQuiet,     // accepted without a word: it says how the other program prints
  kOff,       // accepted when it switches something off: `note` says what is missing
  // The rest are dialect.cc's.
  kPaxConfig,       // names an experiment: paxml.contrib.gpu.scripts_gpu.configs.GPT126M
  kPaxMode,         // train
  kPaxData,         // a folder, or None
  kPaxRemat,        // AutodiffCheckpointType.SAVE_NOTHING
  kPaxSchedule,     // linear_rampup_cosine_decay
  kPaxCosine,       // its value is that of `key` where the schedule is linear_rampup_cosine_decay
  kPaxExponential,  // the same of linear_rampup_exponential_decay
  kPaxOne,          // accepted when it is 1
  kPaxFp8,          // quantization=fp8 where it switches that on
  kPaxIciMesh,      // [data,fsdp,tensor]
  kPaxDcnMesh,      // the same between nodes
  kModule,          // text.gpt.c4_trainer
  kAxlearnConfig,   // fuji-7B-v2-flash
  kAxlearnData,     // a folder, or FAKE
  kAxlearnMesh,     // gpu-p5.48xlarge-256
  kDirectory,       // base_output_directory/run_name
  kPaxWorkspace,    // the parent of a relative kPaxLogs
  kPaxLogs,         // as kDirectory
};

struct Flag {
  std::string_view name;  // without dashes
  FlagEffect effect;
  std::string_view key;
  std::string_view note;
  bool is_switch = false;  // may stand without a value; --noNAME switches it off
};

std::span<const Flag> pax_flags();       // --NAME=VALUE of paxml.main
std::span<const Flag> pax_parameters();  // --fdl.NAME=VALUE
std::span<const Flag> pax_variables();   // NAME=VALUE before JAX-Toolbox's scripts
std::span<const Flag> axlearn_flags();   // --NAME=VALUE of launch_trainer_main

}  // namespace muster::jobspec
