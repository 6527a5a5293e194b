#include "cli/terminal/completion_values.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "cli/client.h"
#include "cli/run/pasted_command.h"
#include "cli/terminal/completion_line.h"
#include "cli/terminal/terminal.h"
#include "common/text/absl_view.h"
#include "jobspec/model_file.h"
#include "jobspec/settings/keys.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

// The shell waits for at most this time.
constexpr auto kPatience = std::chrono::seconds(1);

using Values = std::vector<CompletionValue>;

// These cannot do anything to jobs that have ended.
bool needs_active_job(std::string_view command) {
  return command == "cancel" || command == "checkpoint" || command == "stacks" ||
         command == "update";
}

Values jobs(Client& client, bool active) {
  Values values;
  const auto listed = client.list_jobs(active, /*all=*/false);
  if (!listed.ok()) return values;
  for (const v1::Job& job : listed->jobs())
    values.push_back({absl::StrCat(job.id()), absl::StrCat(shown(job.spec().name()), ", ",
                                                           v1::JobState_Name(job.state()))});
  return values;
}

Values nodes(Client& client) {
  Values values;
  const auto listed = client.list_workers();
  if (!listed.ok()) return values;
  for (const v1::WorkerInfo& worker : listed->workers())
    values.push_back({worker.name(), worker.has_exclusion() ? "excluded"
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

bool has_known_values(const jobspec::Key& key) {
  return key.name == "model_name" || !key.allowed.empty() || key.type == jobspec::ValueType::kBool;
}

Values values_of_key(const jobspec::Key& key, const std::vector<std::string>& words) {
  std::vector<std::string> texts = {"True", "False"};
  if (key.name == "model_name")
    texts = models(words);
  else if (!key.allowed.empty())
    texts = absl::StrSplit(av(key.allowed), '|');
  Values values;
  for (std::string& text : texts) values.push_back({std::move(text), ""});
  return values;
}

bool is_plain_value(const std::string& value) {
  return std::all_of(value.begin(), value.end(), [](char character) {
    return absl::ascii_isalnum(character) || character == '.' || character == '_' ||
           character == '-';
  });
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

// Returns the jobs or nodes of the line's coordinator.
Values listed_values(const TypedLine& typed) {
  auto coordinator = coordinator_of(typed);
  if (!coordinator) return {};
  Client client(*std::move(coordinator));
  const Patience patience(client);
  return typed.word == CompletedWord::kNode ? nodes(client)
                                            : jobs(client, needs_active_job(typed.command));
}

}  // namespace

Completion complete(const CLI::App& app, const std::string& line) {
  const auto typed = parse_typed_line(app, line);
  if (!typed || typed->word == CompletedWord::kAny) return {};
  Values values;
  if (typed->word == CompletedWord::kJob || typed->word == CompletedWord::kNode) {
    values = listed_values(*typed);
  } else {
    const jobspec::Key* key =
        typed->word == CompletedWord::kKeyValue ? jobspec::find_key(typed->key) : nullptr;
    if (key == nullptr || !has_known_values(*key)) return {kFileWord, {}};
    values = values_of_key(*key, typed->arguments);
  }
  std::erase_if(values, [&](const CompletionValue& value) {
    return !is_plain_value(value.value) ||
           std::find(typed->arguments.begin(), typed->arguments.end(), value.value) !=
               typed->arguments.end();
  });
  return {kValueWord, std::move(values)};
}

}  // namespace muster::cli
