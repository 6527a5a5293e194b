// muster bench device: measures this machine, so that `muster plan` can forecast the time of steps
// on it. The trainer measures (trainer_core/forecast/device_bench.h), on ranks that `muster run`
// starts as those of any job; this command chooses the ranks and writes the files.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/plan/machine_files.h"
#include "cli/run/build_features.h"
#include "cli/run/interrupts.h"
#include "cli/run/local_gpu_check.h"
#include "cli/run/pasted_command.h"
#include "cli/run/this_machine.h"
#include "cli/terminal/child_process.h"
#include "cli/terminal/output.h"
#include "cli/terminal/progress_bar.h"
#include "cli/terminal/terminal.h"
#include "common/files/errno_status.h"
#include "common/files/file_write.h"
#include "common/job/limits.h"
#include "common/process/exit_code.h"
#include "common/process/usable_cpus.h"
#include "common/time/time.h"
#include "daemon/help.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMachineNameBytesMax = 64;
// More than both files have.
constexpr size_t kFilesBytesMax = 16 << 10;
constexpr size_t kShownLogBytes = 4000;
constexpr int kProgressMs = 200;
constexpr double kUsualSeconds = 60;
constexpr int32_t kLimitSeconds = 120;
constexpr int32_t kLimitSecondsMax = 3600;
// The share of the limit in which the trainer measures; the rest is for the start, the links and a
// machine that becomes slower meanwhile.
constexpr double kMeasuringShare = 0.75;

struct BenchDeviceArguments {
  std::string name;
  std::string folder;  // empty: that of the shipped base.yml
  std::optional<int32_t> ranks;
  std::string hardware = "auto";
  std::optional<int32_t> limit_seconds;
  bool replaces = false;
  bool json = false;
};

absl::Status check_machine_name(const std::string& name) {
  const bool fits = !name.empty() && name.size() <= kMachineNameBytesMax && name.front() != '.' &&
                    name.front() != '-' && std::ranges::all_of(name, [](char c) {
                      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' ||
                             c == '_' || c == '.';
                    });
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "NAME=", nlohmann::json(name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
      ": expected letters, digits, -, _ and ., at most ", kMachineNameBytesMax,
      ", such as my-server"));
}

// Returns the folder of the files; that of the shipped configs if the user gives none.
absl::StatusOr<std::string> bench_folder(const BenchDeviceArguments& arguments) {
  std::error_code error;
  if (!arguments.folder.empty()) {
    if (fs::is_directory(arguments.folder, error)) return arguments.folder;
    return absl::InvalidArgumentError(
        absl::StrCat("--out ", arguments.folder,
                     ": no such folder; it is the one of your "
                     "base.yml, and gets topologies/ and calibration/"));
  }
  const auto shipped = shipped_base_yml();
  if (!shipped.ok()) return shipped.status();
  return fs::path(*shipped).parent_path().string();
}

