// What stays of the incidents of a `muster run` when its coordinator is gone.
#pragma once

#include <cstdint>
#include <string>

#include "cli/client.h"
#include "cli/jobs/log_printer.h"
#include "cli/run/run_folder.h"

namespace muster::cli {

// Writes incident-N.txt and incident-N.json into the run's folder, over what is there.
absl::Status keep_incident(Client& client, uint64_t incident, const RunFolder& folder);

// The same of each incident of the job as it is now, and says where on `printer`. One that cannot be had or written is told of and costs
// the others nothing.
void keep_incidents(const std::string& address, uint64_t job, const RunFolder& folder,
                    LogPrinter& printer);

}  // namespace muster::cli
