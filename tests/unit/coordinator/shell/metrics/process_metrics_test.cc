#include "coordinator/shell/metrics/process_metrics.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "daemon/metrics_text.h"
#include "tests/unit/temp_folder.h"

namespace muster::coordinator {
namespace {

using testing::HasSubstr;

void write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST(ProcessMetrics, ReadsProc) {
  TempFolder proc;
  write(proc.file("stat"), "cpu  1 2 3\nbtime 1700000000\nprocesses 4\n");
  // A name with spaces and parentheses; fields 14, 15, 22, 23 and 24 are set.
  write(proc.file("self/stat"),
        "42 (a ) b) S 1 1 1 0 -1 4194560 100 0 0 0 250 150 0 0 20 0 9 0 1000 52428800 2560 1\n");
  for (int fd = 0; fd < 5; ++fd) write(proc.file(absl::StrCat("self/fd/", fd)), "");
  prometheus::Registry registry;
  ProcessMetrics metrics(registry, proc.path());
  metrics.update();
  metrics.update();
  const std::string page = daemon::metrics_text(registry.Collect());
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  ASSERT_EQ(ticks, 100);
  EXPECT_THAT(page, HasSubstr("\nprocess_cpu_seconds_total 4\n"));
  EXPECT_THAT(page, HasSubstr("\nprocess_virtual_memory_bytes 52428800\n"));
  EXPECT_THAT(page, HasSubstr(absl::StrCat("\nprocess_resident_memory_bytes ",
                                           2560 * sysconf(_SC_PAGESIZE), "\n")));
  EXPECT_THAT(page, HasSubstr("\nprocess_start_time_seconds 1700000010\n"));
  EXPECT_THAT(page, HasSubstr("\nprocess_open_fds 5\n"));
}

TEST(ProcessMetrics, ValuesThatTheSystemDoesNotReportStay) {
  TempFolder proc;
  write(proc.file("self/stat"), "nothing");
  prometheus::Registry registry;
  ProcessMetrics metrics(registry, proc.path());
  metrics.update();
  const std::string page = daemon::metrics_text(registry.Collect());
  EXPECT_THAT(page, HasSubstr("\nprocess_cpu_seconds_total 0\n"));
  EXPECT_THAT(page, HasSubstr("\nprocess_open_fds 0\n"));
}

TEST(ProcessMetrics, OfThisProcess) {
  prometheus::Registry registry;
  ProcessMetrics metrics(registry);
  const auto value = [&](const std::string& name) {
    const std::string page = daemon::metrics_text(registry.Collect());
    const size_t at = page.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(page.substr(at + name.size() + 2));
  };
  metrics.update();
  const double before = value("process_open_fds");
  EXPECT_GE(before, 3);
  EXPECT_GT(value("process_max_fds"), before);
  EXPECT_GT(value("process_resident_memory_bytes"), 1 << 20);
  EXPECT_GT(value("process_start_time_seconds"), 1.5e9);
  const int more = dup(STDERR_FILENO);
  metrics.update();
  EXPECT_EQ(value("process_open_fds"), before + 1);
  close(more);
}

}  // namespace
}  // namespace muster::coordinator
