#include "cli/scrape_target.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>
#include <nlohmann/json.hpp>

#include "common/files/file_write.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kForEverybody = 0644;
constexpr char kCoordinator[] = "-coordinator.json";
constexpr char kWorker[] = "-worker-";

bool is_own(const fs::path& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid();
}

}  // namespace

ScrapeTarget::~ScrapeTarget() {
  if (text_.empty()) return;
  std::ifstream file(path_);
  if (std::string(std::istreambuf_iterator<char>(file), {}) == text_) unlink(path_.c_str());
}

absl::Status ScrapeTarget::write(const std::string& host, int port) {
  nlohmann::json labels = nlohmann::json::object();
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, const std::string&>>{
           {"job", labels_.job}, {"node", labels_.node}, {"cluster", labels_.cluster}})
    if (!value.empty()) labels[name] = value;
  const nlohmann::json entry = {{"targets", {absl::StrCat(host, ":", port)}}, {"labels", labels}};
  const std::string text = nlohmann::json::array({entry}).dump() + "\n";
  absl::Status status = write_file_atomically(path_, text, {.mode = kForEverybody});
  if (status.ok()) text_ = text;
  return status;
}

std::string ScrapeOwner::coordinator_file() const {
  return absl::StrCat(cluster, "-", job, kCoordinator);
}

std::string ScrapeOwner::worker_file(const std::string& node) const {
  return absl::StrCat(cluster, "-", job, kWorker, node, ".json");
}

std::string job_of_scrape_file(const std::string& name, const std::string& cluster) {
  absl::string_view rest = name;
  if (!absl::ConsumePrefix(&rest, absl::StrCat(cluster, "-"))) return "";
  const absl::string_view job = rest.substr(0, rest.find_first_not_of("0123456789_+"));
  rest.remove_prefix(job.size());
  const bool is_file =
      rest == kCoordinator || (absl::StartsWith(rest, kWorker) && absl::EndsWith(rest, ".json"));
  return is_file ? std::string(job) : "";
}

// Files written after the folder was read are not removed. A job with a file has started, and still
// has nodes unless it has ended or waits for its next allocation, which removes the file itself.
absl::StatusOr<int> remove_dead_targets(
    const std::string& folder, const ScrapeOwner& self,
    const std::function<absl::StatusOr<std::set<std::string>>()>& started) {
  std::vector<std::pair<std::string, fs::path>> files;  // pairs of job and file
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::string job = job_of_scrape_file(it->path().filename().string(), self.cluster);
    if (!job.empty() && is_own(it->path())) files.emplace_back(std::move(job), it->path());
  }
  int removed = 0;
  std::erase_if(files, [&](const auto& file) {
    if (file.first != self.job) return false;
    if (unlink(file.second.c_str()) == 0) ++removed;
    return true;
  });
  if (files.empty()) return removed;
  const auto jobs = started();
  if (!jobs.ok()) return jobs.status();
  for (const auto& [job, path] : files) {
    if (!jobs->contains(job) && unlink(path.c_str()) == 0) ++removed;
  }
  return removed;
}

}  // namespace muster::cli
