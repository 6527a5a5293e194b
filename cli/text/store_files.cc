#include "cli/text/store_files.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/files/errno_status.h"
#include "trainer_core/base/units.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

// An upload comes after hours of work, so it outlasts a short outage.
constexpr Duration kUploadWait = std::chrono::minutes(10);

ObjectStore store_of(const std::atomic<bool>& stop, Duration within = store_wait()) {
  StoreRetry retry;
  retry.within = within;
  retry.within_hurry = Duration::zero();
  retry.is_hurried = [&stop] { return stop.load(); };
  return ObjectStore(std::move(retry));
}

// Returns whether the file completes tokens, a checkpoint or a Hugging Face folder.
bool completes(const fs::path& file) {
  constexpr std::string_view kNames[] = {"index.json", "manifest.json", "config.json",
                                         "model.safetensors.index.json"};
  return std::ranges::find(kNames, file.filename().string()) != std::end(kNames);
}

}  // namespace

absl::Status or_cancelled(const absl::Status& status, const std::atomic<bool>& stop) {
  if (status.ok() || !stop) return status;
  return absl::CancelledError("stopped; the same command continues");
}

FetchEvents fetch_events(const std::string& path, const std::atomic<bool>& stop) {
  return {.on_progress =
              [&path, began = false](uint64_t, uint64_t total) mutable {
                if (std::exchange(began, true)) return;
                std::cerr << absl::StrFormat("muster: fetching %s: %.1f MiB\n", path,
                                             static_cast<double>(total) / trainer::kMiB);
              },
          .on_wait =
              [&path](const std::string& folder) {
                if (!folder.empty())
                  std::cerr << "muster: another process fetches " << path << std::endl;
              },
          .is_stopped = [&stop] { return stop.load(); }};
}

absl::StatusOr<std::string> local_input(const std::string& path, const std::atomic<bool>& stop) {
  if (!is_remote(path)) return path;
  auto local = fetch_to_cache(store_of(stop), path, fetch_events(path, stop));
  if (!local.ok()) return or_cancelled(local.status(), stop);
  return local;
}

absl::Status upload_result(const std::string& url, const std::atomic<bool>& stop) {
  if (!is_remote(url)) return absl::OkStatus();
  const fs::path folder = local_output_folder(url);
  std::vector<std::string> first, last;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!entry->is_regular_file()) continue;
    (completes(entry->path()) ? last : first)
        .push_back(entry->path().lexically_relative(folder).string());
  }
  if (error) return file_status(error.value(), absl::StrCat("cannot read ", folder.string()));
  std::cerr << "muster: uploading " << first.size() + last.size() << " files to " << url
            << std::endl;
  const ObjectStore store = store_of(stop, std::max(store_wait(), kUploadWait));
  absl::Status status;
  for (const std::string& name : last) {
    if (status.ok()) status = store.remove(absl::StrCat(url, "/", name));
  }
  const auto watch = [&stop] { return !stop.load(); };
  if (status.ok()) status = store.upload(folder.string(), first, url, watch);
  if (status.ok()) status = store.upload(folder.string(), last, url, watch);
  if (!status.ok()) return or_cancelled(status, stop);
  fs::remove_all(folder, error);  // a copy that would only take space
  return absl::OkStatus();
}

}  // namespace muster::cli
