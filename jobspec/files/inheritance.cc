#include "jobspec/files/inheritance.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "jobspec/files/value.h"

namespace muster::jobspec {
namespace {

namespace fs = std::filesystem;

// Enough for base ← site ← team ← job with several parts each. Without a bound, lists in every file
// could grow without end.
constexpr size_t kFilesMax = 64;

constexpr std::string_view kInheritKey = "base_config";

class Reader {
 public:
  explicit Reader(std::string_view shipped_base) : shipped_base_(shipped_base) {}

  absl::Status read(const std::string& path);
  Inheritance take() { return std::move(out_); }

 private:
  absl::Status read_parents(const std::string& path, const YamlEntry& entry);
  absl::StatusOr<std::string> find(const std::string& from, const std::string& origin,
                                   const std::string& named);

  const std::string shipped_base_;
  std::set<std::string> open_;  // files whose parents are being read
  std::set<std::string> seen_;
  Inheritance out_;
};

absl::StatusOr<std::string> Reader::find(const std::string& from, const std::string& origin,
                                         const std::string& named) {
  std::error_code error;
  const fs::path beside = fs::path(from).parent_path() / named;
  if (fs::exists(beside, error)) return beside.string();
  if (fs::exists(named, error)) return named;
  if (fs::path(named).filename() == "base.yml" && !shipped_base_.empty()) {
    out_.shipped_base_note =
        taking_shipped_base(absl::StrCat(named, " (", origin, ")"), shipped_base_);
    return shipped_base_;
  }
  return absl::NotFoundError(
      absl::StrCat(origin, ": base_config=", show(named),
                   ": no such file, neither beside this one nor in the current folder"));
}

absl::Status Reader::read_parents(const std::string& path, const YamlEntry& entry) {
  const std::string origin = absl::StrCat(path, ":", entry.line);
  std::vector<nlohmann::json> names;
  if (!entry.is_scalar) {
    if (entry.value.is_array()) names = entry.value.get<std::vector<nlohmann::json>>();
  } else if (!entry.text.empty()) {
    names = {entry.text};
  }
  const bool is_list = entry.is_scalar || entry.value.is_array();
  if (!is_list || !std::all_of(names.begin(), names.end(), [](const nlohmann::json& name) {
        return name.is_string() && name != "";
      })) {
    return absl::InvalidArgumentError(absl::StrCat(origin, ": base_config=", show(entry.value),
                                                   ": expected a file or a list of files"));
  }
  for (const nlohmann::json& name : names) {
    const auto parent = find(path, origin, name.get<std::string>());
    if (!parent.ok()) return parent.status();
    if (auto status = read(*parent); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Reader::read(const std::string& path) {
  std::error_code error;
  std::string identity = fs::weakly_canonical(path, error).string();
  if (error) identity = path;
  if (open_.contains(identity)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the base_config of these files forms a cycle"));
  }
  if (!seen_.insert(identity).second) return absl::OkStatus();
  if (seen_.size() > kFilesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a config builds on more than ", kFilesMax, " files (base_config)"));
  }
  auto entries = read_yaml_file(path);
  if (!entries.ok()) return entries.status();
  open_.insert(identity);
  for (const YamlEntry& entry : *entries) {
    if (entry.key != kInheritKey) continue;
    if (auto status = read_parents(path, entry); !status.ok()) return status;
  }
  open_.erase(identity);
  std::erase_if(*entries, [](const YamlEntry& entry) { return entry.key == kInheritKey; });
  out_.files.push_back({path, *std::move(entries)});
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Inheritance> read_with_parents(const std::string& path,
                                              std::string_view shipped_base) {
  Reader reader(shipped_base);
  if (auto status = reader.read(path); !status.ok()) return status;
  return reader.take();
}

std::string taking_shipped_base(std::string_view missing, std::string_view shipped_base) {
  return absl::StrCat(av(missing), " does not exist: using Muster's, ", av(shipped_base));
}

}  // namespace muster::jobspec
