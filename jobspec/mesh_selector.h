// AXLearn's mesh rules. --mesh_selector=gpu-p5.48xlarge-256 names a machine type and a number of
// devices, and a Fuji model has a mesh for some of them (mesh_rules in
// axlearn/experiments/text/gpt/fuji.py). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace muster::jobspec {

// Devices of each machine type in the rules.
constexpr int32_t kSelectedRanksPerNode = 8;

// Returns the fsdp degree of the rule's mesh; its other ranks are along data. nullopt: the model
// has no rule for the selector and uses AXLearn's default mesh. `model`: "fuji-7B-v2-flash".
std::optional<int32_t> selected_fsdp(std::string_view model, std::string_view selector);

}  // namespace muster::jobspec
