#include "jobspec/dialect.h"

#include <array>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include "common/absl_view.h"
#include "jobspec/flag_scanner.h"
#include "jobspec/value.h"

namespace muster::jobspec {
namespace {

absl::Status bad(const Given& given, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(given.shown, "=", show(given.value), ": ", av(what)));
}

// '"bfloat16"' as shells pass it on, and "jnp.bfloat16" as Python writes it.
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

  // Other flags mean what they mean for a model.
  void set_model(const Given& given);
  bool has_model() const { return !model_.empty(); }
  // Pax's GPT family, whose table of positions is as long as a sequence.
  bool learns_positions() const {
    return absl::StartsWith(model_, "GPT") || absl::StartsWith(model_, "Pile") ||
           absl::StartsWith(model_, "Synthetic");
  }
  absl::Status apply(const Given& given);

 private:
  void set(const Given& given, std::string_view key, std::string value) {
    out_.settings.push_back({std::string(key), std::move(value), given.shown});
  }
  void warn(const Given& given, std::string_view why) {
    out_.warnings.push_back(
        absl::StrCat(given.shown, "=", show(given.value), " has no effect: ", av(why)));
  }
  absl::Status set_mesh(const Given& given, std::string_view level);
  absl::Status set_directory(const Given& given);
  absl::Status set_data(const Given& given, bool is_synthetic);
  absl::Status set_schedule(const Given& given);
  void set_of_schedule(const Given& given, std::string_view schedule);
  absl::Status set_remat(const Given& given);
  absl::Status only(const Given& given, std::string_view value, std::string_view what);

  Translation& out_;
  std::string model_;
  std::string schedule_;  // Pax's
};

constexpr std::string_view kRampupCosine = "linear_rampup_cosine_decay";
constexpr std::string_view kRampupExponential = "linear_rampup_exponential_decay";

void Translator::set_model(const Given& given) {
  if (given.flag->effect == FlagEffect::kPaxConfig) model_ = last_part(plain(given.value));
  if (given.flag->effect == FlagEffect::kAxlearnConfig) model_ = given.value;
  if (given.flag->effect == FlagEffect::kPaxSchedule) schedule_ = plain(given.value);
}

// [data,fsdp,tensor]; Pax's own names for them are replica, data and mdl.
absl::Status Translator::set_mesh(const Given& given, std::string_view level) {
  static constexpr std::array<std::string_view, 3> kAxes = {"data", "fsdp", "tensor"};
  const auto list = parse_value("", ValueType::kList, plain(given.value));
  if (!list.ok() || list->size() != kAxes.size()) {
    return bad(given, "expected three degrees, [data,fsdp,tensor], for example [8,1,1]");
  }
  for (size_t axis = 0; axis < kAxes.size(); ++axis) {
    if (!(*list)[axis].is_string()) return bad(given, "expected three degrees, [data,fsdp,tensor]");
    set(given, absl::StrCat(av(level), "_", av(kAxes[axis]), "_parallelism"),
        (*list)[axis].get<std::string>());
  }
  return absl::OkStatus();
}

// Their folder is that of one run; ours is base_output_directory/run_name.
absl::Status Translator::set_directory(const Given& given) {
  const absl::string_view text = absl::StripSuffix(given.value, "/");
  if (text.empty() || absl::StrContains(text, "://"))
    return bad(given, "expected a folder of the file system");
  const size_t slash = text.rfind('/');
  const bool has_parent = slash != absl::string_view::npos;
  set(given, "base_output_directory",
      has_parent ? std::string(slash == 0 ? "/" : text.substr(0, slash)) : "");
  set(given, "run_name", std::string(has_parent ? text.substr(slash + 1) : text));
  return absl::OkStatus();
}

absl::Status Translator::set_data(const Given& given, bool is_synthetic) {
  if (is_synthetic) {
    set(given, "dataset_type", "synthetic");
    return absl::OkStatus();
  }
  if (absl::StrContains(given.value, "://")) {
    return bad(given,
               "remote storage is not supported; give a folder of shards made by muster tokenize"
               ", or --data_dir=FAKE (AXLearn) or CONFIG=Synthetic… (Pax) for synthetic data");
  }
  set(given, "dataset_type", "shards");
  set(given, "dataset_path", given.value);
  return absl::OkStatus();
}

