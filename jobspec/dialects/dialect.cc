#include "jobspec/dialects/dialect.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include "common/job/mesh.h"
#include "common/objects/object_url.h"
#include "common/text/absl_view.h"
#include "common/text/nearest.h"
#include "jobspec/dialects/flag_scanner.h"
#include "jobspec/dialects/flag_synonyms.h"
#include "jobspec/dialects/launcher.h"
#include "jobspec/dialects/mesh_selector.h"
#include "jobspec/dialects/variables.h"
#include "jobspec/files/value.h"

namespace muster::jobspec {
namespace {

absl::Status bad(const GivenFlag& given, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(given.shown, "=", show(given.value), ": ", av(what)));
}

// Unquotes '"bfloat16"', as shells pass it, and shortens "jnp.bfloat16", as Python writes it.
std::string plain(const std::string& value) {
  absl::string_view text = absl::StripAsciiWhitespace(value);
  for (const char* quote : {"\"", "'"}) {
    if (text.size() >= 2 && absl::StartsWith(text, quote) && absl::EndsWith(text, quote))
      text = text.substr(1, text.size() - 2);
  }
  absl::ConsumePrefix(&text, "jnp.");
  return std::string(text);
}

bool is_off(const std::string& value) {
  const std::string lower = absl::AsciiStrToLower(plain(value));
  return lower == "false" || lower == "0" || lower == "-1" || lower == "-1.0" || lower.empty();
}

bool is_on(const std::string& value) {
  const std::string lower = absl::AsciiStrToLower(plain(value));
  return lower == "true" || lower == "1";
}

bool is_one(const std::string& value) {
  double number = 0;
  return absl::SimpleAtod(plain(value), &number) && number == 1;
}

std::string last_part(const std::string& dotted) {
  return dotted.substr(dotted.rfind('.') + 1);  // npos + 1 is 0
}

// Rows → settings.
class Translator {
 public:
  explicit Translator(Translation& out) : out_(out) {}

  // The meaning of other flags depends on the model.
  void set_model(const GivenFlag& given);
  bool has_model() const { return !model_.empty(); }
  // Pax's GPT family: its presets have a cosine schedule, the other models Pax's default.
  bool has_cosine() const {
    return absl::StartsWith(model_, "GPT") || absl::StartsWith(model_, "GLaM") ||
           absl::StartsWith(model_, "Pile") || absl::StartsWith(model_, "Synthetic");
  }
  absl::Status apply(const GivenFlag& given);

 private:
  void set(const GivenFlag& given, std::string_view key, std::string value) {
    out_.settings.push_back({std::string(key), std::move(value), given.shown});
  }
  void warn(const GivenFlag& given, std::string_view why) {
    out_.warnings.push_back(
        absl::StrCat(given.shown, "=", show(given.value), " has no effect: ", av(why)));
  }
  absl::Status set_if_on(const GivenFlag& given, std::string_view key, std::string_view value);
  absl::Status set_mesh(const GivenFlag& given, std::string_view level);
  void select_mesh(const GivenFlag& given);
  absl::Status set_directory(const GivenFlag& given, const std::string& text);
  absl::Status set_data(const GivenFlag& given, bool is_synthetic);
  absl::Status set_schedule(const GivenFlag& given);
  void set_of_schedule(const GivenFlag& given, std::string_view schedule);
  absl::Status set_remat(const GivenFlag& given);
  absl::Status set_mode(const GivenFlag& given);
  absl::Status only(const GivenFlag& given, std::string_view value, std::string_view what);

