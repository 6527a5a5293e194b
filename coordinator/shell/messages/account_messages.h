// Converts the account of a job's time (records/account.h) and its recoveries between the core's
// values, wire messages and stored records.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "coordinator/core/records/account.h"
#include "coordinator/core/records/incident.h"
#include "muster/v1/muster.pb.h"

namespace muster::coordinator {

void goodput_to_proto(const Account& account, v1::Goodput& proto);

// Convert to and from the stored form. Missing members have their default. Lost time whose cause
// has an unknown name counts as lost time without a cause.
nlohmann::json account_to_json(const Account& account);
Account account_from_json(const nlohmann::json& json);

void recovery_to_proto(const Recovery& recovery, v1::Recovery& proto);
Recovery recovery_from_proto(const v1::Recovery& proto);

}  // namespace muster::coordinator
