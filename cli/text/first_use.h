// Text that a job trains on is tokenized by the command that starts the job.
#pragma once

#include <absl/status/status.h>

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

}  // namespace muster::cli
