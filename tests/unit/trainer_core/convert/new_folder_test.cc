#include "trainer_core/convert/new_folder.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::trainer {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;
namespace fs = std::filesystem;

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

// A process that has created folder `path` and lives until it is killed, and its leftover.
struct Maker {
  explicit Maker(const std::string& path) {
    int names[2];
    EXPECT_EQ(pipe(names), 0);
    pid = fork();
    if (pid == 0) {
      const auto folder = NewFolder::create(path, 0);
      const std::string name = folder.ok() ? (*folder)->temporary() + "\n" : "\n";
      if (write(names[1], name.data(), name.size()) < 0) _exit(1);
      for (;;) pause();
    }
    close(names[1]);
    char c = 0;
    while (read(names[0], &c, 1) == 1 && c != '\n') temporary += c;
    close(names[0]);
  }
  void kill_it() const {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }

  pid_t pid = 0;
  std::string temporary;
};

TEST(NewFolder, RemovesOnlyLeftoversOfDeadProcesses) {
  const TempFolder place;
  const std::string path = place.file("model");
  const Maker dead(path), living(path), other(place.file("model-2"));
  ASSERT_FALSE(dead.temporary.empty());
  dead.kill_it();
  other.kill_it();
  fs::create_directory(place.file(".tmp-model-notours"));
  write_file(dead.temporary + "/weights", "half");
  {
    const auto folder = NewFolder::create(path, 0);
    ASSERT_TRUE(folder.ok()) << folder.status();
    EXPECT_THAT(names_in(place.path()),
                UnorderedElementsAre(fs::path(living.temporary).filename(),
                                     fs::path((*folder)->temporary()).filename(),
                                     fs::path(other.temporary).filename(), ".tmp-model-notours"));
    write_file((*folder)->file("weights"), "whole");
    ASSERT_TRUE((*folder)->publish().ok());
  }
  EXPECT_EQ(read_file(path + "/weights"), "whole");
  EXPECT_TRUE(fs::exists(living.temporary));
  living.kill_it();
}

TEST(NewFolder, TwoInOneProcessDoNotInterfere) {
  const TempFolder place;
  {
    const auto first = NewFolder::create(place.file("model"), 0);
    const auto second = NewFolder::create(place.file("model"), 0);
    ASSERT_TRUE(first.ok() && second.ok());
    ASSERT_TRUE((*second)->publish().ok());
    write_file(place.file("model/x"), "");
    EXPECT_EQ((*first)->publish().code(), absl::StatusCode::kAlreadyExists);
  }
  EXPECT_THAT(names_in(place.path()), ElementsAre("model"));
}

}  // namespace
}  // namespace muster::trainer
