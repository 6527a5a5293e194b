// Every key that a config may have, with its type and its support in Muster: MaxText's keys (all
// keys of the base.yml of 2024-06, and later keys that are in common use), and a few keys of
// Muster's own.
#pragma once

#include <span>
#include <string_view>

#include "jobspec/files/value.h"

namespace muster::jobspec {

// The support of a key in Muster.
enum class Support {
  kWorks,
  // the value is checked, but has no effect: setting the key causes a warning with the reason
  kNoEffect,
  kRestricted,  // only some of MaxText's values are supported: an error names them
};

// A row of the table of keys.
struct Key {
  std::string_view name;
  ValueType type;
  Support support;
  // The reason why the key has no effect or is restricted. For a key that works, the difference
  // from MaxText's key; empty if there is none.
  std::string_view note;
  std::string_view allowed;  // for kRestricted: the supported values, separated by '|'
};

// Returns the keys in the topic order of base.yml.
std::span<const Key> all_keys();

// Returns the section of base.yml that contains `key`. Requires that `key` is an element of
// all_keys().
std::string_view topic_of(const Key& key);

// Returns the row of the key `name`; null if there is none.
const Key* find_key(std::string_view name);

// A former name of a key in MaxText, and the one or two keys that it sets today.
struct Alias {
  std::string_view name;
  std::string_view target;
  std::string_view second_target;  // empty: the name sets only `target`
};

// Returns all aliases.
std::span<const Alias> all_aliases();
// Returns the alias `name`; null if there is none.
const Alias* find_alias(std::string_view name);

// Returns the key or alias that is nearest to the misspelt `name`; "" if none is near.
std::string_view nearest_key(std::string_view name);

}  // namespace muster::jobspec
