// Flags that are given several times: repeated ones, and different names with the same meaning.
#pragma once

#include <string>
#include <vector>

#include "jobspec/dialects/flag_scanner.h"

namespace muster::jobspec {

// Moves variables of Pax's Slurm scripts (BASE_VOCAB_PATH, LOG_DIR_LOCAL) in front of Pax's own, so
// that the latter win.
void put_wrapper_names_first(std::vector<GivenFlag>& given);

// Keeps the last of repeated flags, which then also warns once.
void keep_last_of_repeated(std::vector<GivenFlag>& given);

// Keeps the last one of Pax's variables that mean the same, such as LOG_DIR and LOG_DIR_LOCAL. Adds
// a warning for each one with another value.
void keep_one_of_synonyms(std::vector<GivenFlag>& given, std::vector<std::string>& warnings);

}  // namespace muster::jobspec