absl::Status Translator::set_schedule(const Given& given) {
  if (schedule_ != kRampupCosine && schedule_ != kRampupExponential && schedule_ != "constant") {
    return bad(given, absl::StrCat("this version has ", av(kRampupCosine), ", ",
                                   av(kRampupExponential), " and constant"));
  }
  set(given, "lr_schedule_type", schedule_);
  // Pax's constant rate has no warm-up.
  if (schedule_ == "constant") set(given, "learning_rate_warmup_steps", "0");
  // The numbers of the GPT presets are a cosine's; these are Pax's defaults of the other, before any flag.
  if (schedule_ == kRampupExponential && learns_positions()) {
    out_.settings.insert(out_.settings.begin(),
                         {{"learning_rate_warmup_steps", "4000", given.shown},
                          {"learning_rate_decay_start", "4001", given.shown},
                          {"learning_rate_decay_end", "300000", given.shown}});
  }
  return absl::OkStatus();
}

void Translator::set_of_schedule(const Given& given, std::string_view schedule) {
  const std::string_view preset = learns_positions() ? kRampupCosine : kRampupExponential;
  const std::string_view used = schedule_.empty() ? preset : std::string_view(schedule_);
  if (used == schedule) return set(given, given.flag->key, plain(given.value));
  warn(given, absl::StrCat("the schedule is ", av(used)));
}

absl::Status Translator::set_remat(const Given& given) {
  const std::string policy = last_part(plain(given.value));
  if (!absl::StartsWith(policy, "SAVE_"))
    return bad(given, "expected a policy such as SAVE_NOTHING or SAVE_EVERYTHING");
  // What Pax keeps between the two is near MaxText's minimal: the products of weights.
  set(given, "remat_policy",
      policy == "SAVE_NOTHING"      ? "full"
      : policy == "SAVE_EVERYTHING" ? "none"
                                    : "minimal");
  return absl::OkStatus();
}

absl::Status Translator::only(const Given& given, std::string_view value, std::string_view what) {
  return given.value == value ? absl::OkStatus() : bad(given, what);
}

absl::Status Translator::apply(const Given& given) {
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
    case FlagEffect::kPaxMode:
      return only(given, "train", "this version trains; set --mode=train");
    case FlagEffect::kPaxData:
      if (given.value.empty() || given.value == "None") return absl::OkStatus();
      if (!absl::StartsWith(model_, "Synthetic")) return set_data(given, false);
      warn(given, absl::StrCat(model_, " trains on synthetic data"));
      return absl::OkStatus();
    case FlagEffect::kPaxHeads:
      set(given, "base_num_query_heads", plain(given.value));
      // The one config of Pax whose key and value heads are a number of their own.
      if (model_ != "LLaMA70B") set(given, "base_num_kv_heads", plain(given.value));
      return absl::OkStatus();
    case FlagEffect::kPaxSequence:
      set(given, "max_target_length", plain(given.value));
      if (learns_positions()) set(given, "trainable_position_size", plain(given.value));
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
    case FlagEffect::kPaxIciMesh:
      return set_mesh(given, "ici");
    case FlagEffect::kPaxDcnMesh:
      return set_mesh(given, "dcn");
    case FlagEffect::kModule:
      return only(given, "text.gpt.c4_trainer",
                  "this version has the models of --module=text.gpt.c4_trainer");
    case FlagEffect::kAxlearnConfig:
      if (!absl::StartsWith(given.value, "fuji-"))
        return bad(given, "expected a Fuji model, for example --config=fuji-7B-v2-flash");
      set(given, "model_name", given.value);
      return absl::OkStatus();
    case FlagEffect::kAxlearnData:
      return set_data(given, given.value == "FAKE");
    case FlagEffect::kDirectory:
      return set_directory(given);
  }
  return absl::InternalError("an effect without a case");
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

absl::StatusOr<Translation> translate(const std::vector<std::string>& words) {
  const Dialect dialect = dialect_of(words);
  if (dialect == Dialect::kMaxText) {
    return absl::InvalidArgumentError(absl::StrCat(
        words.empty() ? "" : show(words.front()), ": say what to train: a base.yml (MaxText), ",
        "--fdl_config=… (Pax), or --module=… --config=… (AXLearn)"));
  }
  Translation out;
  std::vector<Given> given;
  if (auto status = scan_flags(dialect, words, given, out); !status.ok()) return status;
  Translator translator(out);
  for (const Given& flag : given) translator.set_model(flag);
  if (!translator.has_model()) {
    return absl::InvalidArgumentError(
        dialect == Dialect::kPax
            ? "no experiment: add --fdl_config=paxml.contrib.gpu.scripts_gpu.configs.NAME"
            : "no model: add --config=NAME, for example --config=fuji-7B-v2-flash");
  }
  for (const Given& flag : given) {
    if (auto status = translator.apply(flag); !status.ok()) return status;
  }
  return out;
}

}  // namespace muster::jobspec
