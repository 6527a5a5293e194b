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
// The program's bounds of --seconds.
constexpr double kDeepSecondsMin = 0.1;
constexpr double kDeepSecondsMax = 600;

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

// The bounds of the lists and texts that the program may print.
constexpr size_t kMeasurementsMax = 32;
constexpr size_t kNameBytesMax = 32;
constexpr size_t kUnitBytesMax = 16;

DeepCheckFigures figures_of(const std::string& output) {
  DeepCheckFigures figures;
  const auto json = nlohmann::json::parse(output, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return figures;
  const auto text = [](const nlohmann::json& object, const char* key, size_t bytes_max) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string()
               ? printable(found->get<std::string>(), bytes_max)
               : std::string();
  };
  figures.kind = text(json, "kind", kTextBytesMax);
  const auto wrong = json.find("wrong");
  figures.wrong = wrong != json.end() && wrong->is_boolean() && wrong->get<bool>();
  const auto list = json.find("measurements");
  if (list == json.end() || !list->is_array()) return figures;
  for (const nlohmann::json& one : *list) {
    if (!one.is_object() || figures.measurements.size() == kMeasurementsMax) continue;
    const auto value = one.find("value");
    if (value == one.end() || !value->is_number()) continue;
    figures.measurements.push_back(
        {text(one, "name", kNameBytesMax), value->get<double>(), text(one, "unit", kUnitBytesMax)});
  }
  return figures;
}

// Reaps children of earlier checks that could not be killed.
void reap_abandoned() {
  while (waitpid(-1, nullptr, WNOHANG | __WNOTHREAD) > 0) {
  }
}

std::vector<std::string> deep_command(const NodeCheckerOptions& options,
                                      const DeepCheckOrder& order) {
  std::vector<std::string> words = {
      options.program, "check-node",
      "--json",        "--deep",
      "--work-dir",    options.work_dir,
      "--shm-dir",     options.local_dir,
      "--gpus",        options.gpus,
      "--seconds",     absl::StrCat(std::clamp(order.seconds, kDeepSecondsMin, kDeepSecondsMax))};
  const auto add = [&](const char* name, std::string value) {
    words.emplace_back(name);
    words.push_back(std::move(value));
  };
  if (!order.storage_folder.empty()) add("--storage-dir", order.storage_folder);
  if (order.group_size < 2) return words;
  add("--group-node", absl::StrCat(order.group_rank));
  add("--group-nodes", absl::StrCat(order.group_size));
  add("--group-id", absl::StrCat(order.group_id));
  add("--rendezvous", order.rendezvous_address);
  add("--bind-address", options.bind_address);
  return words;
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
  reap_abandoned();
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

DeepCheckDone run_deep_check(const NodeCheckerOptions& options, const DeepCheckOrder& order,
                             const std::atomic<bool>& stop) {
  DeepCheckDone done;
  if (options.program.empty()) {
    done.result.sentence = absl::StrCat("no ", kProgram, " is beside muster-worker");
    done.figures.stopped = true;
    return done;
  }
  reap_abandoned();
  std::error_code ignored;  // the check reports a missing folder
  std::filesystem::create_directories(options.local_dir, ignored);
  const Instant began = monotonic_now();
  // It needs the environment of ranks: the folders of CUDA's and NCCL's libraries.
  const auto child = run_child(deep_command(options, order), {.deadline = began + order.deadline,
                                                              .output_bytes_max = kOutputBytesMax,
                                                              .errors_bytes_max = kErrorsBytesMax,
                                                              .own_group = true,
                                                              .watch = [&stop] { return !stop; }});
  done = result_of_deep_check(child, stop);
  done.result.seconds = to_seconds(monotonic_now() - began);
  return done;
}

// A check that was stopped shows nothing about the node, also if it could not be killed.
DeepCheckDone result_of_deep_check(const absl::StatusOr<ChildEnd>& child, bool is_stopped) {
  DeepCheckDone done;
  if (child.ok()) {
    done.result = parse(*child);
    done.figures = figures_of(child->output);
  } else if (is_stopped) {
    done.result = failed("ranks need the node");
    done.figures.stopped = true;
  } else {
    done.result = failed(absl::StrCat(
        "its check: ", printable(std::string(child.status().message()), kTextBytesMax)));
  }
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
  stop_deep();
  for (auto* thread : {&thread_, &deep_thread_}) {
    thread->stop();
    thread->join();
  }
}

void NodeChecker::run() {
  boost::asio::post(thread_, [this] {
    boost::asio::post(loop_, [this, done = run_node_check(options_)] { on_done_(done); });
  });
}

void NodeChecker::run_deep(const DeepCheckOrder& order,
                           std::function<void(DeepCheckDone)> on_done) {
  stop_deep_ = std::make_shared<std::atomic<bool>>(false);
  boost::asio::post(deep_thread_, [this, order, stop = stop_deep_, on_done = std::move(on_done)] {
    boost::asio::post(loop_,
                      [on_done, done = run_deep_check(options_, order, *stop)] { on_done(done); });
  });
}

void NodeChecker::stop_deep() {
  if (stop_deep_ != nullptr) *stop_deep_ = true;
}

}  // namespace muster::worker
