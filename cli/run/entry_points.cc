#include "cli/run/entry_points.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <absl/strings/strip.h>

#include "cli/run/converter_flags.h"
#include "common/text/absl_view.h"
#include "jobspec/dialects/dialect.h"
#include "jobspec/dialects/launcher.h"

namespace muster::cli {
namespace {

using Words = std::vector<std::string>;

enum class Program : uint8_t { kTrain, kPlan, kDecode, kConvert, kExport, kAbsent };

// A program by the end of its path, without ".py": a module's dots are slashes here.
struct EntryPoint {
  std::string_view name;
  Program program;
  std::string_view to = "";       // kConvert: the flag with the output folder
  std::string_view instead = "";  // kAbsent: what there is
};

constexpr std::string_view kServing = "muster serve --run FOLDER serves a model over HTTP";
constexpr std::string_view kOnlyRun =
    "this trains nothing; muster run with the same words does what it does";
constexpr EntryPoint kEntryPoints[] = {
    {"MaxText/train", Program::kTrain},
    {"paxml/main", Program::kTrain},
    {"axlearn/common/launch_trainer_main", Program::kTrain},
    {"MaxText/decode", Program::kDecode},
    {"MaxText/train_compile", Program::kPlan},
    {"MaxText/llama_or_mistral_ckpt", Program::kConvert, "maxtext-model-path"},
    {"llama_or_mistral_ckpt", Program::kConvert, "maxtext-model-path"},
    {"convert_llama_ckpt", Program::kConvert, "pax-model-path"},
    {"converter/main", Program::kConvert, "output-path"},
    {"llama_mistral_mixtral_orbax_to_hf", Program::kExport},
    {"convert_gemma_chkpt", Program::kAbsent, "",
     "Gemma's Flax files are not read; take its Hugging Face folder: muster convert gemma-2b-hf "
     "TO"},
    {"convert_gpt3_ckpt_from_paxml", Program::kAbsent, "",
     "Pax's checkpoints are not read; muster convert takes Hugging Face's and Meta's folders"},
    {"generate_param_only_checkpoint", Program::kAbsent, "",
     "muster decode, and load_parameters_path, read a training checkpoint's parameters alone"},
    {"MaxText/maxengine_server", Program::kAbsent, "", kServing},
    {"MaxText/inference_microbenchmark", Program::kAbsent, "", kServing},
    {"sft_trainer", Program::kAbsent, "",
     "supervised fine-tuning is not built yet; muster run with load_parameters_path=MODEL trains "
     "all parameters on all tokens of the data"},
    {"MaxText/train_tokenizer", Program::kAbsent, "",
     "muster train-tokenizer --text FILES --vocab-size 32000 --out NAME"},
    {"MaxText/standalone_dataloader", Program::kAbsent, "",
     "the last line of a run has the wait for data (docs/training-data.md)"},
    {"MaxText/standalone_checkpointer", Program::kAbsent, "",
     "each save has a line with its rate; checkpoint_period=1 saves every step"},
};

bool is_python(absl::string_view word) {
  word = word.substr(word.rfind('/') + 1);
  return absl::ConsumePrefix(&word, "python") &&
         word.find_first_not_of("0123456789.") == absl::string_view::npos;
}

const EntryPoint* find_entry_point(std::string_view path) {
  for (const EntryPoint& entry : kEntryPoints) {
    if (path == entry.name || absl::EndsWith(av(path), absl::StrCat("/", av(entry.name))))
      return &entry;
  }
  return nullptr;
}

// The program in a line, and where its own arguments begin.
struct Found {
  const EntryPoint* entry = nullptr;
  size_t program = 0;  // the word with its name
  bool has_python = false;
};

// `at`: the first word of the line.
Found find_entry_program(const Words& words, size_t at) {
  while (at < words.size() &&
         (jobspec::is_assignment(words[at]) || jobspec::is_flag_without_effect(words[at])))
    ++at;
  if (at == words.size()) return {};
  Found found{.entry = nullptr, .program = at, .has_python = is_python(words[at])};
  bool is_module = false;
  if (found.has_python) {
    for (++at; at < words.size() && absl::StartsWith(words[at], "-"); ++at) {
      is_module = is_module || words[at] == "-m";
      if (words[at] == "-X" || words[at] == "-W") ++at;
    }
  }
  if (at >= words.size()) return {};
  found.program = at;
  absl::string_view name = words[at];
  if (!is_module && !absl::ConsumeSuffix(&name, ".py")) return {};
  const std::string path = is_module ? absl::StrReplaceAll(name, {{".", "/"}}) : std::string(name);
  found.entry = find_entry_point(path);
  return found;
}

// Returns the number of words before the line in commands that take a training's line; 0: another
// command.
size_t words_of_command(const Words& words) {
  if (words.size() > 1 && (words[0] == "run" || words[0] == "submit" || words[0] == "plan"))
    return 1;
  if (words.size() > 2 && words[0] == "config" && words[1] == "show") return 2;
  return 0;
}

// Replaces the program in `words` by MaxText's trainer, whose keys another program takes, too.
void name_trainer(const Found& found, Words& words) {
  words[found.program] = "MaxText/train.py";
  if (!found.has_python) {
    words.insert(words.begin() + static_cast<std::ptrdiff_t>(found.program), "python3");
  } else if (words[found.program - 1] == "-m") {
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(found.program) - 1);
  }
}

absl::Status refused(std::string_view program, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(av(program), ": ", av(why)));
}

