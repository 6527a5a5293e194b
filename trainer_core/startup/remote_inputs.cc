#include "trainer_core/startup/remote_inputs.h"

#include <memory>
#include <utility>

#include <absl/functional/function_ref.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "trainer_core/base/best_path.h"
#include "trainer_core/base/data_paths.h"
#include "trainer_core/base/units.h"
#include "trainer_core/checkpoint/find_checkpoint.h"
#include "trainer_core/checkpoint/remote_checkpoints.h"

namespace muster::trainer {
namespace {

// Returns the local path for an address.
using Localize = absl::FunctionRef<absl::StatusOr<std::string>(const std::string& url)>;

absl::Status with_key(const char* key, const absl::Status& status) {
  // A lost peer has other codes, and a retry of the job may find the store again.
  const auto code = absl::IsUnknown(status) ? absl::StatusCode::kInternal : status.code();
  return {code, absl::StrCat(key, ": ", status.message())};
}

absl::Status replace(const char* key, std::string& path, Localize localize) {
  if (!is_object_url(path)) return absl::OkStatus();
  auto local = localize(path);
  if (!local.ok()) return with_key(key, local.status());
  path = *std::move(local);
  return absl::OkStatus();
}

// Replaces the folders of a dataset_path. Those for which `localize` returns "" make it empty.
absl::Status replace_shares(const char* key, std::string& paths, Localize localize) {
  if (!is_remote(paths)) return absl::OkStatus();
  auto shares = parse_data_paths(paths);
  if (!shares.ok()) return shares.status();
  bool is_whole = true;
  for (DataShare& share : *shares) {
    if (auto status = replace(key, share.folder, localize); !status.ok()) return status;
    is_whole = is_whole && !share.folder.empty();
  }
  paths = is_whole ? data_paths_text(*shares) : "";
  return absl::OkStatus();
}

ObjectStore patient_store(std::ostream& out) {
  // As for a restore: a job that has started survives a short outage of the store.
  return ObjectStore({.within = kRestoreWithin, .warn = [&out](const std::string& text) {
                        out << "warning: " << text << std::endl;
                      }});
}

std::string size_text(uint64_t bytes) {
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / kMiB);
}

}  // namespace

FetchEvents report_fetch(const std::string& url, std::ostream& out, std::function<void()> on_data) {
  struct State {
    Instant begin = monotonic_now(), reported = begin;
    uint64_t done = 0;
    bool began = false;
  };
  auto state = std::make_shared<State>();
  FetchEvents events;
  events.on_progress = [state, url, &out, on_data](uint64_t done, uint64_t total) {
    const Instant now = monotonic_now();
    if (!std::exchange(state->began, true))
      out << "fetching " << url << ": " << size_text(total) << std::endl;
    if (done > state->done && on_data) on_data();
    state->done = done;
    const double seconds = to_seconds(now - state->begin);
    if (done == total) {
      out << absl::StrFormat("fetched %s: %s in %.1f s", url, size_text(total), seconds)
          << std::endl;
    } else if (now - state->reported >= kFetchReportInterval) {
      state->reported = now;
      out << "fetching " << url << ": " << size_text(done) << " of " << size_text(total)
          << std::endl;
    }
  };
  // The process that fetches reports progress for all of the node.
  events.on_wait = [on_data](const std::string&) {
    if (on_data) on_data();
  };
  return events;
}

absl::StatusOr<TrainConfig> with_local_data(const TrainConfig& config, std::ostream& out,
                                            std::function<void()> on_data) {
  const ObjectStore store = patient_store(out);
  TrainConfig local = config;
  const auto fetch = [&](const std::string& url) {
    return fetch_to_cache(store, url, report_fetch(url, out, on_data));
  };
  absl::Status status = replace_shares("dataset_path", local.dataset_path, fetch);
  if (status.ok()) status = replace_shares("eval_dataset_path", local.eval.dataset_path, fetch);
  if (!status.ok()) return status;
  return local;
}

absl::StatusOr<TrainConfig> with_local_parameters(const TrainConfig& config, std::ostream& out,
                                                  std::function<void()> on_data) {
  TrainConfig local = config;
  const absl::Status status =
      replace("load_parameters_path", local.load_parameters_path, [&](const std::string& url) {
        return fetch_checkpoint(url, report_fetch(url, out, on_data));
      });
  if (!status.ok()) return status;
  return local;
}

absl::StatusOr<TrainConfig> with_cached_inputs(const TrainConfig& config) {
  const ObjectStore store;
  TrainConfig local = config;
  const auto find = [&](const std::string& url) -> absl::StatusOr<std::string> {
    auto found = find_in_cache(store, url);
    if (!found.ok()) return found.status();
    return found->value_or("");
  };
  const auto require = [&](const std::string& url) -> absl::StatusOr<std::string> {
    auto objects = store.list(url);
    if (objects.ok() && objects->empty() && names_best(url)) objects = store.list(run_of_best(url));
    if (!objects.ok()) return objects.status();
    if (objects->empty()) return absl::NotFoundError(absl::StrCat("there is nothing at ", url));
    return "";
  };
  absl::Status status = replace_shares("dataset_path", local.dataset_path, find);
  if (status.ok()) status = replace_shares("eval_dataset_path", local.eval.dataset_path, find);
  if (status.ok()) status = replace("load_parameters_path", local.load_parameters_path, require);
  if (!status.ok()) return status;
  return local;
}

}  // namespace muster::trainer
