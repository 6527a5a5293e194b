// muster open: opens the coordinator's page in a browser.
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

#include <absl/strings/str_cat.h>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/jobs/page_address.h"
#include "cli/terminal/terminal.h"
#include "common/files/find_program.h"
#include "common/text/absl_view.h"
#include "daemon/endpoint.h"

namespace muster::cli {
namespace {

// The default port of muster-coordinator --http.
constexpr int kPagePort = 7071;

struct OpenOptions {
  uint64_t job = 0;  // 0: the newest job that has not ended
  std::string http;  // empty: kPagePort of the coordinator's host
  bool only_prints = false;
  CoordinatorTarget coordinator;
};

// Returns the job to show; 0: the fleet.
absl::StatusOr<uint64_t> job_to_show(Client& client, const OpenOptions& options) {
  if (options.job != 0) {
    const auto job = client.get_job(options.job);
    return job.ok() ? absl::StatusOr<uint64_t>(options.job) : job.status();
  }
  const auto jobs = client.list_jobs(/*active_only=*/true, /*all=*/false);
  if (!jobs.ok()) return jobs.status();
  return jobs->jobs_size() == 0 ? 0 : jobs->jobs(0).id();
}

bool has_display() { return getenv("DISPLAY") != nullptr || getenv("WAYLAND_DISPLAY") != nullptr; }

// Starts a browser that outlives this program. Returns an error if there is none.
absl::Status start_browser(const std::string& address) {
  if (!has_display()) return absl::NotFoundError("there is no display here");
  const auto program = find_program_in_path("xdg-open");
  if (!program.ok()) return program.status();
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  std::array<std::string, 2> words = {*program, address};
  std::array<char*, 3> argv = {words[0].data(), words[1].data(), nullptr};
  pid_t pid = 0;
  const int error = posix_spawn(&pid, program->c_str(), &files, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(*program, " cannot be started: ", strerror(error)));
}

int open_page(const OpenOptions& options) {
  Client client(options.coordinator);
  const auto job = job_to_show(client, options);
  if (!job.ok()) return fail(job.status());
  std::string authority = options.http;
  if (authority.empty()) {
    const auto address = client.address();
    if (!address.ok()) return fail(address.status());
    auto endpoint = daemon::parse_endpoint("--coordinator", *address);
    if (!endpoint.ok()) return fail(endpoint.status());
    endpoint->port = kPagePort;
    authority = endpoint->to_string();
  }
  const std::string address = page_address(authority, options.coordinator.trust.has_tls(), *job);
  const int printed = print_result(address + "\n");
  if (options.only_prints || printed != 0) return printed;
  if (const absl::Status status = start_browser(address); !status.ok())
    note(absl::StrCat(status.message(), ": open the address in a browser"));
  return printed;
}

}  // namespace

std::string page_address(std::string_view authority, bool has_tls, uint64_t job) {
  return absl::StrCat(has_tls ? "https://" : "http://", av(authority), "/",
                      job == 0 ? "" : absl::StrCat("#/jobs/", job));
}

void declare_open(CLI::App& app, Action& action) {
  auto options = std::make_shared<OpenOptions>();
  CLI::App* command = app.add_subcommand(
      "open", "Open the coordinator's page in a browser, at a job or at the fleet");
  add_job_argument(*command, options->job)
      ->required(false)
      ->description("The job's number (default: the newest one that has not ended)");
  command
      ->add_option_function<std::string>(
          "--http",
          [http = &options->http](const std::string& text) {
            const auto endpoint = daemon::parse_endpoint("--http", text);
            if (!endpoint.ok())
              throw CLI::ValidationError(std::string(endpoint.status().message()));
            *http = text;
          },
          "The address of the coordinator's --http (default: port 7071 of its host)")
      ->type_name("HOST:PORT");
  command->add_flag("--print", options->only_prints, "Only print the address");
  add_coordinator_option(*command, options->coordinator);
  command->footer(
      "Examples:\n"
      "  muster open\n"
      "  muster open 7 --http 127.0.0.1:8071    # behind ssh -L 8071:127.0.0.1:7071 head");
  on_call(*command, action, options, open_page);
}

}  // namespace muster::cli