// Parses --name=value, --name value and --switch, with - and _ alike.
absl::StatusOr<ConverterFlags> flags_of(const std::string& program, const Words& words,
                                        size_t from) {
  ConverterFlags flags;
  for (size_t i = from; i < words.size(); ++i) {
    absl::string_view word = words[i];
    if (!absl::ConsumePrefix(&word, "--"))
      return refused(program, absl::StrCat("unexpected word ", words[i]));
    const size_t equals = word.find('=');
    const std::string name = absl::StrReplaceAll(word.substr(0, equals), {{"_", "-"}});
    if (equals != absl::string_view::npos) {
      flags[name] = std::string(word.substr(equals + 1));
    } else if (!is_converter_switch(name) && i + 1 < words.size()) {
      flags[name] = words[++i];
    } else {
      flags[name] = "";
    }
  }
  return flags;
}

// Returns the flag's value, and removes the flag.
std::string take_flag(ConverterFlags& flags, const std::string& name) {
  const auto node = flags.extract(name);
  return node.empty() ? "" : node.mapped();
}

absl::StatusOr<MappedLine> map_convert(const Found& found, const Words& words) {
  const std::string& program = words[found.program];
  auto flags = flags_of(program, words, found.program + 1);
  if (!flags.ok()) return flags.status();
  const std::string from_flag = found.entry->to == "output-path" ? "input-path" : "base-model-path";
  const std::string from = take_flag(*flags, from_flag);
  const std::string to = take_flag(*flags, std::string(found.entry->to));
  auto meaning = interpret_converter_flags(from, *flags);
  if (!meaning.ok()) return refused(program, sv(meaning.status().message()));
  if (from.empty() || to.empty()) {
    return refused(program, absl::StrCat("give --", from_flag, "=FOLDER and --",
                                         av(found.entry->to), "=FOLDER: muster convert FROM TO"));
  }
  MappedLine line{{"convert", from, to, "--to", "muster"}, std::move(meaning->note)};
  for (const std::string& expected : meaning->expected)
    line.words.push_back(absl::StrCat("--expect=", expected));
  return line;
}

// MaxText's export takes keys of a run.
absl::StatusOr<MappedLine> map_export(const Found& found, const Words& words) {
  std::string from, to;
  for (size_t i = found.program + 1; i < words.size(); ++i) {
    absl::string_view word = words[i];
    if (absl::ConsumePrefix(&word, "load_parameters_path=")) from = std::string(word);
    if (absl::ConsumePrefix(&word, "hf_model_path=")) to = std::string(word);
  }
  if (from.empty() || to.empty()) {
    return refused(words[found.program],
                   "give load_parameters_path=RUN and hf_model_path=FOLDER: muster convert RUN "
                   "FOLDER --to hf");
  }
  return MappedLine{{"convert", from, to, "--to", "hf"}, ""};
}

