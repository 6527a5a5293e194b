#include "cli/terminal/completion_values.h"

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>
#include <utility>

#include <CLI/CLI.hpp>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/run/pasted_command.h"
#include "cli/terminal/terminal.h"
#include "common/text/absl_view.h"
#include "jobspec/model_file.h"
#include "jobspec/settings/keys.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

// The shell waits for at most this time.
constexpr auto kPatience = std::chrono::seconds(2);

// The parts of a line that completion uses.
struct TypedLine {
  CoordinatorTarget coordinator;
  std::vector<std::string> words;
};

// Returns nothing useful for a line whose flags are invalid: an unfinished line often is.
TypedLine parse(const std::string& line) {
  TypedLine typed;
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  add_coordinator_option(app, typed.coordinator);
  try {
    app.parse(line, /*program_name_included=*/true);
  } catch (const CLI::Error&) {
  }
  typed.words = app.remaining();
  return typed;
}

// Ends the calls of a client after kPatience.
class Patience {
 public:
  explicit Patience(Client& client)
      : thread_([this, &client] {
          std::unique_lock lock(mutex_);
          if (!changed_.wait_for(lock, kPatience, [this] { return ended_; })) client.stop();
        }) {}
  ~Patience() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;
};

std::vector<CompletionValue> jobs(Client& client, bool active) {
  std::vector<CompletionValue> values;
  const auto listed = client.list_jobs(active, /*all=*/false);
  if (!listed.ok()) return values;
  for (const v1::Job& job : listed->jobs())
    values.push_back({absl::StrCat(job.id()), absl::StrCat(shown(job.spec().name()), ", ",
                                                           v1::JobState_Name(job.state()))});
  return values;
}

std::vector<CompletionValue> nodes(Client& client) {
  std::vector<CompletionValue> values;
  const auto listed = client.list_workers();
  if (!listed.ok()) return values;
  for (const v1::WorkerInfo& worker : listed->workers())
    values.push_back({shown(worker.name()), worker.has_exclusion() ? "excluded"
                                            : worker.connected()   ? "connected"
                                                                   : "not connected"});
  return values;
}

// Returns the models beside the config in `words`, or Muster's own.
std::vector<std::string> models(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (!word.ends_with(".yml")) continue;
    auto names = jobspec::model_names(fs::path(word).parent_path() / "models");
    if (!names.empty()) return names;
  }
  const auto shipped = shipped_base_yml();
  if (!shipped.ok()) return {};
  return jobspec::model_names(fs::path(*shipped).parent_path() / "models");
}

std::vector<CompletionValue> values_of_key(std::string_view name,
                                           const std::vector<std::string>& words) {
  const jobspec::Key* key = jobspec::find_key(name);
  if (key == nullptr) return {};
  std::vector<std::string> texts;
  if (name == "model_name")
    texts = models(words);
  else if (!key->allowed.empty())
    texts = absl::StrSplit(av(key->allowed), '|');
  else if (key->type == jobspec::ValueType::kBool)
    texts = {"True", "False"};
  std::vector<CompletionValue> values;
  for (std::string& text : texts) values.push_back({std::move(text), ""});
  return values;
}

}  // namespace

std::vector<CompletionValue> completion_values(std::string_view kind, const std::string& line) {
  const TypedLine typed = parse(line);
  if (kind.starts_with(kKeyValues))
    return values_of_key(kind.substr(kKeyValues.size()), typed.words);
  Client client(typed.coordinator);
  const Patience patience(client);
  if (kind == kJobValues || kind == kActiveJobValues) return jobs(client, kind == kActiveJobValues);
  if (kind == kNodeValues) return nodes(client);
  return {};
}

}  // namespace muster::cli
