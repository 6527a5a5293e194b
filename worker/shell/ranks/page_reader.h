// Reads the progress pages of ranks, and the sizes of their logs, on a thread of its own, because
// the file system of the work folder may hang. The worker then sends heartbeats without figures.
//
// Called on the event loop's thread only.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <absl/status/statusor.h>
#include <boost/asio/io_context.hpp>

#include "common/time/time.h"
#include "worker/core/rank.h"
#include "worker/shell/files/file_tasks.h"
#include "worker/shell/ranks/launcher.h"

namespace muster::worker {

// A read that takes longer counts as hung. Its thread is abandoned; the next read uses a new
// thread.
constexpr Duration kPagesHang = std::chrono::seconds(10);

class PageReader {
 public:
  struct Target {
    RankKey key;
    int32_t local_rank = 0;
    pid_t pid = 0;
    bool reads_log_size = false;
    bool reads_links = false;
    bool samples_main_thread = false;
  };
  struct Page {
    Target target;
    absl::StatusOr<RankFigures> figures;
    std::optional<off_t> log_bytes;  // nullopt: not requested, or not readable
    char process_state = '?';        // state of the rank's working process; '?': unknown
    // connections that other hosts do not answer; nullopt: not requested
    std::optional<std::vector<StalledLink>> links{};
    std::optional<bool> is_awake{};  // main thread of the working process; nullopt: not requested
  };
  using Done = std::function<void(std::vector<Page>)>;

  // Requires that `loop` outlives the reader. Copies `launcher`, because a thread that hangs may
  // use it after the worker's end.
  PageReader(boost::asio::io_context& loop, const Launcher& launcher)
      : files_(loop), launcher_(std::make_shared<const Launcher>(launcher)) {}

  // Reads the pages, and calls `done` later with one entry for each target. If the previous read
  // has not ended, or no thread can be started, calls `done` at once without pages. Logs one
  // warning when reads begin to hang, and one line when a read ends again.
  void read(std::vector<Target> targets, Instant now, Done done);

 private:
  void warn_once();
  void on_read();

  // Not shared: slow tasks of other owners, such as removals of folders, must not delay pages.
  FileTasks files_;
  const std::shared_ptr<const Launcher> launcher_;
  std::shared_ptr<FileTasks::Task> task_;  // null: none runs
  Instant begun_at_{};
  bool has_warned_ = false;
};

}  // namespace muster::worker
