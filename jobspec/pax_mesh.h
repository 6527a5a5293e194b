// Errors about a mesh that the user has given as Pax's ICI_MESH_SHAPE or DCN_MESH_SHAPE, in those
// words. Pure.
#pragma once

#include <string>

#include "common/mesh.h"
#include "jobspec/settings.h"

namespace muster::jobspec {

// True if one of the two flags has set the mesh.
bool is_pax_mesh(const Settings& settings);

// Returns "--fdl.ICI_MESH_SHAPE=[4,2,1]", and DCN_MESH_SHAPE if it has more than one node; empty
// for a mesh with other axes.
std::string pax_mesh_flags(const MeshShape& shape);

// Returns `message` about the mesh keys with the flags as they were given, and their axes' names.
std::string in_pax_words(const Settings& settings, const std::string& message);

}  // namespace muster::jobspec
