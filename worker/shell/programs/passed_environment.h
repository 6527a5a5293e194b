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

// Returns whether one of `patterns` is the variable's name, or its beginning followed by "*".
bool matches(std::string_view name, const std::vector<std::string>& patterns);

// Returns whether a program of the worker's user gets the variable: all but credentials, and the
// credentials that match `patterns`.
bool is_passed(std::string_view name, const std::vector<std::string>& patterns);

// Returns whether a program of another user gets the variable: those about the node, which are
// PATH, LD_LIBRARY_PATH, LANG, LANGUAGE, TZ, LC_… and the families of CUDA, ROCm, NCCL, UCX,
// libfabric, gloo, OpenMP and MKL, less credentials; and those that match `patterns`.
bool is_passed_to_users(std::string_view name, const std::vector<std::string>& patterns);

}  // namespace muster::worker
