#include "cli/run/profiler.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "common/files/errno_status.h"
#include "common/files/find_program.h"

namespace muster::cli {
namespace {

// nsys sets it for the programs that it starts.
constexpr const char* kUnderNsys = "NSYS_PROFILING_SESSION_ID";

absl::StatusOr<std::vector<std::string>> own_command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::vector<std::string> words = absl::StrSplit(text, '\0');
  if (text.empty() || words.size() < 2)
    return absl::InternalError("cannot read /proc/self/cmdline");
  words.pop_back();  // the empty text after the last separator
  std::error_code error;
  words[0] = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) return errno_status(error.value(), "/proc/self/exe");
  return words;
}

}  // namespace

absl::Status put_under_nsys(NsysCapture capture, const std::string& report,
                            std::vector<std::string>& command) {
  const auto nsys = find_program_in_path("nsys");
  if (!nsys.ok()) return nsys.status();
  // Traces each kernel of a CUDA graph.
  std::vector<std::string> words = {
      *nsys,     "profile",        "--output",           report, "--force-overwrite", "true",
      "--trace", "cuda,nvtx,osrt", "--cuda-graph-trace", "node"};
  // After the range nsys writes its report and the program continues.
  if (capture == NsysCapture::kSteps)
    words.insert(words.end(),
                 {"--capture-range", "cudaProfilerApi", "--capture-range-end", "stop"});
  command.insert(command.begin(), words.begin(), words.end());
  return absl::OkStatus();
}

absl::Status restart_under_nsys(const std::string& report) {
  if (std::getenv(kUnderNsys) != nullptr) return absl::OkStatus();
  auto command = own_command_line();
  if (!command.ok()) return command.status();
  if (auto status = put_under_nsys(NsysCapture::kSteps, report, *command); !status.ok())
    return status;
  // This process may have blocked signals, and the mask survives exec.
  sigset_t none, before;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, &before);
  std::vector<char*> words;
  words.reserve(command->size() + 1);
  for (std::string& word : *command) words.push_back(word.data());
  words.push_back(nullptr);
  execv(words[0], words.data());
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return errno_status(error, words[0]);
}

}  // namespace muster::cli
