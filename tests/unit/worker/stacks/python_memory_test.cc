#include "worker/stacks/python_memory.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "tests/unit/mutate.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/worker/stacks/frame_texts.h"
#include "tests/unit/worker/stacks/subject.h"
#include "worker/stacks/proc_files.h"

namespace muster::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsSupersetOf;

constexpr char kPython311[] = "/usr/bin/python3.11";

// A program with a thread, a generator, a call over several lines and a name beyond ASCII.
constexpr char kScript[] = R"(import os, threading, time
def wait():
    os.write(1, b'ready\n')
    time.sleep(1000)
def größe(
    first, second
):
    for value in (
        first,
        second,
    ):
        yield value
        wait()
def run():
    for _ in größe(1, 2):
        pass
def load():
    time.sleep(1000)
threading.Thread(target=load, daemon=True).start()
time.sleep(0.2)
run()
)";

TEST(PythonMemory, HasTheFramesOfPython311WithoutPySpy) {
  if (!std::filesystem::exists(kPython311)) GTEST_SKIP() << "no " << kPython311;
  const TempFolder folder;
  const std::string script = folder.file("train.py");
  write_file(script, kScript);
  const Subject subject(script, kPython311);
  const auto at = [&](int line, const char* function) {
    return script + ":" + std::to_string(line) + " " + function;
  };
  PythonFrames threads;
  EXPECT_TRUE(eventually([&] {
    const auto map = read_process_map(kProcRoot, subject.pid());
    const auto read = read_python_memory(subject.pid(), *map);
    if (!read.ok()) return false;
    threads = *read;
    return threads.contains(subject.pid()) &&
           frame_texts(threads.at(subject.pid())).back() == at(4, "wait");
  }));
  EXPECT_THAT(frame_texts(threads.at(subject.pid())),
              ElementsAre(at(21, "<module>"), at(15, "run"), at(13, "größe"), at(4, "wait")));
  ASSERT_EQ(threads.size(), 2U);
  EXPECT_THAT(frame_texts(threads.rbegin()->second), testing::Contains(at(18, "load")));

  StackSampler sampler({.py_spy = "/nowhere/py-spy"});
  const StackSample sample = sample_one(sampler, subject.pid());
  EXPECT_EQ(sample.ranks.at(0).note, "");
  EXPECT_THAT(frame_texts(sample.ranks.at(0).threads.at(0).frames),
              IsSupersetOf({at(21, "<module>"), at(4, "wait")}));
  EXPECT_EQ(subject.tracer(), 0);
}

TEST(PythonMemory, OtherProgramsHaveNoFrames) {
  const auto map = read_process_map(kProcRoot, getpid());
  EXPECT_EQ(read_python_memory(getpid(), *map).status().code(), absl::StatusCode::kUnavailable);
}

TEST(PythonMemory, LocationTablesAreDecoded) {
  // One unit on the first line (short form), two on the next one (one-line form), one without a
  // line, and one 70 lines further on (no columns: 70 is 140 as a signed number, 6 bits each).
  const std::string table = {'\x80',
                             '\x00',
                             static_cast<char>(0x80 | 11 << 3 | 1),
                             '\x01',
                             '\x02',
                             static_cast<char>(0x80 | 15 << 3),
                             static_cast<char>(0x80 | 13 << 3),
                             static_cast<char>(0x40 | (140 & 63)),
                             static_cast<char>(140 >> 6)};
  std::vector<int32_t> lines;
  for (int64_t unit = 0; unit < 6; ++unit) lines.push_back(line_of_instruction(table, 10, unit));
  EXPECT_THAT(lines, ElementsAre(10, 11, 11, 0, 81, 0));
  Mutator mutator(1);
  for (int i = 0; i < 5000; ++i) line_of_instruction(mutator.mutate(table), 10, i % 9);
}

}  // namespace
}  // namespace muster::worker