  Translation& out_;
  std::string model_;
  std::string schedule_;   // LR_SCHEDULE of Pax
  std::string workspace_;  // the folder of Pax's scripts
  bool has_logs_ = false;  // a folder inside workspace_
};

constexpr std::string_view kRampupCosine = "linear_rampup_cosine_decay";
constexpr std::string_view kRampupExponential = "linear_rampup_exponential_decay";

void Translator::set_model(const GivenFlag& given) {
  if (given.flag->effect == FlagEffect::kPaxConfig) model_ = last_part(plain(given.value));
  if (given.flag->effect == FlagEffect::kAxlearnConfig) model_ = given.value;
  if (given.flag->effect == FlagEffect::kPaxSchedule) schedule_ = plain(given.value);
  if (given.flag->effect == FlagEffect::kPaxWorkspace) workspace_ = given.value;
  if (given.flag->effect == FlagEffect::kPaxLogs && !absl::StartsWith(given.value, "/"))
    has_logs_ = true;
}

// Sets the key if the value of the flag switches it on.
absl::Status Translator::set_if_on(const GivenFlag& given, std::string_view key,
                                   std::string_view value) {
  if (is_off(given.value)) return absl::OkStatus();
  if (!is_on(given.value)) return bad(given, "expected True or False");
  set(given, key, std::string(value));
  return absl::OkStatus();
}

// [data,fsdp,tensor]; Pax names them replica, data and mdl.
absl::Status Translator::set_mesh(const GivenFlag& given, std::string_view level) {
  static constexpr std::array kAxes = {MeshAxis::kData, MeshAxis::kFsdp, MeshAxis::kTensor};
  // In Python's syntax: None is the default, and a tuple is a list.
  std::string text = plain(given.value);
  if (text == "None") return absl::OkStatus();
  if (absl::StartsWith(text, "(") && absl::EndsWith(text, ")"))
    text = absl::StrCat("[", text.substr(1, text.size() - 2), "]");
  const auto list = parse_value("", ValueType::kList, text);
  if (!list.ok() || list->size() != kAxes.size()) {
    return bad(given, "expected three degrees, [data,fsdp,tensor], for example [8,1,1]");
  }
  for (size_t axis = 0; axis < kAxes.size(); ++axis) {
    if (!(*list)[axis].is_string()) return bad(given, "expected three degrees, [data,fsdp,tensor]");
    const auto degree = (*list)[axis].get<std::string>();
    if (int64_t number = 0; !absl::SimpleAtoi(degree, &number)) {
      return bad(given, absl::StrCat("its degrees are [data,fsdp,tensor], and ",
                                     av(kMeshAxisNames[static_cast<size_t>(kAxes[axis])]), " is ",
                                     show(degree),
                                     "; each is a whole number, or -1 to fill in what is left"));
    }
    set(given, mesh_key(level, kAxes[axis]), degree);
  }
  return absl::OkStatus();
}

// The machines of the rules have their fsdp ranks inside a node first.
void Translator::select_mesh(const GivenFlag& given) {
  const auto fsdp = selected_fsdp(model_, plain(given.value));
  if (!fsdp) return warn(given, absl::StrCat(model_, " has no mesh rule for it"));
  const int32_t inside = std::min(*fsdp, kSelectedRanksPerNode);
  set(given, "ici_data_parallelism", "1");
  set(given, "ici_fsdp_parallelism", absl::StrCat(inside));
  set(given, "dcn_data_parallelism", "-1");
  set(given, "dcn_fsdp_parallelism", absl::StrCat(*fsdp / inside));
}

// Their folder belongs to one run; ours is base_output_directory/run_name.
absl::Status Translator::set_directory(const GivenFlag& given, const std::string& text) {
  if (is_remote(text)) {
    const auto url = parse_object_url(text);
    if (!url.ok()) return bad(given, sv(url.status().message()));
    if (url->key.empty()) return bad(given, "expected a folder below the bucket");
    const std::string whole = url->text();
    set(given, "base_output_directory", whole.substr(0, whole.rfind('/')));
    set(given, "run_name", url->name());
    return absl::OkStatus();
  }
  std::filesystem::path path = std::filesystem::path(text).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // for out/
  const std::string name = path.filename().string();
  if (name.empty() || name == "." || name == ".." || name == "~")
    return bad(given, "expected a folder with a name, of the file system, for example out/first");
  set(given, "base_output_directory", path.parent_path().string());
  set(given, "run_name", name);
  return absl::OkStatus();
}

absl::Status Translator::set_data(const GivenFlag& given, bool is_synthetic) {
  if (is_synthetic) {
    set(given, "dataset_type", "synthetic");
    return absl::OkStatus();
  }
  // A data folder of TFDS, or one of token shards.
  set(given, "dataset_type", "tfds");
  set(given, "dataset_path", given.value);
  return absl::OkStatus();
}

absl::Status Translator::set_schedule(const GivenFlag& given) {
  if (schedule_ != kRampupCosine && schedule_ != kRampupExponential && schedule_ != "constant") {
    return bad(given, absl::StrCat("this version has ", av(kRampupCosine), ", ",
                                   av(kRampupExponential), " and constant"));
  }
  set(given, "lr_schedule_type", schedule_);
  // Pax's constant rate has no warm-up.
  if (schedule_ == "constant") set(given, "learning_rate_warmup_steps", "0");
  // The GPT presets have a cosine schedule's numbers; these are Pax's defaults of the other
  // schedule, and flags override them.
  if (schedule_ == kRampupExponential && has_cosine()) {
    out_.settings.insert(out_.settings.begin(),
                         {{"learning_rate_warmup_steps", "4000", given.shown},
                          {"learning_rate_decay_start", "4001", given.shown},
                          {"learning_rate_decay_end", "300000", given.shown}});
  }
  return absl::OkStatus();
}

void Translator::set_of_schedule(const GivenFlag& given, std::string_view schedule) {
  const std::string_view preset = has_cosine() ? kRampupCosine : kRampupExponential;
  const std::string_view used = schedule_.empty() ? preset : std::string_view(schedule_);
  if (used == schedule) return set(given, given.flag->key, plain(given.value));
  warn(given, absl::StrCat("the schedule is ", av(used)));
}

absl::Status Translator::set_remat(const GivenFlag& given) {
  const std::string policy = last_part(plain(given.value));
  if (!absl::StartsWith(policy, "SAVE_"))
    return bad(given, "expected a policy such as SAVE_NOTHING or SAVE_EVERYTHING");
  // Pax's policies between the two are close to MaxText's minimal: they save the results of weight
  // matmuls.
  set(given, "remat_policy",
      policy == "SAVE_NOTHING"      ? "full"
      : policy == "SAVE_EVERYTHING" ? "none"
                                    : "minimal");
  return absl::OkStatus();
}

absl::Status Translator::only(const GivenFlag& given, std::string_view value,
                              std::string_view what) {
  return given.value == value ? absl::OkStatus() : bad(given, what);
}

// Pax's modes; its evaluation and its decoding restore the newest checkpoint of the run.
absl::Status Translator::set_mode(const GivenFlag& given) {
  static constexpr std::array<std::string_view, 4> kModes = {"train", "eval", "decode",
                                                             "decode_once"};
  if (given.value == "train") return absl::OkStatus();
  if (given.value == "eval") {
    set(given, "eval_only", "true");
    return absl::OkStatus();
  }
  if (absl::StartsWith(given.value, "decode")) {
    return bad(
        given,
        "decode a checkpoint with muster decode --run FOLDER --tokenizer FILE --prompt TEXT, "
        "where FOLDER is the run's");
  }
  const std::string_view nearest = nearest_name(given.value, kModes);
  return bad(given, absl::StrCat("must be train or eval",
                                 nearest.empty() ? "" : "; did you mean --mode=", av(nearest),
                                 nearest.empty() ? "" : "?"));
}

// Parses a switch as absl does.
bool is_switch_value(const std::string& value) {
  static constexpr std::string_view kValues[] = {"true", "false", "t",  "f", "1",
                                                 "0",    "yes",   "no", "y", "n"};
  return std::find(std::begin(kValues), std::end(kValues), absl::AsciiStrToLower(value)) !=
         std::end(kValues);
}

absl::Status Translator::apply(const GivenFlag& given) {
  if (given.flag->is_switch && !is_switch_value(given.value))
    return bad(given, "expected true or false");
  switch (given.flag->effect) {
    case FlagEffect::kKey:
      set(given, given.flag->key, plain(given.value));
      return absl::OkStatus();
    case FlagEffect::kNoEffect:
      warn(given, given.flag->note);
      return absl::OkStatus();
    case FlagEffect::kQuiet:
      return absl::OkStatus();
    case FlagEffect::kOff:
      return is_off(given.value) ? absl::OkStatus() : bad(given, given.flag->note);
    case FlagEffect::kPaxConfig:
      set(given, "model_name", model_);
      return absl::OkStatus();
    case FlagEffect::kPaxEvalOnly:
      if (!is_off(given.value)) set(given, "eval_only", "true");
      return absl::OkStatus();
    case FlagEffect::kPaxMode:
      return set_mode(given);
    case FlagEffect::kPaxData:
      if (given.value.empty() || given.value == "None") return absl::OkStatus();
      if (!absl::StartsWith(model_, "Synthetic")) return set_data(given, false);
      warn(given, absl::StrCat(model_, " trains on synthetic data"));
      return absl::OkStatus();
    case FlagEffect::kPaxRemat:
      return set_remat(given);
    case FlagEffect::kPaxSchedule:
      return set_schedule(given);
    case FlagEffect::kPaxCosine:
      set_of_schedule(given, kRampupCosine);
      return absl::OkStatus();
    case FlagEffect::kPaxExponential:
      set_of_schedule(given, kRampupExponential);
      return absl::OkStatus();
    case FlagEffect::kPaxOne:
      return is_one(given.value)
                 ? absl::OkStatus()
                 : bad(given, "expected 1; LEARNING_RATE is the schedule's highest");
    case FlagEffect::kPaxFp8:
      // Both fp8 implementations of Pax, Transformer Engine's and XLA's, use delayed scaling with a
      // history of 1024 steps.
      return set_if_on(given, "quantization", "fp8");
    case FlagEffect::kPaxLora:
      return set_if_on(given, "enable_lora", "true");
    case FlagEffect::kPaxIciMesh:
      return set_mesh(given, "ici");
    case FlagEffect::kPaxDcnMesh:
      return set_mesh(given, "dcn");
    case FlagEffect::kModule:
      return only(given, "text.gpt.c4_trainer",
                  "this version supports --module=text.gpt.c4_trainer only");
    case FlagEffect::kAxlearnConfig:
      if (!absl::StartsWith(given.value, "fuji-"))
        return bad(given, "expected a Fuji model, for example --config=fuji-7B-v2-flash");
      set(given, "model_name", given.value);
      return absl::OkStatus();
    case FlagEffect::kAxlearnData:
      return set_data(given, given.value == "FAKE");
    case FlagEffect::kAxlearnMesh:
      select_mesh(given);
      return absl::OkStatus();
    case FlagEffect::kDirectory:
      return set_directory(given, given.value);
    case FlagEffect::kPaxLogs:
      return set_directory(given, (std::filesystem::path(workspace_) / given.value).string());
    case FlagEffect::kPaxWorkspace:
      if (!has_logs_) warn(given, "it is the parent of a relative LOG_DIR, and there is none");
      return absl::OkStatus();
  }
  return absl::InternalError("unhandled flag effect");
}

bool names_flag(const std::string& word, absl::string_view flag) {
  absl::string_view rest = word;
  return absl::ConsumePrefix(&rest, flag) && (rest.empty() || rest.front() == '=');
}

}  // namespace

