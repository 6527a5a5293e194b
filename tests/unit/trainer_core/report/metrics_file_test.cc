#include "trainer_core/report/metrics_file.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::trainer {
namespace {

StepRecord third_step() {
  StepRecord record;
  record.step = 3;
  return record;
}

std::string new_row() { return metrics_line(third_step(), "run") + "\n"; }

// Returns the file after a run that found `left` in it and wrote new_row().
std::string continued(const std::string& left) {
  const TempFolder folder;
  const std::string path = folder.file("logs/metrics.jsonl");
  std::filesystem::create_directory(folder.file("logs"));
  write_file(path, left);
  const auto file = MetricsFile::open(path, "run");
  EXPECT_TRUE(file.ok()) << file.status();
  (*file)->write(third_step());
  return read_file(path);
}

// A rank may be killed after any byte of a row.
TEST(MetricsFileTest, EveryLineIsARowWhereverTheLastRunWasKilled) {
  const std::string row = R"({"step":2,"loss":2.5,"run_name":"a run}"})";
  for (size_t bytes = 0; bytes <= row.size() + 1; ++bytes) {
    const std::string left = (row + "\n").substr(0, bytes);
    const std::string kept = bytes >= row.size() ? row + "\n" : "";
    EXPECT_EQ(continued(row + "\n" + left), row + "\n" + kept + new_row())
        << "killed after " << bytes << " bytes";
  }
}

TEST(MetricsFileTest, TextOfAnotherKindIsKept) {
  EXPECT_EQ(continued("a person's note"), "a person's note\n" + new_row());
}

}  // namespace
}  // namespace muster::trainer
