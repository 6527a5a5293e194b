// The names that a checkpoint directory's own files and folders have. Everything else in it belongs
// to the user: it is never counted, read or removed.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace muster::trainer {

// Returns the step of a checkpoint's folder: "6"; nullopt for every other name, such as "0006",
// which a copy may have.
std::optional<int64_t> step_of_folder(std::string_view name);

// Returns whether a process that saves or probes makes a file or folder of this name and may leave
// it behind when it dies:
//
//   .tmp-6-<job>-<attempt>-<incarnation>           a checkpoint that is being written
//   .tmp-removed-6-<job>-<attempt>-<incarnation>   one that is being removed
//   .tmp-owner-<job>-<attempt>-XXXXXX              the next OWNER file
//   .tmp-probe-XXXXXX                              a check that the directory is writable
bool is_leftover(std::string_view name);

// Returns whether the name is that of a checkpoint which another one replaces: ".aside-6".
bool is_aside(std::string_view name);

}  // namespace muster::trainer
