#include "jobspec/program_job.h"

#include <algorithm>
#include <filesystem>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "common/job/gpu.h"
#include "common/job/limits.h"
#include "jobspec/files/value.h"

namespace muster::jobspec {
namespace {

// Leaves room for the time, which is appended to the name.
constexpr size_t kProgramNameBytesMax = 64;

bool fits_name(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
}

absl::Status check_job_name(const std::string& name) {
  const bool fits = !name.empty() && name.size() <= kNameBytesMax && name.front() != '.' &&
                    std::all_of(name.begin(), name.end(), fits_name);
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--name ", show(name), ": a name has 1 to ", kNameBytesMax,
                   " letters, digits, '.', '_' or '-', and does not begin with '.'"));
}

// The words in front of a script do not identify the program.
bool is_interpreter(const std::string& word) {
  return absl::StartsWith(word, "python") || word == "bash" || word == "sh" || word == "env";
}

}  // namespace

std::string program_name(const std::vector<std::string>& command) {
  const auto base = [](const std::string& word) {
    return std::filesystem::path(word).filename().string();
  };
  std::string name = base(command.front());
  if (is_interpreter(name)) {
    const auto script = std::find_if(command.begin() + 1, command.end(),
                                     [](const auto& word) { return !absl::StartsWith(word, "-"); });
    if (script != command.end() && script->size() <= kProgramNameBytesMax) name = base(*script);
  }
  std::erase_if(name, [](char c) { return !fits_name(c); });
  name.erase(0, name.find_first_not_of('.'));
  name.resize(std::min(name.size(), kProgramNameBytesMax));
  return name.empty() ? "program" : name;
}

v1::JobSpec program_defaults() {
  v1::JobSpec job;
  job.set_nodes(1);
  job.set_ranks_per_node(1);
  job.set_restarts_max(3);  // the same as in base.yml
  job.set_gpus_per_rank(kGpusOfSlot);
  return job;
}

absl::StatusOr<v1::JobSpec> program_job(v1::JobSpec job, const std::string& default_name) {
  if (job.name().empty()) job.set_name(default_name);
  if (auto status = check_job_name(job.name()); !status.ok()) return status;
  if (job.segment_nodes() > 0 && job.nodes() % job.segment_nodes() != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--segment-nodes ", job.segment_nodes(),
                                                   ": the job has --nodes ", job.nodes(),
                                                   ", so it must be a divisor of ", job.nodes()));
  }
  if (job.min_nodes() > job.nodes()) {
    return absl::InvalidArgumentError(absl::StrCat("--min-nodes ", job.min_nodes(),
                                                   ": the job has --nodes ", job.nodes(),
                                                   ", so it must be 1 to ", job.nodes()));
  }
  const std::filesystem::path here = job.working_directory();
  const std::filesystem::path output =
      here / (job.output_directory().empty() ? job.name() : job.output_directory());
  job.set_output_directory(output.lexically_normal().string());
  return job;
}

}  // namespace muster::jobspec
