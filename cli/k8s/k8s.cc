// muster k8s: jobs on a Kubernetes cluster that schedules them itself.
#include "cli/k8s/k8s.h"

namespace muster::cli {

void declare_k8s(CLI::App& app, Action& action) {
  CLI::App* k8s =
      app.add_subcommand("k8s", "Jobs on a Kubernetes cluster that schedules them itself");
  k8s->require_subcommand(1);
  k8s->footer(
      "Example:\n"
      "  muster k8s render --nodes 4 --gpus 8 --image registry.example/muster:1 --mount "
      "shared:/shared "
      "--insecure \\\n"
      "      configs/base.yml model_name=llama2-7b run_name=first base_output_directory=/shared | "
      "kubectl apply --server-side -f -");
  declare_k8s_render(*k8s, action);
  declare_k8s_switches(*k8s, action);
}

}  // namespace muster::cli
