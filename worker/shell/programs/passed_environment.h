// Selects the variables of the worker's environment that users' programs get. A worker of a shared
// fleet may have credentials of its own, for example for an object store, which its users must not
// get.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muster::worker {

// Returns whether a variable of this name is a credential: one of the name's words is TOKEN,
// SECRET, PASSWORD, PASSWD, PASSPHRASE or CREDENTIAL (or the plural of SECRET, PASSWORD or
// CREDENTIAL), or KEY or APIKEY after another word. Words are separated by "_"; upper and lower
// case are equal.
bool is_credential(std::string_view name);

// Returns whether a program gets the variable. A program gets a credential only if one of
// `patterns` is the variable's name, or the beginning of the name followed by "*".
bool is_passed(std::string_view name, const std::vector<std::string>& patterns);

}  // namespace muster::worker
