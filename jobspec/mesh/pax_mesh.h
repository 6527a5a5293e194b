// Error messages about a mesh that the user has given by Pax's flags ICI_MESH_SHAPE or
// DCN_MESH_SHAPE: they name these flags. All functions are pure.
#pragma once

#include <string>

#include "common/job/mesh.h"
#include "jobspec/settings/settings.h"

namespace muster::jobspec {

// Returns whether one of the two flags has set the mesh.
bool is_pax_mesh(const Settings& settings);

// Returns the flags for a mesh: "--fdl.ICI_MESH_SHAPE=[4,2,1]", and DCN_MESH_SHAPE if the mesh has
// more than one node or `states_nodes` is true; "" for a mesh with axes that Pax lacks.
std::string pax_mesh_flags(const MeshShape& shape, bool states_nodes = false);

// Returns `message`, which names mesh keys, with the given flags and Pax's names of the axes added.
std::string in_pax_words(const Settings& settings, const std::string& message);

}  // namespace muster::jobspec
