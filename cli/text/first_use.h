// Text that a job trains on is tokenized by the command that starts the job.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "cli/jobs/job_arguments.h"
#include "jobspec/resolve.h"

namespace muster::cli {

enum class FirstUse {
  kTokenize,
  kFind,       // a dry run: text that is not on this machine is as with kElsewhere
  kElsewhere,  // the folders are those of other machines, which must have token shards there
};

// Tokenizes the job's texts, or finds their tokens in a cache, and makes the job train on the
// shards. Does nothing for a job without texts. Prints progress to stderr. Blocks until the text is
// tokenized; SIGINT and SIGTERM, also while this process blocks them, end the work, which the next
// call resumes. Errors name the text; Cancelled after a signal.
absl::Status tokenize_texts(jobspec::ResolvedJob& job, FirstUse mode);

// load_job(), and then tokenize_texts().
absl::StatusOr<jobspec::ResolvedJob> load_job_and_data(const JobArguments& arguments,
                                                       FirstUse mode);

// As fail(), but a stop by the user is not reported as bad input.
int fail_or_cancelled(const absl::Status& status);

}  // namespace muster::cli
