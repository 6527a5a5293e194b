// Every key that a config may have: MaxText's (the whole base.yml of 2024-06 and the later ones that
// commands in the field use) and Muster's few own ones, each with its type and what it means here.
#pragma once

#include <span>
#include <string_view>

#include "jobspec/value.h"

namespace muster::jobspec {

enum class Support {
  kWorks,
  kNoEffect,    // known and checked, but nothing here depends on it: one warning that says why
  kRestricted,  // only some of MaxText's values can be run: an error says which
};

struct Key {
  std::string_view name;
  ValueType type;
  Support support;
  std::string_view note;     // why it has no effect, or why it is restricted
  std::string_view allowed;  // kRestricted: the values that work, separated by '|'
};

// Sorted by topic as base.yml is.
std::span<const Key> all_keys();

// The section of base.yml that the key, one of all_keys(), belongs to.
std::string_view topic_of(const Key& key);

// Null when there is no such key.
const Key* find_key(std::string_view name);

// A name that MaxText has renamed, and the one or two keys that it now sets.
struct Alias {
  std::string_view name;
  std::string_view target;
  std::string_view second_target;  // empty: none
};

std::span<const Alias> all_aliases();
const Alias* find_alias(std::string_view name);

// The known key or alias nearest to a misspelt one; empty when none is near.
std::string_view nearest_key(std::string_view name);

}  // namespace muster::jobspec