// --mode=eval is a flag of Pax's main program. Lines of other programs accept it, too: MaxText and
// AXLearn have no flag for an evaluation without training.
void replace_mode(Words& words) {
  for (size_t i = 1; i < words.size() && words[i] != "--"; ++i) {
    const auto word = words.begin() + static_cast<std::ptrdiff_t>(i);
    if (*word == "--mode" && i + 1 < words.size() && words[i + 1] == "eval")
      words.erase(word + 1);
    else if (*word != "--mode=eval")
      continue;
    *word = "eval_only=true";
  }
}

// Returns whether a line of `muster eval` has a word other than the options of `muster eval --run`.
bool names_training(const Words& words) {
  constexpr std::string_view kWithValue[] = {"--task",   "--out",    "--tokenizer", "--batch",
                                             "--length", "--bos-id", "--hardware"};
  for (size_t i = 1; i < words.size(); ++i) {
    if (std::ranges::count(kWithValue, words[i]) > 0)
      ++i;
    else if (!absl::StartsWith(words[i], "--"))
      return true;
  }
  return false;
}

// Makes `muster eval` with the line of a training a line of `muster run`. Leaves other lines of
// `muster eval`, which have --run or nothing to evaluate, as they are.
void replace_eval(Words& words) {
  const auto is_own = [](const std::string& word) {
    return word == "--run" || absl::StartsWith(word, "--run=") || word == "--help" || word == "-h";
  };
  if (words.empty() || words[0] != "eval" || std::ranges::any_of(words, is_own)) return;
  if (!names_training(words)) return;
  Words line = {"run"};
  std::string tasks;
  for (size_t i = 1; i < words.size(); ++i) {
    absl::string_view word = words[i];
    const bool is_task = absl::ConsumePrefix(&word, "--task");
    const bool is_out = !is_task && absl::ConsumePrefix(&word, "--out");
    const bool has_value = absl::ConsumePrefix(&word, "=");
    if ((!is_task && !is_out) || (!has_value && (!word.empty() || i + 1 == words.size()))) {
      line.push_back(words[i]);
      continue;
    }
    const std::string value(has_value ? std::string(word) : words[++i]);
    if (is_task)
      absl::StrAppend(&tasks, tasks.empty() ? "" : ",", value);
    else
      line.push_back(absl::StrCat("eval_output=", value));
  }
  if (!tasks.empty()) line.push_back(absl::StrCat("eval_tasks=", tasks));
  line.emplace_back("--mode=eval");
  words = std::move(line);
}

}  // namespace

absl::StatusOr<MappedLine> map_entry_point(Words words) {
  replace_eval(words);
  const size_t begin = words_of_command(words);
  if (begin == 0) return MappedLine{std::move(words), ""};
  const bool runs = words[0] == "run";
  if (jobspec::dialect_of(words) != jobspec::Dialect::kPax) replace_mode(words);
  const Found found = find_entry_program(words, begin);
  if (found.entry == nullptr) return MappedLine{std::move(words), ""};
  const Program program = found.entry->program;
  const bool is_plan_of_plan = words[0] == "plan" && program == Program::kPlan;
  if (!runs && !is_plan_of_plan && program != Program::kTrain && program != Program::kAbsent)
    return refused(words[found.program], kOnlyRun);
  switch (program) {
    case Program::kTrain:
      if (!found.has_python)
        words.insert(words.begin() + static_cast<std::ptrdiff_t>(found.program), "python3");
      return MappedLine{std::move(words), ""};
    case Program::kDecode:
      // The rest of the line is that of a training, whose config the command reads.
      words[0] = "decode";
      name_trainer(found, words);
      return MappedLine{std::move(words), ""};
    case Program::kPlan:
      words[0] = "plan";
      name_trainer(found, words);
      return MappedLine{std::move(words), ""};
    case Program::kConvert:
      return map_convert(found, words);
    case Program::kExport:
      return map_export(found, words);
    case Program::kAbsent:
      return refused(words[found.program], found.entry->instead);
  }
  return MappedLine{std::move(words), ""};
}

}  // namespace muster::cli
