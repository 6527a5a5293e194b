// Where jobs' time went, as text for people and as JSON for programs.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

// "97.3%"; "-" before the first start.
std::string goodput_percent(const v1::Goodput& goodput);
// "goodput 97.3% of 2h 13m; lost: hang 2m 03s, loading 41s", the largest first; empty before the first start.
std::string goodput_line(const v1::Goodput& goodput);
// Of all together: each hour counts the same, whichever job it is of.
v1::Goodput goodput_of_all(const std::vector<v1::Job>& jobs);

nlohmann::json goodput_to_json(const v1::Goodput& goodput);

// What `muster goodput` shows: a row for each job, their sum, and lost time by cause and by what it was spent on.
std::string describe_goodput(const std::vector<v1::Job>& jobs);
nlohmann::json goodputs_to_json(const std::vector<v1::Job>& jobs);

}  // namespace muster::cli
