#include "worker/stacks/python_memory.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <vector>

#include "tests/unit/mutate.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/worker/stacks/frame_texts.h"
#include "tests/unit/worker/stacks/subject.h"
#include "worker/stacks/proc_files.h"

namespace muster::worker {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
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

// Late enough for every read.
Instant soon() { return monotonic_now() + std::chrono::minutes(1); }

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
    const auto read = read_python_memory(subject.pid(), *map, soon());
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
  EXPECT_EQ(read_python_memory(getpid(), *map, soon()).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(read_python_memory(getpid(), *map, monotonic_now()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

// The structures of an interpreter in this process, at the offsets of CPython 3.11, which the test
// links as a broken or hostile program could.
class FakePython {
 public:
  using Object = std::array<char, 256>;

  // All threads run frames of one function, which begins at line 10; its table of lines has
  // `table_bytes` bytes, and line 11 for the first instruction.
  FakePython(size_t interpreters, size_t threads, size_t frames, size_t table_bytes)
      : interpreters_(interpreters),
        threads_(interpreters * threads),
        frames_(frames),
        table_(32 + table_bytes) {
    set(runtime_, 40, interpreters_.data());
    for (size_t i = 0; i < interpreters; ++i) {
      if (i + 1 < interpreters) set(interpreters_[i], 0, &interpreters_[i + 1]);
      set(interpreters_[i], 16, &threads_[i * threads]);
    }
    for (size_t i = 0; i < threads_.size(); ++i) {
      if ((i + 1) % threads != 0) set(threads_[i], 8, &threads_[i + 1]);
      set(threads_[i], 56, &current_);
      set_number(threads_[i], 160, i + 1);
    }
    set(current_, 8, frames_.data());
    for (size_t i = 0; i < frames; ++i) {
      set(frames_[i], 32, &code_);
      if (i + 1 < frames) set(frames_[i], 48, &frames_[i + 1]);
      set(frames_[i], 56, code_.data() + 184);
    }
    const int32_t first_line = 10;
    std::memcpy(code_.data() + 72, &first_line, sizeof(first_line));
    set(code_, 136, table_.data());
    std::memcpy(table_.data() + 16, &table_bytes, sizeof(table_bytes));
    table_[32] = static_cast<char>(0x80 | 11 << 3);
  }
  FakePython(const FakePython&) = delete;
  FakePython& operator=(const FakePython&) = delete;

  // Continues the lists of interpreters, threads and frames at their first elements.
  void link_cycles() {
    set(interpreters_.back(), 0, interpreters_.data());
    set(threads_.back(), 8, threads_.data());
    set(frames_.back(), 48, frames_.data());
  }
  PythonFrames read(Instant deadline) const {
    return read_python_threads(getpid(), reinterpret_cast<uint64_t>(&runtime_), deadline);
  }

 private:
  static void set(Object& object, size_t offset, const void* pointer) {
    set_number(object, offset, reinterpret_cast<uint64_t>(pointer));
  }
  static void set_number(Object& object, size_t offset, uint64_t number) {
    std::memcpy(object.data() + offset, &number, sizeof(number));
  }

  Object runtime_{}, current_{}, code_{};
  std::vector<Object> interpreters_, threads_, frames_;
  std::vector<char> table_;
};

TEST(PythonMemory, CyclesAreFollowedOnce) {
  FakePython python(2, 2, 3, 1);
  python.link_cycles();
  const PythonFrames threads = python.read(soon());
  ASSERT_EQ(threads.size(), 4U);
  EXPECT_THAT(frame_texts(threads.at(4)), ElementsAre(":11 ", ":11 ", ":11 "));
  EXPECT_THAT(python.read(monotonic_now()), IsEmpty()) << "there was no time";
}

TEST(PythonMemory, TheTotalsOfFramesAndTablesAreBounded) {
  size_t frames = 0;
  for (const auto& [tid, stack] : FakePython(2, 512, 128, 1).read(soon())) frames += stack.size();
  EXPECT_EQ(frames, 64U << 10) << "one half of what there is";

  // The innermost frames come last.
  const PythonFrames threads = FakePython(1, 1, 65, 1 << 20).read(soon());
  std::vector<std::string> texts = frame_texts(threads.at(1));
  ASSERT_EQ(texts.size(), 65U);
  EXPECT_EQ(texts.front(), ":10 ") << "64 tables were read before";
  texts.erase(texts.begin());
  EXPECT_THAT(texts, Each(":11 "));
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
