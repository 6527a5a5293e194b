#include "worker/shell/ranks/page_reader.h"

#include <sys/stat.h>

#include <utility>

namespace muster::worker {
namespace {

std::vector<PageReader::Page> read_all_pages(const Launcher& launcher,
                                             const std::vector<PageReader::Target>& targets) {
  std::vector<PageReader::Page> pages;
  pages.reserve(targets.size());
  for (const PageReader::Target& target : targets) {
    PageReader::Page page{target, launcher.read_page(target.key, target.local_rank, target.pid),
                          std::nullopt};
    struct stat status {};
    if (target.reads_log_size &&
        stat(launcher.folders().log_path(target.key).c_str(), &status) == 0)
      page.log_bytes = status.st_size;
    pages.push_back(std::move(page));
  }
  return pages;
}

}  // namespace

void PageReader::read(std::vector<Target> targets, Instant now, Done done) {
  if (task_ != nullptr && now - begun_at_ >= kPagesHang) {
    files_.abandon(task_);
    task_ = nullptr;
  }
  if (task_ != nullptr) return done({});
  const auto pages = std::make_shared<std::vector<Page>>();
  begun_at_ = now;
  task_ = files_.run([launcher = launcher_, targets = std::move(targets),
                      pages] { *pages = read_all_pages(*launcher, targets); },
                     [this, pages, done] {
                       task_ = nullptr;
                       done(std::move(*pages));
                     });
  if (task_ == nullptr) done({});
}

}  // namespace muster::worker
