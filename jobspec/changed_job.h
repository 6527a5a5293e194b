// Changes the config of a job that exists: `muster update`. The settings that the user made at
// first are part of the job, and are resolved again with the changed ones. Only the differences
// between both results are applied to the job's config, so values that depend on the first machine,
// such as paths of tokenized text, stay as they are. Reads the files of the config; starts no
// process.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "jobspec/config.h"
#include "muster/v1/muster.pb.h"

namespace muster::jobspec {

// Returns the user's settings as a JSON object, for JobSpec.settings_json: the path of the root
// base.yml, made absolute with `working_directory`, and the value of each key that has an effect.
std::string settings_to_json(const Config& config, const std::string& working_directory);

struct ChangeOptions {
  std::string working_directory;  // absolute; the base of relative paths in changed values
  std::string home;               // replaces a leading ~/ in paths; may be empty
  std::string shipped_base;       // path of Muster's own base.yml
};

// A changed job.
struct UpdatedJob {
  v1::JobSpec spec;
  std::vector<std::string> warnings;  // one sentence each
};

// Returns the job with the settings `overrides`, as key=value words. Returns InvalidArgument with a
// sentence that names the key if a value is not valid, or if a job cannot change it: the model, the
// optimizer's state and the folders belong to its checkpoints, and the numbers of nodes and ranks
// to its nodes. FailedPrecondition if the job has no settings.
absl::StatusOr<UpdatedJob> change_job(const v1::JobSpec& job,
                                      const std::vector<std::string>& overrides,
                                      const ChangeOptions& options);

}  // namespace muster::jobspec
