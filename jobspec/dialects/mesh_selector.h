// AXLearn's mesh rules. --mesh_selector=gpu-p5.48xlarge-256 names a machine type and a number of
// devices, and AXLearn's Fuji models define a mesh for some selectors (mesh_rules in
// axlearn/experiments/text/gpt/fuji.py). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace muster::jobspec {

// Number of devices of a node; equal for all machine types in the rules.
constexpr int32_t kSelectedRanksPerNode = 8;

// Returns the fsdp degree of the mesh in the rule for `selector`; the mesh's remaining degree is
// data. nullopt: the model has no rule for the selector, and uses AXLearn's default mesh. `model`:
// for example "fuji-7B-v2-flash".
std::optional<int32_t> selected_fsdp(std::string_view model, std::string_view selector);

}  // namespace muster::jobspec
