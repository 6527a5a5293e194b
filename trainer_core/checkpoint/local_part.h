// What one writer has put into a local checkpoint (local_store.h), as text: <save>/part-<writer>.json.
//
//   {"format": "muster-local-part", "version": 1, "save": "120-9a3f5c0e71b2d684", "writer": 3, "step": 120, "samples": 960,
//    "optimizer": "adamw", "config": {…}, "data": {…}, "files": {"tensors": {…}, "files": […]}, "checksum": "99aa06d3014798d8"}
//
// `files` is what manifest.json has of the writer's files (manifest.h): the parts of one save together are a manifest. A save's name is
// its step and the time at rank 0, so that parts of two attempts that came to one step are never taken for one state.
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
// The step; -1 where it is no save's name.
int64_t step_of_local_save(std::string_view name);

std::string local_part_text(const LocalPart& part);
// DataLoss says what is wrong with it.
absl::StatusOr<LocalPart> parse_local_part(std::string_view text);

// A save that its parts make whole.
struct LocalCandidate {
  std::string save;
  CheckpointInfo info;
  std::string manifest;  // its text: all files as if they lay in one folder
};

// Of all nodes' parts, copies among them, those saves from step `oldest` on of which every number of every tensor is in some file, the
// newest first. A line in `notes` for each one that is newer than these, and for what is no part.
std::vector<LocalCandidate> whole_saves(const std::vector<std::string>& texts, int64_t oldest,
                                        std::vector<std::string>& notes);

}  // namespace muster::trainer
