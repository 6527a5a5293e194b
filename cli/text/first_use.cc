#include "cli/text/first_use.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_replace.h>
#include <nlohmann/json.hpp>

#include "cli/terminal/child_process.h"
#include "cli/terminal/terminal.h"
#include "common/files/errno_status.h"
#include "common/objects/object_cache.h"
#include "common/process/exit_code.h"
#include "common/process/stop_requests.h"
#include "common/text/absl_view.h"

namespace muster::cli {
namespace {

using jobspec::TextData;

constexpr int kNotExecuted = 127;
// How often the process checks for a blocked signal.
constexpr int kSignalPeriodMs = 200;

// Runs in the child between fork and exec: async-signal-safe calls only. The child stays in this
// process's group, so that a terminal's Ctrl-C reaches it.
[[noreturn]] void become_tokenizer(char* const* argv, int out) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (dup2(out, STDOUT_FILENO) >= 0) execv(argv[0], argv);
  _exit(kNotExecuted);
}

// Reads until the child closes its output. A signal that this process blocks stays pending, for the
// caller; the child gets a SIGTERM.
std::string output_of_child(pid_t child, int fd) {
  std::string text;
  bool has_forwarded = false;
  for (std::array<char, 4096> buffer{};;) {
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    const int count = poll(&ready, 1, kSignalPeriodMs);
    if (!has_forwarded && is_stop_pending()) {
      kill(child, SIGTERM);
      has_forwarded = true;
    }
    if (count <= 0) continue;
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
}

absl::StatusOr<std::string> run_text_program(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) return errno_status(errno, "pipe");
  const pid_t child = fork();
  if (child == 0) become_tokenizer(argv.data(), out[1]);
  const int fork_error = errno;
  close(out[1]);
  std::string text;
  int status = 0;
  if (child > 0) {
    text = output_of_child(child, out[0]);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
  }
  close(out[0]);
  if (child < 0) return errno_status(fork_error, absl::StrCat("starting ", words[0]));
  if (text.empty() && WIFSIGNALED(status))
    return absl::CancelledError(absl::StrCat("tokenising was ended by signal ", WTERMSIG(status)));
  return text;
}

// Returns the local copy of a text in an object store: of a data folder of TFDS only the data set.
// Token shards stay in the store, and their address is returned: the ranks fetch them.
absl::StatusOr<std::string> text_of_store(const std::string& url, const TextData& data,
                                          const trainer::TrainConfig& train) {
  const ObjectStore store;
  std::string folder = url;
  absl::StatusOr<std::vector<std::string>> names = std::vector<std::string>();
  if (!data.dataset.empty()) {
    // "c4/en:3.0.1" is in c4/en/3.0.1.
    folder = absl::StrCat(url, "/", absl::StrReplaceAll(data.dataset, {{":", "/"}}));
    names = store.list_names(folder);
  }
  if (names.ok() && names->empty()) {
    folder = url;
    names = store.list_names(folder);
  }
  if (!names.ok()) return names.status();
  if (std::ranges::find(*names, "index.json") != names->end()) return folder;
  const bool has_folders_only =
      std::ranges::all_of(*names, [](const std::string& name) { return name.ends_with('/'); });
  if (names->empty() || (!data.dataset.empty() && folder == url && has_folders_only)) {
    return absl::NotFoundError(
        absl::StrCat("there is no data set ", data.dataset, " at ", url,
                     names->empty() ? "" : absl::StrCat("; it has ", absl::StrJoin(*names, ", "))));
  }
  // Without a tokenizer the transfer, which may take hours, would be in vain.
  if (train.tokenizer_path.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer_path is empty: the text of ", folder,
                     " is tokenised before the training; set tokenizer_path=FILE"));
  }
  std::cerr << "muster: fetching " << folder << std::endl;
  return fetch_to_cache(store, folder);
}

// Returns whether the file or folder exists; a pattern may match one.
bool is_path_here(const std::string& path) {
  return access(path.c_str(), F_OK) == 0 || path.find_first_of("*?[") != std::string::npos;
}

// Returns the folder of token shards of one text.
absl::StatusOr<std::string> tokens_of(const std::string& path, const TextData& data,
                                      const trainer::TrainConfig& train, FirstUse mode) {
  if (is_object_url(path)) {
    auto local = text_of_store(path, data, train);
    if (!local.ok() || is_object_url(*local)) return local;
    return tokens_of(*local, data, train, mode);
  }
  if (!is_path_here(path)) {
    return absl::NotFoundError(
        absl::StrCat("no such file or folder: ", path,
                     "; give the data's folder, or dataset_type=synthetic to train without data"));
  }
  // Token shards need no preparation (trainer_core/data/token_index.h).
  if (access(absl::StrCat(path, "/index.json").c_str(), F_OK) == 0) return path;
  auto program = sibling_program("muster-text");
  if (!program.ok()) return program.status();
  std::vector<std::string> words = {*program,  "token-cache", "--text",      path,
                                    "--split", data.split,    "--tokenizer", train.tokenizer_path,
                                    "--field", data.field};
  const std::string encoding = trainer::tokenizer_kind(train.tokenizer_type).encoding;
  if (!encoding.empty()) words.insert(words.end(), {"--encoding", encoding});
  if (!data.dataset.empty()) words.insert(words.end(), {"--dataset", data.dataset});
  if (data.is_dataset_stated) words.emplace_back("--dataset-stated");
  if (mode == FirstUse::kFind) words.emplace_back("--only-find");
  const auto text = run_text_program(words);
  if (!text.ok()) return text.status();
  const auto result = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (result.is_object() && result.contains("folder")) return result["folder"].get<std::string>();
  if (!result.is_object() || !result.contains("error"))
    return absl::InternalError(absl::StrCat("muster-text gave no result for ", path));
  return absl::Status(static_cast<absl::StatusCode>(result["code"].get<int>()),
                      result["error"].get<std::string>());
}