Dialect dialect_of(const std::vector<std::string>& words) {
  Dialect dialect = Dialect::kMaxText;
  for (const std::string& word : words) {
    if (absl::StartsWith(word, "--fdl") || absl::StartsWith(word, "CONFIG=")) return Dialect::kPax;
    if (names_flag(word, "--module") || names_flag(word, "--config")) dialect = Dialect::kAxlearn;
  }
  return dialect;
}

absl::StatusOr<Translation> translate(std::vector<std::string> words,
                                      const Environment& environment) {
  const Dialect dialect = dialect_of(words);
  Translation out;
  out.warnings = remove_without_effect(words);
  if (dialect == Dialect::kMaxText) {
    const auto flag = std::find_if(words.begin(), words.end(), [](const std::string& word) {
      return absl::StartsWith(word, "-");
    });
    if (flag == words.end() && !words.empty() && absl::EndsWith(words.front(), ".yml")) {
      out.config_path = words.front();
      out.overrides = {words.begin() + 1, words.end()};
      return out;
    }
    const std::string shown = flag != words.end() ? *flag : words.empty() ? "" : words.front();
    return absl::InvalidArgumentError(
        absl::StrCat(show(shown), ": nothing to train: give a base.yml and key=value (MaxText), ",
                     "--fdl_config=… (Pax), or --module=… --config=… (AXLearn)"));
  }
  std::vector<GivenFlag> given;
  if (dialect == Dialect::kPax) {
    if (auto status = scan_exported(exported_words(environment, words), given, out); !status.ok())
      return status;
    put_wrapper_names_first(given);
  }
  if (auto status = scan_flags(dialect, words, given, out); !status.ok()) return status;
  keep_last_of_repeated(given);
  keep_one_of_synonyms(given, out.warnings);
  Translator translator(out);
  for (const GivenFlag& flag : given) translator.set_model(flag);
  if (!translator.has_model()) {
    return absl::InvalidArgumentError(
        dialect == Dialect::kPax
            ? "no experiment: add --fdl_config=paxml.contrib.gpu.scripts_gpu.configs.NAME"
            : "no model: add --config=NAME, for example --config=fuji-7B-v2-flash");
  }
  for (const GivenFlag& flag : given) {
    if (auto status = translator.apply(flag); !status.ok()) return status;
  }
  return out;
}

}  // namespace muster::jobspec
