// Every key that a config may have: MaxText's (the whole base.yml of 2024-06, and later ones that
// are in common use) and a few of Muster's own, each with its type and its meaning here.
#pragma once

#include <span>
#include <string_view>

#include "jobspec/value.h"

namespace muster::jobspec {

enum class Support {
  kWorks,
  kNoEffect,    // known and checked, but without effect: one warning with the reason
  kRestricted,  // only some of MaxText's values are supported: an error names them
};

struct Key {
  std::string_view name;
  ValueType type;
  Support support;
  // Why it has no effect, or why it is restricted; kWorks: what differs from MaxText, or empty.
  std::string_view note;
  std::string_view allowed;  // kRestricted: the supported values, separated by '|'
};

// Returns the keys in the topic order of base.yml.
std::span<const Key> all_keys();

// Returns the section of base.yml that contains the key. Requires one of all_keys().
std::string_view topic_of(const Key& key);

// Returns null for an unknown key.
const Key* find_key(std::string_view name);

// A former name of MaxText's, and the one or two keys that it sets.
struct Alias {
  std::string_view name;
  std::string_view target;
  std::string_view second_target;  // empty: only one target
};

std::span<const Alias> all_aliases();
const Alias* find_alias(std::string_view name);

// Returns the known key or alias nearest to a misspelt one; empty if none is near.
std::string_view nearest_key(std::string_view name);

}  // namespace muster::jobspec
