// The record of the files that one writer has stored in a local checkpoint (local_store.h). It is
// the file <save>/part-<writer>.json:
//
//   {"format": "muster-local-part", "version": 1, "save": "120-9a3f5c0e71b2d684", "writer": 3,
//    "step": 120, "samples": 960, "optimizer": "adamw", "config": {…}, "data": {…},
//    "files": {"tensors": {…}, "files": […]}, "checksum": "99aa06d3014798d8"}
//
// `files` has the entries of the writer's files as in a manifest (manifest.h), so the parts of one
// save together form a manifest. The name of a save consists of its step and the time on rank 0, so
// parts of two saves of the same step are never combined.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "trainer_core/checkpoint/manifest.h"

namespace muster::trainer {

// The contents of the record.
struct LocalPart {
  std::string save;
  int writer = 0;
  CheckpointInfo info;   // without `folder`
  nlohmann::json files;  // the result of files_json()
};

// Returns the name of a save: "120-9a3f5c0e71b2d684". `unix_ns` is the time of the
// save on rank 0.
std::string local_save_name(int64_t step, uint64_t unix_ns);
// Returns the step in the name of a save; -1 if `name` is not such a name.
int64_t step_of_local_save(std::string_view name);

// Encodes a record as JSON.
std::string local_part_text(const LocalPart& part);
// Parses a record. Returns DataLoss with the defect.
absl::StatusOr<LocalPart> parse_local_part(std::string_view text);

// A save whose parts are complete.
struct LocalCandidate {
  std::string save;
  CheckpointInfo info;
  std::string manifest;  // text of a manifest of all files, as if they were in one folder
};

// Returns the complete saves from step `oldest` on, newest first. `texts` are the records of all
// nodes, including those of copies; a save is complete if the parts together have every element of
// every tensor. Adds a line to `notes` for each incomplete save that is newer than the newest
// complete one, and for each invalid record.
std::vector<LocalCandidate> complete_saves(const std::vector<std::string>& texts, int64_t oldest,
                                           std::vector<std::string>& notes);

}  // namespace muster::trainer
