#include "cli/run/exec_trainer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include <absl/strings/str_cat.h>

#include "cli/terminal/child_process.h"
#include "cli/terminal/terminal.h"
#include "common/files/errno_status.h"

namespace muster::cli {

absl::StatusOr<std::string> in_memory_file(const std::string& content) {
  const int fd = memfd_create("muster-config", 0);
  if (fd < 0) return errno_status(errno, "memfd_create");
  if (!write_text(fd, content)) return errno_status(errno, "writing the config");
  return absl::StrCat("/proc/", getpid(), "/fd/", fd);
}

absl::Status exec_trainer(std::vector<std::string> arguments) {
  auto trainer = sibling_program("muster-trainer");
  if (!trainer.ok()) return trainer.status();
  std::vector<char*> argv = {trainer->data()};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  return errno_status(errno, absl::StrCat("starting ", *trainer));
}

}  // namespace muster::cli
