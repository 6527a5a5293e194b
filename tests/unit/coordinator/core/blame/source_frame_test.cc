#include "coordinator/core/blame/source_frame.h"

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

struct Frame {
  const char* module;  // "": the frame is text
  FrameSymbol symbol;  // for a text frame, the function is the text
};

std::string source(const std::vector<Frame>& frames) {
  StackTree::Parts parts;
  parts.frames.push_back({});
  parts.frames[0].text = "main";
  parts.nodes.push_back({});
  for (const Frame& frame : frames) {
    StackFrame place;
    place.address = parts.frames.size();
    if (frame.module[0] == '\0') {
      place.text = frame.symbol.function;
    } else {
      place.module = static_cast<uint32_t>(parts.modules.size());
      parts.modules.push_back({.build_id = {}, .path = frame.module});
    }
    parts.symbols.resize(parts.frames.size());
    parts.symbols.push_back(frame.module[0] == '\0' ? FrameSymbol{} : frame.symbol);
    parts.nodes.push_back({static_cast<uint32_t>(parts.frames.size() - 1),
                           static_cast<uint32_t>(parts.frames.size()),
                           {}});
    parts.frames.push_back(place);
  }
  parts.nodes.back().ends.add(0);
  const auto tree = StackTree::of(parts);
  EXPECT_TRUE(tree.ok()) << tree.status();
  return source_of(*tree, tree->classes()[0]);
}

TEST(SourceFrame, IsTheProgramsOwnInnermostOne) {
  EXPECT_EQ(source({{"/bin/muster-trainer",
                     {"muster::trainer::run()", "/src/trainer_core/loop/train.cc", 210}},
                    {"/bin/muster-trainer",
                     {"muster::trainer::(anonymous namespace)::TransportGroup::barrier()", "", 0}},
                    {"/usr/lib/libgloo.so", {"gloo::allreduce()", "", 0}},
                    {"/lib/libc.so.6", {"__poll", "", 0}},
                    {"", {"[kernel] do_sys_poll", "", 0}}}),
            "loop/train.cc:210 in muster::trainer::run()");
  EXPECT_EQ(source({{"/bin/x", {"run()", "/src/x.cc", 3}},
                    {"/bin/x", {"send()", "/src/trainer_core/comm/shm.cc", 9}},
                    {"/bin/x", {"wait()", "/usr/include/c++/12/condition_variable", 1}}}),
            "src/x.cc:3 in run()");
  // A rank that waits for gathered parameters is at the line that uses them.
  for (const bool has_lines : {true, false}) {
    const char* file = has_lines ? "/src/trainer_core/parallel/sharded_parameters.cc" : "";
    EXPECT_EQ(
        source(
            {{"/bin/x",
              {"muster::trainer::Transformer::embed()", "/src/trainer_core/model/embed.cc", 254}},
             {"/bin/x", {"muster::trainer::ShardedParameters::wait()", file, has_lines ? 98 : 0}}}),
        "model/embed.cc:254 in muster::trainer::Transformer::embed()");
  }
}

TEST(SourceFrame, OfPythonIsTheUsersLine) {
  EXPECT_EQ(source({{"/usr/bin/python3.11", {"_PyEval_EvalFrameDefault", "", 0}},
                    {"", {"train.py:31 train_step", "", 0}},
                    {"",
                     {"/venv/lib/python3.11/site-packages/torch/distributed/c10d.py:9 all_reduce",
                      "", 0}},
                    {"/venv/lib/libtorch_cpu.so", {"c10d::wait", "", 0}}}),
            "train.py:31 train_step");
}

// A rank of a DDP program that waits in the backward pass, and one of JAX.
TEST(SourceFrame, OfPythonIsNeverALibrarysLine) {
  const std::string packages = "/opt/conda/lib/python3.11/site-packages/";
  const auto python = [](const std::string& text) { return Frame{"", {text, "", 0}}; };
  EXPECT_EQ(source({python("/home/u/job/train.py:88 <module>"),
                    python("/home/u/job/train.py:31 step"),
                    python(packages + "torch/_tensor.py:581 backward"),
                    python(packages + "torch/autograd/__init__.py:347 backward"),
                    {"/opt/conda/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so",
                     {"c10d::Reducer::finalize_backward()", "", 0}},
                    {"/usr/lib/x86_64-linux-gnu/libc.so.6", {}}}),
            "job/train.py:31 step");
  EXPECT_EQ(source({python("/home/u/jax/run.py:12 main"),
                    python("/usr/lib/python3.11/multiprocessing/connection.py:395 _recv"),
                    {"/home/u/.local/lib/python3.11/site-packages/jaxlib/libjax_common.so", {}}}),
            "jax/run.py:12 main");
  EXPECT_EQ(source({python("/home/u/job/train.py:31 step"),
                    {"/home/u/job/_kernels.so", {"scatter_rows", "/home/u/job/kernels.cc", 7}},
                    {"/usr/lib/x86_64-linux-gnu/libopenblas.so.0", {"dgemm_kernel", "", 0}}}),
            "job/kernels.cc:7 in scatter_rows")
      << "an extension of the program itself";
  EXPECT_EQ(source({python("<frozen runpy>:198 _run_module_as_main"),
                    python(packages + "trainkit/train.py:5 main"),
                    python(packages + "trainkit/data.py:9 load"),
                    python("/opt/conda/lib/python3.11/threading.py:1119 join"),
                    python(packages + "torch/utils/data/dataloader.py:1440 _try_get_data")}),
            "trainkit/data.py:9 load")
      << "python -m trainkit.train";
}

TEST(SourceFrame, OfGeneratedCodeIsInWords) {
  const std::string words = "code generated at run time, such as a GEMM on the CPU";
  EXPECT_EQ(source({{"", {"[outer frames left out]", "", 0}}, {"", {"[jit]", "", 0}}}), words);
  EXPECT_EQ(source({{"", {"[jit]", "", 0}}, {"", {"[outer frames left out]", "", 0}}}), words);
  EXPECT_EQ(source({{"/bin/x", {"run()", "/src/x.cc", 3}}, {"", {"[jit]", "", 0}}}),
            "src/x.cc:3 in run()");
}

TEST(SourceFrame, WithoutNamesModulesDecide) {
  EXPECT_EQ(source({{"/opt/job/train", {}}, {"/lib/libc.so.6", {}}}), "train+0x1");
  EXPECT_EQ(source({{"/lib/libc.so.6", {}}, {"/lib/ld-linux-x86-64.so.2", {}}}),
            "ld-linux-x86-64.so.2+0x2")
      << "the innermost frame if no frame belongs to the program";
  EXPECT_EQ(source({}), "");
}

}  // namespace
}  // namespace muster::coordinator
