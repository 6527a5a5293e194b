// The failures of rclone (object_store.h) as errors for users: the address, the cause, and what to
// check. Reads the environment; shows names of variables and never their values, except addresses.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include <absl/status/status.h>

#include "common/objects/object_url.h"
#include "common/process/run_child.h"

namespace muster::store {

inline constexpr char kTool[] = "rclone";

// Returns the value of an environment variable; nullopt if it is unset or empty.
std::optional<std::string> variable(const char* name);
// Returns the value of the first variable that is set.
std::optional<std::string> first_variable(std::initializer_list<const char*> names);

// Returns the server with which rclone talks, without a password.
std::string endpoint_of(const ObjectUrl& url);
// Returns "; check …" for a store that cannot be reached.
std::string way_out(const ObjectUrl& url);

// Returns the error for a machine without rclone.
absl::Status missing_tool(const std::string& url);
// Returns the error for a command that failed: see ObjectStore for the codes.
absl::Status status_of(const ObjectUrl& url, const ChildEnd& end);

}  // namespace muster::store
