#include "worker/stacks/python_frames.h"

#include <algorithm>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/files/find_program.h"
#include "common/process/run_child.h"
#include "common/text/absl_view.h"
#include "common/text/escape.h"

namespace muster::worker {
namespace {

constexpr size_t kOutputBytesMax = 16 << 20;  // some 300 bytes per frame
constexpr size_t kErrorBytesMax = 200;
constexpr char kInstall[] = "py-spy is not installed: python3 -m pip install py-spy";

// Returns "" if PATH has none.
std::string py_spy_in_path() { return find_program_in_path("py-spy").value_or(""); }

std::string bounded(std::string text) {
  text = escape_controls(text, Layout::kOneLine);
  if (text.size() > kFrameTextBytesMax) text.resize(kFrameTextBytesMax);
  return text;
}

StackFrame frame_of(const nlohmann::json& frame) {
  const std::string name = frame.value("name", "?");
  const auto line = frame.value("line", int64_t{0});
  // The full path shows whether a file belongs to the program or to a library.
  const std::string file = frame.at("filename").get<std::string>();
  return {.text = bounded(absl::StrCat(file, ":", line, " ", name))};
}

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

}  // namespace

bool is_python_interpreter(std::string_view module_path) {
  const absl::string_view name = av(base_name(module_path));
  return absl::StartsWith(name, "libpython3") ||
         (absl::StartsWith(name, "python") &&
          name.find_first_not_of("0123456789.", 6) == absl::string_view::npos);
}

bool runs_python(const ProcessMap& map) {
  return std::ranges::any_of(
      map.modules, [](const MappedModule& module) { return is_python_interpreter(module.path); });
}

PySpy::PySpy(const std::string& program) : program_(program.empty() ? py_spy_in_path() : program) {}

absl::StatusOr<PythonFrames> PySpy::dump(pid_t pid, Instant deadline,
                                         const std::optional<UserIds>& user) const {
  if (program_.empty()) return absl::NotFoundError(kInstall);
  // Nonblocking: a py-spy that is killed at the deadline could leave an attached program stopped.
  const auto output =
      run_child({program_, "dump", "--nonblocking", "--json", "--pid", absl::StrCat(pid)},
                {.deadline = deadline,
                 .output_bytes_max = kOutputBytesMax,
                 .errors_bytes_max = kErrorBytesMax,
                 .apart = true,
                 .user = user});
  if (!output.ok()) return output.status();
  if (output->exit_code != 0) {
    const std::string reason = output->errors.substr(0, output->errors.find('\n'));
    return absl::UnavailableError(
        absl::StrCat("py-spy: ", escape_controls(reason, Layout::kOneLine)));
  }
  return parse_py_spy(output->output);
}

absl::StatusOr<PythonFrames> parse_py_spy(std::string_view json) {
  const auto dump = nlohmann::json::parse(json, nullptr, false);
  if (!dump.is_array()) return absl::DataLossError("py-spy printed no JSON list of threads");
  PythonFrames threads;
  try {
    for (const nlohmann::json& thread : dump) {
      if (threads.size() == kThreadsPerRankMax) break;
      if (!thread.at("os_thread_id").is_number_integer()) continue;
      std::vector<StackFrame>& frames = threads[thread.at("os_thread_id").get<pid_t>()];
      for (const nlohmann::json& frame : thread.at("frames")) {
        if (frames.size() == kStackDepthMax) break;
        frames.push_back(frame_of(frame));
      }
      std::ranges::reverse(frames);
    }
  } catch (const nlohmann::json::exception& error) {
    return absl::DataLossError(absl::StrCat("py-spy's JSON: ", error.what()));
  }
  return threads;
}

std::vector<StackFrame> with_python_frames(const std::vector<StackFrame>& native,
                                           const std::vector<StackFrame>& python,
                                           const std::vector<StackModule>& modules) {
  if (python.empty()) return native;
  const auto last = std::find_if(native.rbegin(), native.rend(), [&](const StackFrame& frame) {
    return frame.module < modules.size() && is_python_interpreter(modules[frame.module].path);
  });
  std::vector<StackFrame> merged = python;
  if (last != native.rend()) merged.insert(merged.end(), last.base(), native.end());
  if (merged.size() > kStackDepthMax)
    merged.erase(merged.begin(), merged.end() - static_cast<ptrdiff_t>(kStackDepthMax));
  return merged;
}

}  // namespace muster::worker
