// The output of `muster shares`. Pure.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

std::string describe_shares(const v1::ListSharesResponse& shares);
nlohmann::json shares_to_json(const v1::ListSharesResponse& shares);

}  // namespace muster::cli
