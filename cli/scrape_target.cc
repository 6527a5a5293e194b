#include "cli/scrape_target.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <utility>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/file_write.h"

namespace muster::cli {
namespace {

constexpr mode_t kForEverybody = 0644;

}  // namespace

ScrapeTarget::~ScrapeTarget() {
  if (text_.empty()) return;
  std::ifstream file(path_);
  if (std::string(std::istreambuf_iterator<char>(file), {}) == text_) unlink(path_.c_str());
}

absl::Status ScrapeTarget::write(const std::string& host, int port) {
  nlohmann::json labels = nlohmann::json::object();
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, const std::string&>>{
           {"job", labels_.job}, {"node", labels_.node}, {"cluster", labels_.cluster}})
    if (!value.empty()) labels[name] = value;
  const nlohmann::json entry = {{"targets", {absl::StrCat(host, ":", port)}}, {"labels", labels}};
  const std::string text = nlohmann::json::array({entry}).dump() + "\n";
  absl::Status status = write_file_atomically(path_, text, {.mode = kForEverybody});
  if (status.ok()) text_ = text;
  return status;
}

}  // namespace muster::cli
