#include "trainer_core/checkpoint/local_part.h"

#include <algorithm>
#include <set>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/text/canonical_number.h"

namespace muster::trainer {
namespace {

using nlohmann::json;

constexpr char kPartFormat[] = "muster-local-part";
constexpr int kVersion = 1;
constexpr size_t kTimeDigits = 16;  // hexadecimal

std::string sum_of(const json& part) {
  const std::string text = part.dump();
  return checksum_text(checksum({text.data(), text.size()}));
}

LocalPart read_part(const json& j) {
  LocalPart part;
  part.save = j.at("save").get<std::string>();
  part.writer = j.at("writer").get<int>();
  part.info.step = j.at("step").get<int64_t>();
  part.info.samples = j.at("samples").get<uint64_t>();
  part.info.optimizer = j.at("optimizer").get<std::string>();
  part.info.config = j.at("config");
  part.info.data = j.at("data");
  read_optional(j, part.info);
  part.files = j.at("files");
  return part;
}

}  // namespace

std::string local_save_name(int64_t step, uint64_t unix_ns) {
  return absl::StrFormat("%d-%016x", step, unix_ns);
}

int64_t step_of_local_save(std::string_view name) {
  const size_t dash = name.find('-');
  if (dash == std::string_view::npos || name.size() - dash - 1 != kTimeDigits) return -1;
  const bool digits = std::ranges::all_of(name.substr(dash + 1), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  const auto step = canonical_number<int64_t>(name.substr(0, dash));
  return digits && step && *step >= 0 ? *step : -1;
}

std::string local_part_text(const LocalPart& part) {
  json j = {{"format", kPartFormat},
            {"version", kVersion},
            {"save", part.save},
            {"writer", part.writer},
            {"step", part.info.step},
            {"samples", part.info.samples},
            {"optimizer", part.info.optimizer},
            {"config", part.info.config},
            {"data", part.info.data},
            {"files", part.files}};
  write_optional(part.info, j);
  j["checksum"] = sum_of(j);
  return j.dump() + "\n";
}

absl::StatusOr<LocalPart> parse_local_part(std::string_view text) {
  try {
    json j = json::parse(text);
    const std::string stored = j.at("checksum").get<std::string>();
    j.erase("checksum");
    if (stored != sum_of(j)) return absl::DataLossError("its checksum differs");
    if (j.at("format") != kPartFormat || j.at("version") != kVersion)
      return absl::DataLossError("it is of another build");
    LocalPart part = read_part(j);
    if (part.info.step < 0 || step_of_local_save(part.save) != part.info.step)
      return absl::DataLossError(absl::StrCat("its save is called ", part.save));
    return part;
  } catch (const std::exception& e) {
    return absl::DataLossError(e.what());
  }
}

std::vector<LocalCandidate> complete_saves(const std::vector<std::string>& texts, int64_t oldest,
                                           std::vector<std::string>& notes) {
  std::map<std::pair<int64_t, std::string>, std::map<int, LocalPart>, std::greater<>> saves;
  for (const std::string& text : texts) {
    auto part = parse_local_part(text);
    if (!part.ok()) {
      notes.push_back(
          absl::StrCat("a part of a local checkpoint is damaged: ", part.status().message()));
      continue;
    }
    if (part->info.step < oldest) continue;
    const int writer = part->writer;
    saves[{part->info.step, part->save}].try_emplace(writer, std::move(*part));
  }
  std::vector<LocalCandidate> whole;
  for (auto& [name, parts] : saves) {
    std::vector<json> files;
    for (const auto& [writer, part] : parts) files.push_back(part.files);
    LocalCandidate candidate{name.second, parts.begin()->second.info, {}};
    const absl::Status listed = [&] {
      for (const json& list : files) {
        if (auto parsed = parse_files(list); !parsed.ok()) return parsed.status();
      }
      candidate.manifest = manifest_text({candidate.info, {}}, files);
      return parse_manifest(candidate.manifest).status();
    }();
    if (listed.ok()) {
      whole.push_back(std::move(candidate));
    } else if (whole.empty()) {
      notes.push_back(absl::StrCat("local checkpoint of step ", name.first, " is not complete: ",
                                   parts.size(), " of its writers' parts are there"));
    }
  }
  return whole;
}

}  // namespace muster::trainer