// The spec has the trainer's config as text, once per size of the job.
void set_paths(jobspec::ResolvedJob& job) {
  const auto update = [&](const std::string& text) {
    auto config = nlohmann::json::parse(text);
    config["dataset_path"] = job.train.dataset_path;
    config["eval_dataset_path"] = job.train.eval.dataset_path;
    config["eval_interval"] = job.train.eval.interval;
    return config.dump();
  };
  job.spec.set_train_config_json(update(job.spec.train_config_json()));
  for (v1::Smaller& size : *job.spec.mutable_smaller())
    size.set_train_config_json(update(size.train_config_json()));
}

absl::Status tokenize_train_text(jobspec::ResolvedJob& job, FirstUse mode) {
  const TextData& data = *job.texts.train;
  std::vector<trainer::DataShare> shares = data.sources;
  for (trainer::DataShare& share : shares) {
    auto folder = tokens_of(share.folder, data, job.train, mode);
    if (!folder.ok()) return folder.status();
    share.folder = *std::move(folder);
  }
  job.train.dataset_path = trainer::data_paths_text(shares);
  return absl::OkStatus();
}

absl::Status tokenize_eval_text(jobspec::ResolvedJob& job, FirstUse mode) {
  const TextData& data = *job.texts.eval;
  const auto drop = [&](std::string_view why) -> absl::Status {
    job.train.eval.dataset_path.clear();
    if (!job.train.eval.tasks.empty()) return absl::OkStatus();  // they need no text
    if (job.train.steps == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "eval_only=true: there is nothing to evaluate: ", std::string(why),
          "; set eval_dataset_path, or eval_holdout_fraction to that of the training"));
    }
    warn(absl::StrCat("eval_interval=", job.train.eval.interval, " has no effect: ",
                      std::string(why), "; set eval_holdout_fraction, or eval_dataset_path"));
    job.train.eval.interval = -1;
    return absl::OkStatus();
  };
  auto folder = tokens_of(data.sources[0].folder, data, job.train, mode);
  if (!folder.ok()) {
    const bool is_absent =
        absl::IsNotFound(folder.status()) || absl::IsInvalidArgument(folder.status());
    return is_absent && !data.is_stated ? drop(sv(folder.status().message())) : folder.status();
  }
  // Token shards have no splits.
  if (*folder == job.train.dataset_path)
    return drop(absl::StrCat(*folder, " has token shards of one split"));
  job.train.eval.dataset_path = *std::move(folder);
  return absl::OkStatus();
}

bool is_here(const TextData& data) {
  return std::all_of(data.sources.begin(), data.sources.end(),
                     [](const auto& share) { return is_path_here(share.folder); });
}

// The paths stay; the ranks find token shards there, or name the folder that has none.
void expect_shards(jobspec::ResolvedJob& job, FirstUse mode) {
  if (mode == FirstUse::kFind && is_remote(job.train.dataset_path)) {
    warn(absl::StrCat("the data of ", job.train.dataset_path,
                      " is in an object store: a run fetches it, and tokenizes it if it is text"));
  } else {
    warn(absl::StrCat("the data of ", job.train.dataset_path,
                      " is on other machines: it must be token shards there (muster tokenize)"));
  }
  if (job.train.eval.dataset_path != job.train.dataset_path) return;
  if (job.train.eval.tasks.empty()) job.train.eval.interval = -1;
  job.train.eval.dataset_path.clear();
  set_paths(job);
}

}  // namespace

absl::Status tokenize_texts(jobspec::ResolvedJob& job, FirstUse mode) {
  if (!job.texts.train) return absl::OkStatus();
  if (mode == FirstUse::kElsewhere && job.train.steps == 0 && job.texts.eval) {
    return absl::InvalidArgumentError(
        absl::StrCat("eval_only=true: the text of ", job.train.eval.dataset_path,
                     " is on other machines; set eval_dataset_path to token shards there (muster "
                     "tokenize)"));
  }
  if (mode == FirstUse::kElsewhere || (mode == FirstUse::kFind && !is_here(*job.texts.train)))
    return expect_shards(job, mode), absl::OkStatus();
  // An evaluation alone does not read the text of the training.
  const bool evaluates_text = job.train.steps == 0 && job.texts.eval;
  if (!evaluates_text) {
    if (auto status = tokenize_train_text(job, mode); !status.ok()) return status;
  }
  if (job.texts.eval) {
    if (auto status = tokenize_eval_text(job, mode); !status.ok()) return status;
  }
  if (evaluates_text) job.train.dataset_path = job.train.eval.dataset_path;
  set_paths(job);
  return absl::OkStatus();
}

absl::StatusOr<jobspec::ResolvedJob> load_job_and_data(const JobArguments& arguments,
                                                       FirstUse mode) {
  auto job = load_job(arguments);
  if (!job.ok()) return job.status();
  if (auto status = tokenize_texts(*job, mode); !status.ok()) return status;
  return job;
}

int fail_or_cancelled(const absl::Status& status) {
  const int code = fail(status);
  return absl::IsCancelled(status) ? to_int(ExitCode::kInterrupted) : code;
}

}  // namespace muster::cli
