// muster k8s switches: prints the switches above a node from its labels, for a pod on that node.
#include <cerrno>
#include <fstream>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "cli/k8s/k8s.h"
#include "cli/k8s/k8s_node.h"
#include "cli/terminal/terminal.h"
#include "common/files/errno_status.h"
#include "common/process/exit_code.h"

namespace muster::cli {
namespace {

// If this is too short, the kubelet restarts the container.
constexpr auto kNodeDeadline = std::chrono::seconds(20);

struct SwitchesOptions {
  std::string node;
  std::vector<std::string> labels;
  std::string domain_label;
  std::string output;
  std::string account = "/var/run/secrets/kubernetes.io/serviceaccount";
};

int print_switches(const SwitchesOptions& options) {
  const auto account = account_of_pod(options.account);
  if (!account.ok()) return fail(account.status());
  const auto labels = node_labels(*account, options.node, kNodeDeadline);
  if (!labels.ok()) return fail(labels.status());
  const std::string switches = switches_of_labels(*labels, options.labels);
  if (switches.empty()) {
    warn(absl::StrCat("node ", options.node, " has no label ", options.labels.front(),
                      ": its switches are unknown to the placement of ranks"));
  }
  std::string text = switches + "\n";
  if (!options.domain_label.empty()) {
    const auto domain = labels->find(options.domain_label);
    absl::StrAppend(&text, domain == labels->end() ? "" : domain->second, "\n");
  }
  if (options.output.empty()) return print_result(text);
  errno = 0;
  std::ofstream file(options.output);
  file << text << std::flush;
  if (!file) return fail(file_status(errno, absl::StrCat("--output=", options.output)));
  return to_int(ExitCode::kOk);
}

}  // namespace

void declare_k8s_switches(CLI::App& k8s, Action& action) {
  auto options = std::make_shared<SwitchesOptions>();
  CLI::App* command = k8s.add_subcommand(
      "switches", "Print the switches above a node from its labels; for use in a pod");
  command->group("Commands");
  command->add_option("--node", options->node, "The node's name")->required()->type_name("NAME");
  command
      ->add_option("--label", options->labels,
                   "A label of the node; the outermost switch comes first")
      ->required()
      ->type_name("NAME");
  command
      ->add_option("--domain-label", options->domain_label,
                   "A label of the node with its NVLink domain, which becomes the second line: "
                   "nvidia.com/gpu.clique")
      ->type_name("NAME");
  command->add_option("--output", options->output, "Write to this file instead of stdout")
      ->type_name("FILE");
  command
      ->add_option(
          "--account", options->account,
          "Folder with the pod's token and ca.crt; the account needs the right to get nodes")
      ->type_name("FOLDER")
      ->capture_default_str();
  command->footer(
      "Example for an init container before muster-worker --switches-file=/run/muster/switches:\n"
      "  muster k8s switches --node $(NODE) --label topology.k8s.aws/network-node-layer-1 \\\n"
      "      --label topology.k8s.aws/network-node-layer-2 --output /run/muster/switches");
  on_call(*command, action, options, print_switches);
}

}  // namespace muster::cli
