// Tokenizes the text on which a job trains, in the command that starts the job.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "cli/jobs/job_arguments.h"
#include "jobspec/resolve.h"

namespace muster::cli {

// The treatment of a job's text.
enum class FirstUse {
  kTokenize,
  // a dry run: finds tokens in the cache only; text that is not on this machine is treated as with
  // kElsewhere
  kFind,
  kElsewhere,  // the job runs on other machines, whose folders must already have token shards
};

// Tokenizes the job's texts, or finds their tokens in the cache, and makes the job train on the
// resulting shards. Does nothing for a job without texts. Blocks until the text is tokenized;
// prints progress to stderr. SIGINT and SIGTERM end the work, even if this process blocks these
// signals; the next call resumes it. Returns Cancelled after a signal; other errors name the text.
absl::Status tokenize_texts(jobspec::ResolvedJob& job, FirstUse mode);

// Calls load_job(), then tokenize_texts().
absl::StatusOr<jobspec::ResolvedJob> load_job_and_data(const JobArguments& arguments,
                                                       FirstUse mode);

// Does the same as fail(), except that Cancelled, a stop by the user, is not reported as bad input.
int fail_or_cancelled(const absl::Status& status);

}  // namespace muster::cli
