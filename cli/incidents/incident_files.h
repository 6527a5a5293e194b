// Copies of the incidents of a `muster run`, which outlive its coordinator.
#pragma once

#include <cstdint>
#include <string>

#include "cli/client.h"
#include "cli/jobs/log_printer.h"
#include "cli/run/run_folder.h"

namespace muster::cli {

// Writes incident-N.txt and incident-N.json into the run's folder and overwrites earlier ones.
absl::Status save_incident(Client& client, uint64_t incident, const RunFolder& folder);

// Does the same for each incident of the job as it is now, and prints the paths to `printer`. An
// incident that cannot be fetched or written is reported; the others are still written.
void save_incidents(const std::string& address, uint64_t job, const RunFolder& folder,
                    LogPrinter& printer);

}  // namespace muster::cli
