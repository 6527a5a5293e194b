#include "cli/jobs/job_file.h"

#include <absl/strings/str_cat.h>
#include <google/protobuf/util/json_util.h>

#include "common/files/file_read.h"
#include "common/text/escape.h"

namespace muster::cli {
namespace {

namespace pb = google::protobuf::util;

// A job has up to kSmallerSizesMax configs of 1 MiB each.
constexpr size_t kJobFileReadMax = size_t{32} << 20;
constexpr size_t kJobFileShown = 300;

}  // namespace

absl::StatusOr<std::string> job_file_of(const v1::JobSpec& spec) {
  pb::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string text;
  if (!pb::MessageToJsonString(spec, &text, options).ok())
    return absl::InvalidArgumentError("all texts of the job must be UTF-8");
  return text;
}

absl::StatusOr<v1::JobSpec> read_job_file(const std::string& path) {
  const auto text =
      read_plain_file_up_to(kJobFileReadMax, path, absl::StrCat("the job file ", path));
  if (!text.ok()) return text.status();
  v1::JobSpec spec;
  const auto status = pb::JsonStringToMessage(*text, &spec);
  if (status.ok()) return spec;
  return absl::InvalidArgumentError(absl::StrCat(
      path,
      " is not a job file of `muster k8s render`: ", printable(status.ToString(), kJobFileShown)));
}

}  // namespace muster::cli
