// The variables of the worker's environment that users' programs get. A worker of a shared fleet
// may have credentials of its own, for example of an object store, which are not its users'.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muster::worker {

// Returns whether the name of a variable is that of a credential: one of its words is TOKEN,
// SECRET, PASSWORD, PASSWD, PASSPHRASE or CREDENTIALS, or KEY behind another word. Words are
// separated by "_"; letters count in either case.
bool is_credential(std::string_view name);

// Returns whether a program gets the variable: a credential only if one of `patterns` is its name,
// or its beginning followed by "*".
bool is_passed(std::string_view name, const std::vector<std::string>& patterns);

}  // namespace muster::worker
