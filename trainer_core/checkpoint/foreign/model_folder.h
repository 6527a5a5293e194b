// Explains why a path has no model that can be read: what is there instead, and what to do.
#pragma once

#include <string>

#include <absl/status/status.h>

namespace muster::trainer {

// Returns the error for a path that is a file: InvalidArgument names its kind, such as GGUF.
absl::Status explain_model_file(const std::string& path);

// Returns the error for a folder without a readable model: NotFound or InvalidArgument names the
// first of these: an adapter without its base, weights in another format, files of a quantized
// model, an unfinished download, a dangling symbolic link, a missing index or config; otherwise the
// formats that are read.
absl::Status explain_model_folder(const std::string& folder);

}  // namespace muster::trainer
