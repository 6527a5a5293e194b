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

#include "common/errno_status.h"
#include "common/find_program.h"

namespace muster::cli {
namespace {

// Set by nsys for what it starts.
constexpr const char* kUnderNsys = "NSYS_PROFILING_SESSION_ID";

absl::StatusOr<std::vector<std::string>> own_command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::vector<std::string> words = absl::StrSplit(text, '\0');
  if (text.empty() || words.size() < 2)
    return absl::InternalError("/proc/self/cmdline cannot be read");
  words.pop_back();  // behind the last word's end
  std::error_code error;
  words[0] = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) return errno_status(error.value(), "/proc/self/exe");
  return words;
}

}  // namespace

absl::Status put_under_nsys(NsysCapture capture, const std::string& report,
                            std::vector<std::string>& command) {
  const char* const path = std::getenv("PATH");
  const auto nsys = find_program("nsys", path == nullptr ? "" : path, "/");
  if (!nsys.ok()) return nsys.status();
  // Of CUDA graphs each kernel, too.
  std::vector<std::string> words = {
      *nsys,     "profile",        "--output",           report, "--force-overwrite", "true",
      "--trace", "cuda,nvtx,osrt", "--cuda-graph-trace", "node"};
  // What has been recorded is written, and the program goes on.
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
  // This process may have blocked some for itself.
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
