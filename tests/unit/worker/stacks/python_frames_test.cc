#include "worker/stacks/python_frames.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "tests/unit/mutate.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/worker/stacks/frame_texts.h"
#include "tests/unit/worker/stacks/subject.h"

namespace muster::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

constexpr char kDump[] = R"([
 {"pid": 7, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 7, "active": true, "owns_gil": true,
  "frames": [{"name": "step", "filename": "/x/train.py", "short_filename": "train.py", "line": 31},
             {"name": "<mod\u001bule>", "filename": "/x/train.py", "short_filename": null, "line": 40}]},
 {"pid": 7, "thread_id": 2, "thread_name": null, "os_thread_id": null, "frames": []},
 {"pid": 7, "thread_id": 3, "thread_name": "loader", "os_thread_id": 9,
  "frames": [{"name": "load", "filename": "d.py", "short_filename": "d.py", "line": 5}]}])";

TEST(PythonFramesTest, DumpsAreFramesByThread) {
  const auto threads = parse_py_spy(kDump);
  ASSERT_TRUE(threads.ok()) << threads.status();
  ASSERT_EQ(threads->size(), 2);
  EXPECT_THAT(frame_texts(threads->at(7)),
              ElementsAre("/x/train.py:40 <mod\\x1bule>", "/x/train.py:31 step"));
  EXPECT_THAT(frame_texts(threads->at(9)), ElementsAre("d.py:5 load"));
}

TEST(PythonFramesTest, InvalidDumpsAreRefused) {
  for (const char* json :
       {"", "{}", "[1]", R"([{"os_thread_id": 1}])", R"([{"os_thread_id": 1, "frames": [{}]}])",
        R"([{"os_thread_id": 1, "frames": 3}])"}) {
    EXPECT_EQ(parse_py_spy(json).status().code(), absl::StatusCode::kDataLoss) << json;
  }
  Mutator mutator(1);
  for (int i = 0; i < 2000; ++i) {
    const auto threads = parse_py_spy(mutator.mutate(kDump));
    EXPECT_TRUE(threads.ok() || absl::IsDataLoss(threads.status())) << threads.status();
  }
}

TEST(PythonFramesTest, InterpretersAreKnownByName) {
  for (const char* path :
       {"/usr/bin/python3.11", "/usr/bin/python", "/usr/lib/libpython3.11.so.1.0"})
    EXPECT_TRUE(is_python_interpreter(path)) << path;
  for (const char* path : {"/usr/bin/pythonic", "/usr/lib/libtorch_python.so",
                           "/usr/bin/python3-config", "[vdso]", ""})
    EXPECT_FALSE(is_python_interpreter(path)) << path;
}

TEST(PythonFramesTest, PythonFramesReplaceTheInterpretersFrames) {
  const std::vector<StackModule> modules = {{.build_id = "", .path = "/lib/libc.so.6"},
                                            {.build_id = "", .path = "/usr/bin/python3.11"},
                                            {.build_id = "", .path = "/x/libtorch.so"}};
  const auto in = [](uint32_t module, uint64_t address) {
    return StackFrame{.module = module, .address = address, .text = ""};
  };
  const std::vector<StackFrame> native = {in(0, 1), in(1, 2), in(2, 3),
                                          in(1, 4), in(2, 5), in(0, 6)};
  const std::vector<StackFrame> python = {{.text = "train.py:40 <module>"},
                                          {.text = "train.py:31 step"}};
  EXPECT_THAT(with_python_frames(native, python, modules),
              ElementsAre(python[0], python[1], native[4], native[5]));
  EXPECT_EQ(with_python_frames(native, {}, modules), native);
  // A stack that could not be unwound to the interpreter.
  EXPECT_EQ(with_python_frames({in(0, 6)}, python, modules), python);
}

TEST(PythonFramesTest, AMissingPySpyReturnsAdvice) {
  const TempFolder folder;
  const std::string path = getenv("PATH");
  setenv("PATH", folder.path().c_str(), 1);
  const PySpy py_spy("");
  setenv("PATH", path.c_str(), 1);
  const auto frames = py_spy.dump(getpid(), in_seconds(30), std::nullopt);
  EXPECT_EQ(frames.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(frames.status().message(), HasSubstr("pip install py-spy"));
}

TEST(PythonFramesTest, PySpyRunsAsTheUserOfTheRank) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const TempFolder folder;
  ASSERT_EQ(chmod(folder.path().c_str(), 0711), 0);
  const std::string program = folder.file("py-spy");
  write_file(program,
             "#!/bin/sh\n"
             "echo \"[{\\\"os_thread_id\\\": 7, \\\"frames\\\": [{\\\"name\\\": \\\"$(id -u) $(id "
             "-g) $(id -G) "
             "$SECRET\\\", \\\"filename\\\": \\\"x\\\"}]}]\"\n");
  ASSERT_EQ(chmod(program.c_str(), 0755), 0);
  setenv("SECRET", "secret", 1);
  const UserIds user{.uid = 47'777, .gid = 48'888, .groups = {48'888, 49'999}};
  const auto frames = PySpy(program).dump(getpid(), in_seconds(30), user);
  unsetenv("SECRET");
  ASSERT_TRUE(frames.ok()) << frames.status();
  EXPECT_EQ(frames->at(7).at(0).text, "x:0 47777 48888 48888 49999 ");
  // A program that the user cannot execute.
  ASSERT_EQ(chmod(program.c_str(), 0700), 0);
  EXPECT_THAT(PySpy(program).dump(getpid(), in_seconds(30), user).status().message(),
              HasSubstr("EACCES"));
}

// Uses the real py-spy, if the tests' tools or PATH have it.
TEST(PythonFramesTest, APythonProgramShowsItsLines) {
  const char* python = getenv("MUSTER_PEERS_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "MUSTER_PEERS_PYTHON names no interpreter";
  const std::string py_spy = std::filesystem::path(python).parent_path() / "py-spy";
  if (!std::filesystem::exists(py_spy)) GTEST_SKIP() << "no " << py_spy;
  const TempFolder folder;
  const std::string script = folder.file("train.py");
  write_file(script,
             "import os, time\n"
             "def step():\n"
             "    os.write(1, b'ready\\n')\n"
             "    time.sleep(1000)\n"
             "def run():\n"
             "    step()\n"
             "run()\n");
  const Subject subject(script, python);
  StackSampler sampler({.py_spy = py_spy});
  std::vector<std::string> frames;
  EXPECT_TRUE(eventually([&] {
    const StackSample sample = sample_one(sampler, subject.pid());
    EXPECT_EQ(sample.ranks.at(0).note, "");
    frames = frame_texts(sample.ranks.at(0).threads.at(0).frames);
    return std::ranges::count(frames, script + ":4 step") == 1;
  }));
  EXPECT_THAT(frames, IsSupersetOf({script + ":7 <module>", script + ":6 run"}));
  EXPECT_EQ(frames.back(), "") << "the C library's sleep comes behind";
  EXPECT_EQ(subject.tracer(), 0);
}

}  // namespace
}  // namespace muster::worker