// Refuses files that exist, and a folder or disk that takes no files, before the measurement.
absl::Status check_can_write(const std::string& folder, const MachinePaths& paths, bool replaces) {
  if (replaces)
    if (auto status = check_replaceable(paths); !status.ok()) return status;
  for (const std::string& path : {paths.topology, paths.calibration}) {
    std::error_code error;
    if (!replaces && fs::exists(path, error))
      return absl::InvalidArgumentError(
          absl::StrCat(path, " exists; choose another name, or replace it with --force"));
    const std::string own = fs::path(path).parent_path().string();
    const std::string probe =
        absl::StrCat(fs::exists(own, error) ? own : folder, "/.muster-bench-", getpid());
    const absl::Status status = write_file_atomically(probe, std::string(kFilesBytesMax, ' '));
    fs::remove(probe, error);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// The ranks that measure at once.
struct BenchRanks {
  bool is_gpu = false;
  int32_t count = 1;
  int32_t devices = 1;  // the GPUs or cores of this machine
};

absl::StatusOr<BenchRanks> bench_ranks(const BenchDeviceArguments& arguments) {
  BenchRanks ranks;
  const int32_t gpus = kHasGpuBackend && arguments.hardware != "cpu" ? local_gpus() : 0;
  ranks.is_gpu = gpus > 0;
  if (arguments.hardware == "gpu" && !ranks.is_gpu)
    return absl::InvalidArgumentError(
        kHasGpuBackend ? "--hardware gpu: this machine has no GPU that muster-worker --list-gpus "
                         "shows"
                       : "--hardware gpu: this build has no CUDA: build it with -DMUSTER_CUDA=ON");
  const int32_t most = ranks.is_gpu ? gpus : usable_cpus();
  ranks.devices = most;
  // Two ranks of a CPU show its links; more divide the same cores.
  ranks.count = arguments.ranks.value_or(ranks.is_gpu ? gpus : std::min(2, most));
  if (ranks.count <= most) return ranks;
  return absl::InvalidArgumentError(absl::StrCat("--ranks ", ranks.count, ": must be from 1 to ",
                                                 most, ", the ", ranks.is_gpu ? "GPUs" : "cores",
                                                 " of this machine"));
}

// Runs the ranks. Returns the measurement, Cancelled after Ctrl-C, or DeadlineExceeded.
absl::StatusOr<nlohmann::json> run_ranks(const BenchRanks& ranks, const std::string& dtype,
                                         int32_t limit_seconds, const std::string& folder,
                                         Interrupts& interrupts) {
  const auto muster = sibling_program("muster"), trainer = sibling_program("muster-trainer");
  if (!muster.ok()) return muster.status();
  if (!trainer.ok()) return trainer.status();
  const std::string log = folder + "/log", out = folder + "/measured.json";
  std::vector<std::string> words = {
      *muster,      "run",   "--ranks",         absl::StrCat(ranks.count),
      "--name",     "bench", "--output",        folder + "/run",
      "--stdin",    "none",  "--leave-seconds", "1",
      "--restarts", "0"};
  if (ranks.is_gpu) words.insert(words.end(), {"--gpus-per-rank", "1"});
  const auto measuring = static_cast<int32_t>(kMeasuringShare * limit_seconds);
  words.insert(words.end(),
               {"--", *trainer, "bench-device", "--out", out, "--dtype", dtype, "--hardware",
                ranks.is_gpu ? "gpu" : "cpu", "--seconds", absl::StrCat(measuring)});
  auto child = ChildProcess::start({.command = words, .output_path = log});
  if (!child.ok()) return child.status();
  const Instant began = monotonic_now();
  Output errors(STDERR_FILENO);
  std::optional<ProgressBar> bar;
  bar.emplace(errors, "bench device", began);
  std::optional<ChildExit> end;
  for (int requests = 0; !end;) {
    std::array<pollfd, 2> events = {{{(*child)->pidfd(), POLLIN, 0}, {interrupts.fd(), POLLIN, 0}}};
    poll(events.data(), events.size(), kProgressMs);
    end = (*child)->wait(std::chrono::milliseconds(0));
    const double seconds = to_seconds(monotonic_now() - began);
    bar->update({.label = "measuring", .fraction = std::min(seconds / kUsualSeconds, 0.99)},
                monotonic_now());
    const int now = interrupts.take();
    if (now > requests) (*child)->signal(SIGINT);
    requests = now;
    // The destructor kills the child, and with it the processes that it has started.
    if (requests > 1) return absl::CancelledError("interrupted");
    if (!end && monotonic_now() - began > std::chrono::seconds(limit_seconds))
      return absl::DeadlineExceededError(absl::StrCat(
          "the measurement has not ended after ", limit_seconds,
          " s, and no file was written; end the other programs of this machine, or give it more "
          "time with --limit"));
    if (end && requests > 0) return absl::CancelledError("interrupted");
  }
  bar.reset();
  std::ifstream file(out);
  auto measured = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (end->signal == 0 && end->code == 0 && measured.is_object()) return measured;
  return absl::InternalError(absl::StrCat(
      "the measurement ended with ", end->signal != 0 ? "signal " : "exit code ",
      end->signal != 0 ? end->signal : end->code, ":\n", tail_of_file(log, kShownLogBytes)));
}

std::string describe_measurement(const nlohmann::json& measured, const MachineFiles& files) {
  std::vector<std::vector<std::string>> rows(1, {"STEP", "MEASURED", "FORECAST", "ERROR", ""});
  for (const auto& step : measured["steps"]) {
    const double seconds = step["seconds"].get<double>();
    const double forecast = step["forecast_seconds"].get<double>();
    rows.push_back({step["name"].get<std::string>(), absl::StrFormat("%.4f s", seconds),
                    absl::StrFormat("%.4f s", forecast),
                    absl::StrFormat("%+.1f%%", 100 * (forecast / seconds - 1)),
                    step["fitted"].get<bool>() ? "fitted" : "not fitted"});
  }
  return absl::StrCat(format_table(std::move(rows)),
                      absl::StrFormat("the forecasts are within %.1f%%\n", files.error_percent));
}

int interrupted() {
  note("interrupted; no file was written");
  return to_int(ExitCode::kInterrupted);
}

int bench_device(const BenchDeviceArguments& arguments) {
  if (auto status = check_machine_name(arguments.name); !status.ok()) return fail(status);
  const auto folder = bench_folder(arguments);
  if (!folder.ok()) return fail(folder.status());
  const MachinePaths paths = machine_paths(*folder, arguments.name);
  if (auto status = check_can_write(*folder, paths, arguments.replaces); !status.ok())
    return fail(status);
  const auto ranks = bench_ranks(arguments);
  if (!ranks.ok()) return fail(ranks.status());
  MachineNames names{.devices = ranks->devices};
  std::string dtype = "bfloat16";
  if (!ranks->is_gpu) {
    const std::string cpuinfo = own_cpuinfo();
    names.device = cpu_model(cpuinfo);
    names.bfloat16_speed = cpu_bfloat16_speed(cpuinfo);
    if (names.bfloat16_speed.value_or(0) < 1) dtype = "float32";
  }
  std::error_code error;
  std::string own = (fs::temp_directory_path(error) / "muster-bench-XXXXXX").string();
  if (error || mkdtemp(own.data()) == nullptr)
    return fail(errno_status(errno, absl::StrCat("a temporary folder ", own)));
  const absl::Cleanup remove = [&] { fs::remove_all(own, error); };
  // Until both files are written, so that Ctrl-C never leaves one of them.
  const auto interrupts = Interrupts::block();
  if (!interrupts.ok()) return fail(interrupts.status());
  const auto measured =
      run_ranks(*ranks, dtype, arguments.limit_seconds.value_or(kLimitSeconds), own, **interrupts);
  if (absl::IsCancelled(measured.status())) return interrupted();
  if (!measured.ok()) return fail(measured.status());
  auto files = machine_files(*measured, names);
  if (!files.ok()) return fail(files.status());
  if ((*interrupts)->take() > 0) return interrupted();
  const std::string kept = keep_added_keys(paths, *files);
  if (auto status = write_machine_files(*files, paths); !status.ok()) return fail(status);
  (*interrupts)->release();
  if (!kept.empty()) note(kept);
  const std::string disturbance = measured->value("disturbance", "");
  if (!disturbance.empty())
    warn(absl::StrCat("the measurement was disturbed: ", disturbance,
                      "; measure again on an idle machine (--force)"));
  if (arguments.json) {
    nlohmann::json out = *measured;
    out["topology_file"] = paths.topology;
    out["calibration_file"] = paths.calibration;
    out["error_percent"] = files->error_percent;
    return print_result(out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  }
  return print_result(absl::StrCat(describe_measurement(*measured, *files), "wrote ",
                                   paths.topology, "\nwrote ", paths.calibration,
                                   "\nplan for this machine: muster plan CONFIG … "
                                   "compile_topology=",
                                   arguments.name, "-", ranks->count, "\n"));
}

}  // namespace

void declare_bench(CLI::App& app, Action& action) {
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine");
  bench->require_subcommand(1);
  auto arguments = std::make_shared<BenchDeviceArguments>();
  CLI::App* command = bench->add_subcommand(
      "device",
      "Measure GEMMs, attention, memory, copies and all-reduce of this machine's GPUs or CPU, and "
      "write a topology and a\ncalibration, with which muster plan forecasts the time of a step on "
      "such machines. Takes at most two minutes\n(--limit); nothing else should run meanwhile.");
  command->add_option("name", arguments->name, "Name of the topology: compile_topology=NAME-RANKS")
      ->type_name("NAME")
      ->required();
  command
      ->add_option("--out", arguments->folder,
                   "Folder of a base.yml, for topologies/NAME.yml and calibration/muster-NAME.yml. "
                   "Default: that of Muster's own")
      ->type_name("FOLDER");
  daemon::add_count(*command, "--ranks", arguments->ranks,
                    "Ranks that measure at once. Default: all GPUs; on a CPU 2, which share its "
                    "cores",
                    1, kRanksPerNodeMax);
  command->add_option("--hardware", arguments->hardware, "What to measure")
      ->type_name("auto|cpu|gpu")
      ->check(CLI::IsMember({"auto", "cpu", "gpu"}).description(""))
      ->capture_default_str();
  daemon::add_count(*command, "--limit", arguments->limit_seconds,
                    "Seconds that the measurement may take. Default: 120", 10, kLimitSecondsMax);
  command->add_flag("--force", arguments->replaces,
                    "Replace files of an earlier measurement with this name. Keys that were added "
                    "to its topology are kept");
  add_json_option(*command, arguments->json);
  command->footer(
      "Examples:\n"
      "  muster bench device my-server\n"
      "  muster plan configs/base.yml model_name=llama2-tiny compile_topology=my-server-2\n"
      "Exit codes: 0 done; 1 the measurement failed or took too long; 2 the name exists or an "
      "option "
      "is wrong; 4 the disk is full; 130 "
      "Ctrl-C, which writes nothing.");
  on_call(*command, action, arguments, bench_device);
}

}  // namespace muster::cli
