#include "trainer_core/base/json_file.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <absl/strings/str_cat.h>

namespace muster::trainer {

absl::StatusOr<nlohmann::json> read_json_file(const std::string& path, size_t bytes_max) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot open ", path));
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(path, error);
  if (error || bytes > bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a file of at most ", bytes_max, " bytes"));
  }
  std::string text(bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError(absl::StrCat(path, " is not JSON"));
  return json;
}

}  // namespace muster::trainer
