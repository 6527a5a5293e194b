#include "jobspec/program_job.h"

#include <algorithm>
#include <filesystem>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "common/limits.h"
#include "jobspec/value.h"

namespace muster::jobspec {
namespace {

// Leaves room for the time, which is appended to the name.
constexpr size_t kProgramNameBytesMax = 64;

bool fits_name(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
}

absl::Status check_name(const std::string& name) {
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

absl::StatusOr<v1::JobSpec> program_job(const ProgramRequest& request) {
  const std::string& name = request.name.empty() ? request.default_name : request.name;
  if (auto status = check_name(name); !status.ok()) return status;
  if (request.min_nodes > request.nodes) {
    return absl::InvalidArgumentError(absl::StrCat("--min-nodes ", request.min_nodes,
                                                   ": the job has --nodes ", request.nodes,
                                                   ", so it must be 1 to ", request.nodes));
  }
  const std::filesystem::path here = request.working_directory;
  const std::filesystem::path output =
      here / (request.output_directory.empty() ? name : request.output_directory);
  v1::JobSpec spec;
  spec.set_name(name);
  spec.set_user(request.user);
  spec.set_priority(request.priority);
  spec.set_nodes(request.nodes);
  spec.set_ranks_per_node(request.ranks_per_node);
  spec.set_restarts_max(request.restarts_max);
  spec.set_hang_after_seconds(request.hang_after_seconds);
  spec.set_spares(request.spares);
  spec.set_min_nodes(request.min_nodes);
  spec.set_gpus_per_rank(request.gpus_per_rank);
  spec.set_output_directory(output.lexically_normal().string());
  for (const auto& [variable, value] : request.environment) {
    (*spec.mutable_environment())[variable] = value;
  }
  for (const std::string& word : request.command) spec.add_command(word);
  spec.set_working_directory(request.working_directory);
  return spec;
}

}  // namespace muster::jobspec
