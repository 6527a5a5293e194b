#include "cli/incidents/incident_files.h"

#include <absl/strings/str_cat.h>

#include "cli/incidents/incident_view.h"
#include "common/files/file_write.h"
#include "common/time/time.h"
#include "daemon/json/incident_json.h"

namespace muster::cli {
namespace {

std::string path_of(const RunFolder& folder, uint64_t incident) {
  return folder.file(absl::StrCat("incident-", incident));
}

}  // namespace

absl::Status save_incident(Client& client, uint64_t incident, const RunFolder& folder) {
  const auto record = client.get_incident(incident);
  if (!record.ok()) return record.status();
  StackView whole;
  whole.columns_max = columns_of(-1);
  const auto text = describe_incident(*record, wall_clock_unix_ns(), whole);
  if (!text.ok()) return text.status();
  const auto json = daemon::incident_to_json(*record);
  if (!json.ok()) return json.status();
  const std::string path = path_of(folder, incident);
  if (auto status = write_file_atomically(path + ".txt", *text, {.mode = 0600}); !status.ok())
    return status;
  return write_file_atomically(path + ".json", json->dump(2) + "\n", {.mode = 0600});
}

void save_all_incidents(const std::string& address, uint64_t job, const RunFolder& folder,
                        LogPrinter& printer) {
  Client client({.address = address});
  const auto incidents = client.list_incidents(job);
  if (!incidents.ok()) {
    printer.notice(absl::StrCat("cannot save the incidents: ", incidents.status().message()));
    return;
  }
  for (const v1::Incident& incident : incidents->incidents()) {
    const absl::Status status = save_incident(client, incident.id(), folder);
    printer.notice(
        status.ok() ? absl::StrCat("incident ", incident.id(), " is in ",
                                   path_of(folder, incident.id()), ".txt")
                    : absl::StrCat("cannot save incident ", incident.id(), ": ", status.message()));
  }
}

}  // namespace muster::cli
