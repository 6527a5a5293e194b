#include "cli/incident_files.h"

#include <absl/strings/str_cat.h>

#include "cli/client.h"
#include "cli/incident_view.h"
#include "common/file_write.h"
#include "common/time.h"

namespace muster::cli {
namespace {

absl::Status keep(Client& client, uint64_t id, const std::string& path) {
  const auto incident = client.get_incident(id);
  if (!incident.ok()) return incident.status();
  StackView whole;
  whole.columns_max = columns_of(-1);
  const auto text = describe_incident(*incident, wall_clock_unix_ns(), whole);
  if (!text.ok()) return text.status();
  const auto json = incident_to_json(*incident);
  if (!json.ok()) return json.status();
  if (auto status = write_file_atomically(path + ".txt", *text, {.mode = 0600}); !status.ok())
    return status;
  return write_file_atomically(path + ".json", json->dump(2) + "\n", {.mode = 0600});
}

}  // namespace

void keep_incidents(const std::string& address, uint64_t job, const RunFolder& folder,
                    LogPrinter& printer) {
  Client client(address);
  const auto incidents = client.list_incidents(job);
  if (!incidents.ok()) {
    printer.news(absl::StrCat("incidents are not kept: ", incidents.status().message()));
    return;
  }
  for (const v1::Incident& incident : incidents->incidents()) {
    const std::string path = folder.file(absl::StrCat("incident-", incident.id()));
    const absl::Status status = keep(client, incident.id(), path);
    printer.news(
        status.ok() ? absl::StrCat("incident ", incident.id(), " is in ", path, ".txt")
                    : absl::StrCat("incident ", incident.id(), " is not kept: ", status.message()));
  }
}

}  // namespace muster::cli
