#include "worker/gpus/gpu_inventory.h"

#include <fstream>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/escape.h"
#include "common/file_write.h"

namespace muster::worker {

std::vector<std::string> missing_gpus(const std::string& path, const GpuReport& report) {
  std::vector<std::string> missing;
  if (!report.looked) return missing;
  std::ifstream file(path);
  const auto before = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  nlohmann::json all = report.all;
  const bool is_known = before.is_object() && before.size() <= kGpusPerNodeMax;
  const nlohmann::json known = is_known ? before : nlohmann::json::object();
  for (const auto& [uuid, name] : known.items()) {
    if (report.all.contains(uuid) || !name.is_string()) continue;
    all[uuid] = name;
    missing.push_back(absl::StrCat(printable(uuid, kGpuTextBytesMax), " (",
                                   printable(name.get_ref<const std::string&>(), kGpuTextBytesMax),
                                   ") was here before and is not found any more; if it was taken "
                                   "out, remove ",
                                   path));
  }
  if (all != known) (void)write_file_atomically(path, all.dump() + "\n");
  return missing;
}

}  // namespace muster::worker
