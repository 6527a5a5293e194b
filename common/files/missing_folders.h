// Helpers to create folders and remove them again after a failure. Thread-safe.
#pragma once

#include <filesystem>
#include <vector>

namespace muster {

// Returns the ancestors of `path`, itself included, that do not exist; deepest first.
std::vector<std::filesystem::path> missing_folders(const std::filesystem::path& path);

// Removes those of `folders` that are empty.
void remove_empty(const std::vector<std::filesystem::path>& folders);

}  // namespace muster
