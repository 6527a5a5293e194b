#include "jobspec/dialects/mesh_selector.h"

#include <regex>
#include <string>

namespace muster::jobspec {
namespace {

struct MeshRule {
  std::string_view models;
  const char* selector;  // a regular expression
  int32_t fsdp;
};

constexpr MeshRule kRules[] = {
    {"fuji-7B-", "gpu-(p5\\.48xlarge|p4de\\.24xlarge|a3-highgpu-8g)-(256|512|1024)", 8},
    {"fuji-8B-", "gpu-(p5\\.48xlarge|p4de\\.24xlarge|a3-highgpu-8g)-(256|512|1024)", 8},
    {"fuji-70B-", "gpu-(p5\\.48xlarge|p4de\\.24xlarge)-(512|1024)", 128},
};

}  // namespace

std::optional<int32_t> selected_fsdp(std::string_view model, std::string_view selector) {
  for (const MeshRule& rule : kRules) {
    if (model.starts_with(rule.models) &&
        std::regex_match(std::string(selector), std::regex(rule.selector)))
      return rule.fsdp;
  }
  return std::nullopt;
}

}  // namespace muster::jobspec
