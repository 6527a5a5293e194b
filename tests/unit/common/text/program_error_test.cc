#include "common/text/program_error.h"

#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

std::string found_in(const char* output) {
  const std::vector<std::string> lines = absl::StrSplit(output, '\n');
  const auto error = find_program_error(lines);
  return error ? to_string(*error) : "none";
}

TEST(ProgramError, IsTheExceptionAtTheProgramsOwnLine) {
  EXPECT_EQ(found_in(R"(step 49 loss 5.5
Traceback (most recent call last):
  File "/home/u/job/train.py", line 40, in <module>
    step(batch)
  File "/home/u/job/train.py", line 31, in step
    loss = model(batch)
           ^^^^^^^^^^^^
  File "/v/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1773, in _wrapped_call_impl
    return self._call_impl(*args, **kwargs)
ValueError: batch 7 is empty
step 50 is skipped)"),
            "ValueError: batch 7 is empty (job/train.py:31 step)");
  // PyTorch writes the rank before each line; the upper part of a long traceback is out of sight.
  EXPECT_EQ(found_in(R"([rank1]:   File "/home/u/job/model.py", line 7, in forward
[rank1]:     return x @ self.w
[rank1]: RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 9x9)
[W1129 09:00:00.1 ProcessGroup.cpp:1] Warning: destroy_process_group() was not called)"),
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 9x9) (job/model.py:7 "
            "forward)");
  // The exception that left the program, not the handled one.
  EXPECT_EQ(found_in(R"(Traceback (most recent call last):
  File "/job/a.py", line 2, in f
    x = d["k"]
KeyError: 'k'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/job/a.py", line 9, in <module>
    f()
data.BadShard: shard 3)"),
            "data.BadShard: shard 3 (job/a.py:9 <module>)");
  // The end of the exception's line is kept, and the next line is not one.
  EXPECT_EQ(found_in(R"(  File "/job/a.py", line 2, in f
…of a long message
wandb: run finished)"),
            "none");
}

TEST(ProgramError, AHandledExceptionIsNotTheReason) {
  std::string output = R"(Traceback (most recent call last):
  File "/job/data.py", line 20, in load
    raise ValueError("corrupt sample")
ValueError: corrupt sample)";
  for (int step = 0; step < 20; ++step)
    absl::StrAppend(&output, "\nstep ", step, " val_error 0.12");
  EXPECT_EQ(found_in(output.c_str()), "ValueError: corrupt sample (job/data.py:20 load)");
  EXPECT_EQ(found_in((output + "\n0 failed").c_str()), "none");
  EXPECT_EQ(found_in((output + "\nstep 20\nabort: the data is bad").c_str()),
            "abort: the data is bad");
  // A handled exception may be the cause of the one that was raised then.
  EXPECT_EQ(found_in(R"(  File "/job/data.py", line 20, in load
    get(url)
ConnectionResetError: [Errno 104] Connection reset by peer

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/job/data.py", line 22, in load
    raise ValueError("shard 3") from error
ValueError: shard 3)"),
            "ValueError: shard 3; after ConnectionResetError: [Errno 104] Connection reset by peer "
            "(job/data.py:22 load)");
}

