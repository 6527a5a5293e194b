#include "worker/gpus/gpu_inventory.h"

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/files/file_read.h"
#include "common/files/file_write.h"
#include "common/text/escape.h"

namespace muster::worker {
namespace {

constexpr size_t kInventoryBytesMax = 64 << 10;

}  // namespace

std::vector<std::string> missing_gpus(const std::string& path, const GpuReport& report) {
  std::vector<std::string> missing;
  if (!report.is_listed) return missing;
  const auto text = read_plain_file_up_to(kInventoryBytesMax, path, path);
  const auto before = nlohmann::json::parse(text.value_or(""), nullptr, /*allow_exceptions=*/false);
  const nlohmann::json all = report.all;
  const nlohmann::json known = before.is_object() ? before : nlohmann::json::object();
  // As many other GPUs in their place: a repair, another machine with the same disk, or a new cloud
  // machine.
  if (report.all.size() >= known.size()) {
    if (all != known) (void)write_file_atomically(path, all.dump() + "\n");
    return missing;
  }
  for (const auto& [uuid, name] : known.items()) {
    if (report.all.contains(uuid) || !name.is_string()) continue;
    missing.push_back(absl::StrCat(printable(uuid, kGpuTextBytesMax), " (",
                                   printable(name.get_ref<const std::string&>(), kGpuTextBytesMax),
                                   ") was here before and is not found any more; if it was taken "
                                   "out, remove ",
                                   path));
  }
  return missing;
}

}  // namespace muster::worker
