// The record of one writer's part of a local checkpoint (local_store.h), stored as
// <save>/part-<writer>.json.
//
//   {"format": "muster-local-part", "version": 1, "save": "120-9a3f5c0e71b2d684", "writer": 3,
//    "step": 120, "samples": 960, "optimizer": "adamw", "config": {…}, "data": {…},
//    "files": {"tensors": {…}, "files": […]}, "checksum": "99aa06d3014798d8"}
//
// `files` has the manifest's entries of the writer's files (manifest.h): the parts of one save
// together form a manifest. A save's name is its step and rank 0's time, so parts of two attempts
// at one step are never combined.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "trainer_core/checkpoint/manifest.h"

namespace muster::trainer {

struct LocalPart {
  std::string save;
  int writer = 0;
  CheckpointInfo info;   // without a folder
  nlohmann::json files;  // files_json()
};

// "120-9a3f5c0e71b2d684"
std::string local_save_name(int64_t step, uint64_t unix_ns);
// Returns the step; -1 if the name is not a save's.
int64_t step_of_local_save(std::string_view name);

std::string local_part_text(const LocalPart& part);
// DataLoss describes the defect.
absl::StatusOr<LocalPart> parse_local_part(std::string_view text);

// A save that its parts make complete.
struct LocalCandidate {
  std::string save;
  CheckpointInfo info;
  std::string manifest;  // its text: all files as if they lay in one folder
};

// Returns the saves from step `oldest` on for which the nodes' parts, including copies, contain
// every element of every tensor, newest first. Adds a line to `notes` for each newer save and for
// each invalid part.
std::vector<LocalCandidate> complete_saves(const std::vector<std::string>& texts, int64_t oldest,
                                           std::vector<std::string>& notes);

}  // namespace muster::trainer
