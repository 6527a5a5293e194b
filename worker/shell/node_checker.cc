#include "worker/shell/node_checker.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <boost/asio/post.hpp>
#include <nlohmann/json.hpp>

#include "common/process/run_child.h"
#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "daemon/process.h"

namespace muster::worker {
namespace {

constexpr const char* kProgram = "muster-trainer";
constexpr size_t kOutputBytesMax = 64 << 10;
constexpr size_t kErrorsBytesMax = 4 << 10;
constexpr size_t kTextBytesMax = 1'024;  // a line

NodeCheckDone failed(std::string sentence) {
  NodeCheckDone done;
  done.sentence = std::move(sentence);
  return done;
}

// Parses the program's output. Requires that its exit code and its output agree.
NodeCheckDone parse(const ChildEnd& child) {
  const auto json = nlohmann::json::parse(child.output, nullptr, /*allow_exceptions=*/false);
  const auto text = [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_string()
               ? printable(found->get<std::string>(), kTextBytesMax)
               : std::string();
  };
  if (!json.is_object() || text("sentence").empty()) {
    const std::string printed =
        printable(sv(absl::StripAsciiWhitespace(child.errors)), kTextBytesMax);
    return failed(absl::StrCat("its check ended with code ", child.exit_code,
                               " and without a result", printed.empty() ? "" : ": ", printed));
  }
  NodeCheckDone done;
  const auto passed = json.find("passed");
  done.passed =
      child.exit_code == 0 && passed != json.end() && passed->is_boolean() && passed->get<bool>();
  done.sentence = text("sentence");
  done.details = text("details");
  return done;
}

}  // namespace

NodeCheckDone run_node_check(const NodeCheckerOptions& options) {
  if (options.program.empty()) {
    NodeCheckDone skipped;
    skipped.passed = true;
    skipped.sentence =
        absl::StrCat("it answers; cores, memory and disk were not tested, because no ", kProgram,
                     " is beside muster-worker");
    return skipped;
  }
  // Reaps children of earlier checks that could not be killed.
  while (waitpid(-1, nullptr, WNOHANG | __WNOTHREAD) > 0) {
  }
  std::error_code ignored;  // the check reports a missing folder
  std::filesystem::create_directories(options.local_dir, ignored);
  const Instant began = monotonic_now();
  const auto child = run_child({options.program, "check-node", "--json", "--work-dir",
                                options.work_dir, "--shm-dir", options.local_dir},
                               {.deadline = began + options.deadline,
                                .output_bytes_max = kOutputBytesMax,
                                .errors_bytes_max = kErrorsBytesMax,
                                .apart = true});
  NodeCheckDone done =
      child.ok()
          ? parse(*child)
          : failed(absl::StrCat("its check: ",
                                printable(std::string(child.status().message()), kTextBytesMax)));
  done.seconds = to_seconds(monotonic_now() - began);
  return done;
}

std::string find_node_check_program(const std::string& trainer) {
  std::vector<std::filesystem::path> candidates;
  if (const auto self = daemon::own_executable_path(); self.ok())
    candidates.push_back(std::filesystem::path(*self).parent_path() / kProgram);
  if (std::filesystem::path(trainer).filename() == kProgram) candidates.emplace_back(trainer);
  const auto found = std::find_if(candidates.begin(), candidates.end(),
                                  [](const auto& path) { return access(path.c_str(), X_OK) == 0; });
  return found == candidates.end() ? "" : found->string();
}

NodeChecker::NodeChecker(boost::asio::io_context& loop, NodeCheckerOptions options,
                         std::function<void(NodeCheckDone)> on_done)
    : loop_(loop), options_(std::move(options)), on_done_(std::move(on_done)) {}

NodeChecker::~NodeChecker() {
  thread_.stop();
  thread_.join();
}

void NodeChecker::run() {
  boost::asio::post(thread_, [this] {
    boost::asio::post(loop_, [this, done = run_node_check(options_)] { on_done_(done); });
  });
}

}  // namespace muster::worker