TEST(ProgramError, OfAnAbortIsItsMessage) {
  EXPECT_EQ(found_in("step 48 loss 5.6\nstep 49 loss 5.5"), "none");
  EXPECT_EQ(found_in("terminate called after throwing an instance of 'std::runtime_error'\n"
                     "  what():  no shard\nstep 49 loss 5.5"),
            "what():  no shard");
  EXPECT_EQ(
      found_in("[rank0]:[E1129 x.cpp:6] [Rank 0] Watchdog caught collective operation timeout: "
               "WorkNCCL(SeqNum=29)\nstep 3"),
      "[E1129 x.cpp:6] [Rank 0] Watchdog caught collective operation timeout: "
      "WorkNCCL(SeqNum=29)");
  EXPECT_EQ(found_in("RuntimeError: cuda runtime error (39) : uncorrectable ECC error encountered\n"
                     "terminate called without an active exception"),
            "RuntimeError: cuda runtime error (39) : uncorrectable ECC error encountered");
  EXPECT_EQ(found_in("train: loop.cc:7: int main(): Assertion `n > 0' failed.\nstep 3"),
            "train: loop.cc:7: int main(): Assertion `n > 0' failed.");
  EXPECT_EQ(found_in(R"(Fatal Python error: Segmentation fault

Current thread 0x00007f1 (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 525 in string_at
  File "/job/train.py", line 12 in read
  File "/job/train.py", line 30 in <module>)"),
            "Fatal Python error: Segmentation fault (job/train.py:12 read)");
}

TEST(ProgramError, ConsequencesOfALostPeerAreKnown) {
  for (const char* text : {
           "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed "
           "by "
           "peer [127.0.0.1]:21033",
           "RuntimeError: [enforce fail at .../gloo/transport/tcp/pair.cc:446] op.preamble.length "
           "<= "
           "op.nbytes. 1024 vs 512",
           "RuntimeError: [..] Timed out waiting 30000ms for recv operation to complete",
           "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:94, remote process "
           "exited or there was a network error",
           "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=81, "
           "OpType=ALLREDUCE) ran for 600029 milliseconds before timing out.",
           "BrokenPipeError: [Errno 32] Broken pipe",
           "jaxlib.xla_extension.XlaRuntimeError: UNAVAILABLE: Gloo all-reduce failed: Connection "
           "reset by peer",
           "F1129 client.h:80] Terminating process because the JAX distributed service detected "
           "fatal errors",
       })
    EXPECT_TRUE(reports_lost_peer(text)) << text;
  for (const char* text :
       {"ValueError: batch 7 is empty", "CUDA error: an illegal memory access",
        "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.",
        "torch.OutOfMemoryError: CUDA out of memory."})
    EXPECT_FALSE(reports_lost_peer(text)) << text;
  // NCCL explains the error in a later line of the message.
  EXPECT_EQ(found_in(R"(  File "/job/t.py", line 3, in f
    x()
RuntimeError: collective failed
Last error:
ncclRemoteError: A call failed possibly due to a network error or a remote process exiting)"),
            "RuntimeError: collective failed; ncclRemoteError: A call failed possibly due to a "
            "network error or a remote process exiting (job/t.py:3 f)");
}

// Python and loggers print more after the exception, which does not explain it.
TEST(ProgramError, LaterOutputIsNotTheReason) {
  const char* error = R"(Traceback (most recent call last):
  File "/job/t.py", line 3, in f
    x()
RuntimeError: evaluation failed)";
  const std::string plain = "RuntimeError: evaluation failed (job/t.py:3 f)";
  for (const char* later :
       {R"(Exception ignored in: <function Loader.__del__ at 0x7f>
Traceback (most recent call last):
  File "/job/data.py", line 9, in __del__
    self.close()
FileNotFoundError: [Errno 2] No such file or directory: '/tmp/x')",
        R"(Exception ignored in: <function Loader.__del__ at 0x7f>
Traceback (most recent call last):
  File "/job/data.py", line 9, in __del__
    self.close()
ImportError: sys.meta_path is None, Python is likely shutting down)",
        R"(Traceback (most recent call last):
  File "/job/data.py", line 9, in close
    import atexit
ImportError: sys.meta_path is None, Python is likely shutting down)",
        "wandb: WARNING 403 Client Error: Forbidden", "Saved 1503 samples",
        "ERROR: PermissionError of the uploader", "ERROR: the GPU is lost to others",
        "ERROR: KeyError 'tag' of the logger"})
    EXPECT_EQ(found_in(absl::StrCat(error, "\n", later).c_str()), plain) << later;
  // Failures that pass explain it, and so does all of NCCL's message.
  EXPECT_EQ(found_in(absl::StrCat(error, "\nERROR: No space left on device").c_str()),
            "RuntimeError: evaluation failed; ERROR: No space left on device (job/t.py:3 f)");
  EXPECT_EQ(found_in(R"(Traceback (most recent call last):
  File "/job/t.py", line 3, in f
    x()
DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, unhandled cuda error
ncclUnhandledCudaError: Call to CUDA function failed.
Last error:
Cuda failure 'uncorrectable ECC error encountered')"),
            "DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, unhandled cuda error; "
            "Cuda failure 'uncorrectable ECC error encountered' (job/t.py:3 f)");
}

TEST(ProgramError, AnErrorIsNoOtherOutput) {
  for (const char* text :
       {"KeyError: 'x'", "RuntimeError: no (job/t.py:3 f)", "ERROR: no", "train.py: error: no",
        "python3: can't open file '/x/train.py': [Errno 2] No such file or directory",
        "the kernel reported: NVRM: Xid (PCI:0000:3b:00): 79"})
    EXPECT_TRUE(is_error_text(text)) << text;
  for (const char* text : {"Saved 1503 samples", "wandb: WARNING 403 Client Error: Forbidden", "",
                           "UserWarning: No module named 'apex'", "step 3 val_error 0.1"})
    EXPECT_FALSE(is_error_text(text)) << text;
}

TEST(ProgramError, ThePlaceIsBeforeTheNotesOfTheWorker) {
  EXPECT_EQ(error_place("OSError: bad (job/t.py:3 f); the kernel reported: I/O error, dev (x)"),
            "job/t.py:3 f");
}

TEST(ProgramError, ASignatureIsTypeAndPlace) {
  EXPECT_EQ(error_signature("ValueError: batch 7 (of 9) is empty (job/train.py:31 step)"),
            "ValueError at job/train.py:31 step");
  EXPECT_EQ(error_signature("AssertionError (job/train.py:31 step)"),
            "AssertionError at job/train.py:31 step");
  for (const char* text :
       {"", "ValueError: x", "killed (OOM)", "x (a b)",
        "RuntimeError: PytorchStreamReader failed reading zip archive (job/train.py:31 step)",
        "torch.OutOfMemoryError: CUDA out of memory. (job/train.py:31 step)",
        "ModuleNotFoundError: No module named 'data' (job/train.py:3 <module>)",
        "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS (job/t.py:3 "
        "f)"})
    EXPECT_EQ(error_signature(text), "") << text;
}

}  // namespace
}  // namespace muster
