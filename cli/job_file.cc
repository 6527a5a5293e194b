#include "cli/job_file.h"

#include <filesystem>
#include <fstream>

#include <absl/strings/str_cat.h>
#include <google/protobuf/util/json_util.h>

#include "common/escape.h"

namespace muster::cli {
namespace {

namespace pb = google::protobuf::util;

// A job has up to kSmallerSizesMax configs of 1 MiB.
constexpr size_t kJobFileReadMax = size_t{32} << 20;
constexpr size_t kJobFileShown = 300;

}  // namespace

absl::StatusOr<std::string> job_file_of(const v1::JobSpec& spec) {
  pb::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string text;
  if (!pb::MessageToJsonString(spec, &text, options).ok())
    return absl::InvalidArgumentError("the job has texts that are not UTF-8");
  return text;
}

absl::StatusOr<v1::JobSpec> read_job_file(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    return absl::NotFoundError(absl::StrCat("the job file ", path, " is no file"));
  std::ifstream file(path, std::ios::binary);
  std::string text(kJobFileReadMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || !file.is_open())
    return absl::PermissionDeniedError(absl::StrCat("the job file ", path, " cannot be read"));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kJobFileReadMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the job file ", path, " has more than ", kJobFileReadMax, " bytes"));
  }
  v1::JobSpec spec;
  const auto status = pb::JsonStringToMessage(text, &spec);
  if (status.ok()) return spec;
  return absl::InvalidArgumentError(absl::StrCat(path,
                                                 " is no job as `muster k8s render` writes it: ",
                                                 printable(status.ToString(), kJobFileShown)));
}

}  // namespace muster::cli
