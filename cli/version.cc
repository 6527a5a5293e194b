// muster version: prints the version.
#include "common/version.h"

#include <unistd.h>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/terminal/terminal.h"

namespace muster::cli {
namespace {

struct VersionOptions {
  bool json = false;
};

int version(const VersionOptions& options) {
  return print_result(options.json ? nlohmann::json({{"version", kVersion}}).dump() + "\n"
                                   : absl::StrCat("muster ", kVersion, "\n"));
}

}  // namespace

void declare_version(CLI::App& app, Action& action) {
  auto options = std::make_shared<VersionOptions>();
  CLI::App* command =
      app.add_subcommand("version", "Print the version, which coordinator and workers must share");
  add_json_option(*command, options->json);
  command->footer("Example:\n  muster version --json");
  on_call(*command, action, options, version);
}

}  // namespace muster::cli
