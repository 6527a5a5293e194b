#include "worker/shell/ranks/page_reader.h"

#include <sys/stat.h>

#include <utility>

#include <spdlog/spdlog.h>

#include "worker/stacks/stalled_links.h"

namespace muster::worker {
namespace {

std::vector<PageReader::Page> read_all_pages(const Launcher& launcher,
                                             const std::vector<PageReader::Target>& targets) {
  std::vector<PageReader::Page> pages;
  pages.reserve(targets.size());
  LinkReader links(launcher.proc_root());
  for (const PageReader::Target& target : targets) {
    PageReader::Page page{target, launcher.read_page(target.key, target.local_rank), std::nullopt,
                          launcher.process_state(target.pid)};
    struct stat status {};
    if (target.reads_log_size &&
        lstat(launcher.folders().log_path(target.key).c_str(), &status) == 0)
      page.log_bytes = status.st_size;
    if (target.samples_main_thread) page.is_awake = launcher.is_main_thread_awake(target.pid);
    if (target.reads_links) page.links = links.read(target.pid);
    pages.push_back(std::move(page));
  }
  return pages;
}

}  // namespace

void PageReader::read(std::vector<Target> targets, Instant now, Done done) {
  if (task_ != nullptr && now - begun_at_ >= kPagesHang) {
    files_.abandon(task_);
    task_ = nullptr;
    warn_once();
  }
  if (task_ != nullptr) return done({});
  const auto pages = std::make_shared<std::vector<Page>>();
  begun_at_ = now;
  task_ = files_.run([launcher = launcher_, targets = std::move(targets),
                      pages] { *pages = read_all_pages(*launcher, targets); },
                     [this, pages, done] {
                       task_ = nullptr;
                       on_read();
                       done(std::move(*pages));
                     });
  if (task_ != nullptr) return;
  warn_once();
  done({});
}

void PageReader::warn_once() {
  if (std::exchange(has_warned_, true)) return;
  spdlog::warn(
      "progress pages in the work folder cannot be read for {} s: heartbeats have no figures",
      std::chrono::duration_cast<std::chrono::seconds>(kPagesHang).count());
}

void PageReader::on_read() {
  if (std::exchange(has_warned_, false))
    spdlog::info("progress pages in the work folder can be read again");
}

}  // namespace muster::worker
