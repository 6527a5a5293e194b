#include "common/text/python_frame.h"

#include <gtest/gtest.h>

#include "common/stacks/stack_tree.h"

namespace muster {
namespace {

TEST(PythonFrame, HasFileLineAndFunction) {
  const PythonFrame frame = python_frame_of("/data/run 1: a/train.py:31 <listcomp>");
  EXPECT_EQ(frame.file, "/data/run 1: a/train.py");
  EXPECT_EQ(frame.line, 31);
  EXPECT_EQ(frame.function, "<listcomp>");
  EXPECT_EQ(python_frame_of("<string>:1 <module>").file, "<string>");
  for (const char* text : {"", "[kernel] futex_wait", "[jit]", "main", "a:b c", "train.py:3"})
    EXPECT_EQ(python_frame_of(text).file, "") << text;
}

TEST(PythonFrame, FilesOfLibrariesAreKnownByTheirFolders) {
  for (const char* file :
       {"/usr/lib/python3.11/threading.py", "/usr/lib/python3/dist-packages/torch/_ops.py",
        "/opt/conda/lib/python3.12/site-packages/jax/_src/api.py", "<frozen runpy>",
        "/opt/pyenv/versions/3.11.7/lib/python3.11/socket.py", "/job/muster_progress.py"})
    EXPECT_TRUE(is_python_library(file)) << file;
  for (const char* file : {"/home/u/train.py", "train.py", "<string>", "/home/u/lib/python/x.py"})
    EXPECT_FALSE(is_python_library(file)) << file;
  EXPECT_EQ(python_package_of("/usr/lib/python3/dist-packages/torch/_ops.py"), "torch");
  EXPECT_EQ(python_package_of("/usr/lib/python3.11/threading.py"), "");
}

TEST(PythonFrame, ATreeShowsShortPaths) {
  const auto shown = [](const char* text) {
    StackTree tree;
    StackSample sample;
    sample.ranks.push_back({.rank = 0, .pid = 1, .problem = "", .threads = {}, .note = ""});
    sample.ranks[0].threads.push_back(
        {.tid = 1, .name = "main", .state = 'S', .frames = {{.text = text}}});
    tree.add(sample);
    return tree.frame_text(tree.classes().at(0).frames.at(0));
  };
  EXPECT_EQ(shown("/home/u/job/train.py:31 step"), "job/train.py:31 step");
  EXPECT_EQ(shown("/v/lib/python3.11/site-packages/torch/distributed/c10d.py:9 wait"),
            "torch/distributed/c10d.py:9 wait");
  EXPECT_EQ(shown("/usr/lib/python3.11/multiprocessing/connection.py:395 _recv"),
            "multiprocessing/connection.py:395 _recv");
  EXPECT_EQ(shown("train.py:31 step"), "train.py:31 step");
  EXPECT_EQ(shown("[kernel] futex_wait"), "[kernel] futex_wait");
}

}  // namespace
}  // namespace muster
