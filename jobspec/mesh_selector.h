// AXLearn's mesh rules: --mesh_selector=gpu-p5.48xlarge-256 names machines and how many devices there are, and a Fuji model has a mesh for
// some of them (mesh_rules in axlearn/experiments/text/gpt/fuji.py). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace muster::jobspec {

// Devices of each of the machines that rules name.
constexpr int32_t kSelectedRanksPerNode = 8;

// The fsdp degree of a rule's mesh; all its other ranks are along data. None: the model has no rule for the selector, which then has
// AXLearn's default mesh. `model`: "fuji-7B-v2-flash".
std::optional<int32_t> selected_fsdp(std::string_view model, std::string_view selector);

}  // namespace muster::jobspec
