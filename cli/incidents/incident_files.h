// Saves the incidents of a `muster run` as files, because its coordinator ends with the command.
#pragma once

#include <cstdint>
#include <string>

#include "cli/client.h"
#include "cli/jobs/log_printer.h"
#include "cli/run/run_folder.h"

namespace muster::cli {

// Writes incident number N to incident-N.txt and incident-N.json in `folder`; overwrites earlier
// files.
absl::Status save_incident(Client& client, uint64_t incident, const RunFolder& folder);

// Saves the current state of each incident of the job, and prints the paths to `printer`. If an
// incident cannot be fetched or written, reports the error and continues with the next one.
void save_all_incidents(const std::string& address, uint64_t job, const RunFolder& folder,
                        LogPrinter& printer);

}  // namespace muster::cli
