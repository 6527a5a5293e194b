#include "coordinator/core/queue/validation.h"

#include <gmock/gmock.h>

#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "common/text/absl_view.h"

namespace muster::coordinator {
namespace {

JobSpec good_spec() {
  JobSpec spec;
  spec.name = "llama2-tiny.1_a";
  spec.output_directory = "/out";
  return spec;
}

std::string problem(const JobSpec& spec) {
  return std::string(check_spec(spec, InputLimits{}).message());
}

TEST(CheckSpec, AcceptsWhatIsWithinBounds) { EXPECT_EQ(problem(good_spec()), ""); }

TEST(CheckSpec, NamesFieldValueAndWhatWouldBeRight) {
  JobSpec spec = good_spec();
  spec.name = "a b";
  EXPECT_EQ(problem(spec),
            "spec.name is \"a b\": it must be 1 to 128 of the characters A-Z a-z 0-9 . _ -");
  spec.name = "..";
  EXPECT_THAT(problem(spec), testing::HasSubstr("spec.name is \"..\""));
  spec.name = std::string(1000, 'x');
  EXPECT_THAT(problem(spec), testing::HasSubstr("(1000 bytes)"));
  EXPECT_LT(problem(spec).size(), 300U);
  spec = good_spec();
  spec.restarts_max = -1;
  EXPECT_EQ(problem(spec), "spec.restarts_max is -1: it must be 0 to 100000");
  spec = good_spec();
  spec.nodes = 10'000;
  spec.ranks_per_node = 1024;
  EXPECT_THAT(problem(spec), testing::HasSubstr("spec.nodes * spec.ranks_per_node is 10240000"));
  spec = good_spec();
  spec.output_directory = "out";
  EXPECT_EQ(problem(spec), "spec.output_directory is \"out\": it must be an absolute path");
  spec.output_directory = "s3://bucket/out";
  EXPECT_EQ(problem(spec), "");
  spec = good_spec();
  spec.train_config_json = std::string((1 << 20) + 1, '{');
  EXPECT_THAT(problem(spec), testing::HasSubstr("spec.train_config_json"));
  spec.train_config_json = std::string(65, '[') + std::string(65, ']');
  EXPECT_EQ(problem(spec), "spec.train_config_json is nested deeper than 64 levels");
}

// A spec in which each plain field may have any value that its row allows.
JobSpec any_spec() {
  JobSpec spec = good_spec();
  spec.command = {"train.py"};
  spec.working_directory = "/home/ada";
  spec.array = "a";
  return spec;
}

template <class Value>
void expect_number_range(const JobField& field, Value JobSpec::*member) {
  const auto range = std::get<NumberRange>(field.rule);
  for (const int64_t bound : {range.min, range.max}) {
    JobSpec spec = any_spec();
    spec.*member = static_cast<Value>(bound);
    EXPECT_EQ(problem(spec), "") << field.name << " " << bound;
  }
  const auto expect_refused = [&](JobSpec spec, int64_t value, int64_t min, int64_t max) {
    spec.*member = static_cast<Value>(value);
    EXPECT_EQ(problem(spec), absl::StrCat("spec.", av(field.name), " is ", value, ": it must be ",
                                          min, " to ", max));
  };
  expect_refused(any_spec(), range.min - 1, range.min, range.max);
  if (range.max < std::numeric_limits<Value>::max())
    expect_refused(any_spec(), range.max + 1, range.min, range.max);
  if (range.only_programs) expect_refused(good_spec(), range.max, 0, 0);
}

void expect_text_rule(const JobField& field, std::string JobSpec::*member) {
  const auto rule = std::get<TextRule>(field.rule);
  const auto name = absl::StrCat("spec.", av(field.name), " is ");
  const auto problem_of = [&](const std::string& text) {
    JobSpec spec = any_spec();
    spec.*member = text;
    return problem(spec);
  };
  const std::string good = "/" + std::string(rule.bytes_max - 1, 'x');
  const bool is_name = rule.form == TextForm::kName;
  EXPECT_EQ(problem_of(is_name ? good.substr(1) : good), "") << field.name;
  EXPECT_THAT(problem_of(good + "x"), testing::StartsWith(name));
  EXPECT_THAT(problem_of(std::string("/\0", 2)), testing::StartsWith(name));
  EXPECT_EQ(problem_of("/a\nb").empty(), rule.form == TextForm::kText) << field.name;
  EXPECT_EQ(problem_of("a").empty(), rule.form != TextForm::kAbsolutePath) << field.name;
  EXPECT_EQ(problem_of("a b").empty(), rule.form == TextForm::kLine || rule.form == TextForm::kText)
      << field.name;
}

void expect_list_rule(const JobField& field, std::vector<std::string> JobSpec::*member) {
  const auto rule = std::get<ListRule>(field.rule);
  const auto problem_of = [&](std::vector<std::string> list) {
    JobSpec spec = any_spec();
    spec.*member = std::move(list);
    return problem(spec);
  };
  const auto allowed =
      absl::StrCat(": at most ", rule.words_max, " of ", rule.bytes_max, " bytes are allowed");
  EXPECT_EQ(problem_of(std::vector<std::string>(rule.words_max, "x")), "");
  EXPECT_EQ(problem_of(std::vector<std::string>(rule.words_max + 1, "x")),
            absl::StrCat("spec.", av(field.name), " has ", rule.words_max + 1, " words of ",
                         2 * rule.words_max + 2, " bytes", allowed));
  EXPECT_EQ(problem_of({std::string(rule.bytes_max, 'x')}),
            absl::StrCat("spec.", av(field.name), " has 1 words of ", rule.bytes_max + 1, " bytes",
                         allowed));
  EXPECT_THAT(problem_of({"x", std::string("a\0b", 3)}),
              testing::StartsWith(absl::StrCat("spec.", av(field.name), "[1] is ")));
}

// Each text is within its own bound, and all together would not fit into the message that starts
// ranks.
TEST(CheckSpec, BoundsTheWholeSpec) {
  JobSpec spec = good_spec();
  spec.train_config_json = std::string(1 << 20, ' ');
  EXPECT_EQ(problem(spec), "");
  for (int i = 0; i < 60; ++i)
    spec.environment[absl::StrCat("A", i)] =
        std::string(InputLimits{}.environment_value_bytes_max, 'x');
  EXPECT_THAT(problem(spec), testing::HasSubstr("spec (its texts' bytes) is 30148"));
  EXPECT_THAT(problem(spec), testing::HasSubstr("it must be 0 to 2621440"));
}

TEST(CheckSpec, EnforcesTheRuleOfEachField) {
  std::vector<std::string_view> without_rule;
  for_each_job_field([&](const JobField& field, auto member) {
    if (std::holds_alternative<NoRule>(field.rule)) {
      without_rule.push_back(field.name);
      return;
    }
    using Value = std::remove_reference_t<decltype(std::declval<JobSpec&>().*member)>;
    if constexpr (std::is_same_v<Value, std::string>) {
      expect_text_rule(field, member);
    } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
      expect_list_rule(field, member);
    } else if constexpr (!std::is_same_v<Value, bool>) {
      expect_number_range(field, member);
    }
  });
  // JudgesSizes, JudgesPrograms and JudgesQueueing test these. A truth value needs no rule.
  EXPECT_THAT(without_rule,
              testing::ElementsAre("node_selector", "tolerations", "array", "segment_nodes",
                                   "min_nodes", "working_directory"));
}

TEST(CheckSpec, JudgesQueueing) {
  JobSpec spec = good_spec();
  spec.dependencies = {{JobId(1)}, {JobId(2)}};
  spec.node_selector = {"gpu=h100", "zone!=a"};
  spec.tolerations = {"dedicated=evals"};
  spec.array = "a.1_b-C";
  spec.array_index = 7;
  spec.array_running_max = 2;
  EXPECT_EQ(problem(spec), "");
  spec.array = "a b";
  EXPECT_THAT(problem(spec), testing::StartsWith("spec.array is \"a b\": it must be 1 to 128 of"));
  spec.array.clear();
  EXPECT_EQ(problem(spec), "spec.array_index (without spec.array) is 7: it must be 0 to 0");
  spec = good_spec();
  spec.dependencies = {{JobId(1)}, {JobId(1)}};
  EXPECT_EQ(problem(spec), "spec.dependencies has job 1 twice: it must name each job once");
  spec.dependencies.clear();
  for (uint64_t job = 1; job <= 65; ++job) spec.dependencies.push_back({JobId(job)});
  EXPECT_EQ(problem(spec), "spec.dependencies (their number) is 65: it must be 0 to 64");
  spec = good_spec();
  spec.node_selector = {"gpu"};
  EXPECT_THAT(problem(spec),
              testing::StartsWith("spec.node_selector is \"gpu\": it must be NAME="));
  spec.node_selector.assign(33, "a=b");
  EXPECT_THAT(problem(spec), testing::HasSubstr("is 33: it must be 0 to 32"));
  spec = good_spec();
  spec.tolerations = {"a!=b"};
  EXPECT_THAT(problem(spec), testing::StartsWith("spec.tolerations is \"a!=b\": it must be NAME="));
}

TEST(CheckSpec, JudgesSizes) {
  JobSpec spec = good_spec();
  spec.nodes = 4;
  spec.spares = 2;
  spec.segment_nodes = 5;
  EXPECT_EQ(problem(spec), "spec.segment_nodes is 5: it must be 0 to 4");
  spec.segment_nodes = 3;
  EXPECT_EQ(problem(spec), "spec.segment_nodes is 3: it must divide spec.nodes, 4");
  spec.segment_nodes = 2;
  EXPECT_EQ(problem(spec), "");
  spec.min_nodes = 1;
  EXPECT_THAT(problem(spec), testing::HasSubstr("spec.smaller has 0 sizes"));
  spec.smaller = {{3, "{}"}, {1, "{}"}};
  EXPECT_EQ(problem(spec), "");
  spec.smaller = {{3, "{}"}, {3, "{}"}};
  EXPECT_EQ(problem(spec), "spec.smaller.nodes is 3: it must be 1 to 2");
  spec.smaller = {{4, "{}"}};
  EXPECT_EQ(problem(spec), "spec.smaller.nodes is 4: it must be 1 to 3");
  spec.smaller = {{3, std::string(600'000, ' ')}, {2, std::string(600'000, ' ')}};
  EXPECT_THAT(problem(spec), testing::HasSubstr("its configs' bytes"));
  spec.smaller.clear();
  spec.command = {"train.py"};
  spec.working_directory = "/home/ada";
  EXPECT_EQ(problem(spec), "") << "a program can have any size";
  spec.min_nodes = 5;
  EXPECT_EQ(problem(spec), "spec.min_nodes is 5: it must be 0 to 4");
  spec = good_spec();
  spec.spares = -1;
  EXPECT_EQ(problem(spec), "spec.spares is -1: it must be 0 to 100000");
}

TEST(CheckSpec, JudgesPrograms) {
  JobSpec spec = good_spec();
  spec.command = {"python3", "train.py", "", "a\nb"};
  spec.working_directory = "/home/ada";
  EXPECT_EQ(problem(spec), "");
  // The variable is for the program's loader, not for the trainer.
  spec.environment["LD_LIBRARY_PATH"] = "/opt/lib";
  EXPECT_EQ(problem(spec), "");
  for (const std::string name : {"MASTER_PORT", "JAX_PROCESS_ID", "RANK"}) {
    JobSpec other = spec;
    other.environment[name] = "1";
    EXPECT_EQ(problem(other),
              "spec.environment sets " + name + ": the worker sets it for each rank");
  }
  spec.command[1] = std::string("a\0b", 3);
  EXPECT_THAT(problem(spec), testing::HasSubstr("spec.command[1] is \"a\\x00\\x62\""));
  spec.command = {""};
  EXPECT_EQ(problem(spec), "spec.command[0] is empty: it must name a program");
  spec.command = {"true"};
  spec.working_directory = "home";
  EXPECT_EQ(problem(spec), "spec.working_directory is \"home\": it must be an absolute path");
  spec.command.assign(kCommandWordsMax + 1, "x");
  EXPECT_THAT(problem(spec), testing::HasSubstr("spec.command has 8193 words"));
  spec.command = {std::string(kCommandBytesMax, 'x')};
  EXPECT_THAT(problem(spec), testing::HasSubstr("words of 524289 bytes"));
}

TEST(CheckSpec, JudgesPortsOfWorkers) {
  WorkerRegistered worker;
  worker.worker = WorkerName("n1");
  worker.slots = 1;
  worker.rendezvous_address = "h:1";
  const auto ports_problem = [&](PortRange ports) {
    worker.program_ports = ports;
    return std::string(check_registration(worker, InputLimits{}).message());
  };
  EXPECT_EQ(ports_problem({}), "");
  EXPECT_EQ(ports_problem({65'408, 128}), "");
  EXPECT_EQ(ports_problem({65'409, 128}), "program_ports.first is 65409: it must be 1 to 65408");
  EXPECT_EQ(ports_problem({0, 1}), "program_ports.first is 0: it must be 1 to 65535");
  EXPECT_EQ(ports_problem({1, -1}), "program_ports.count is -1: it must be 0 to 65535");
}

TEST(CheckSpec, RefusesControlCharactersWhereALineIsShown) {
  JobSpec spec = good_spec();
  spec.user = "ada\x1b[2J";
  EXPECT_EQ(
      problem(spec),
      "spec.user is \"ada\\x1b[2J\": it must be at most 128 bytes without control characters");
  spec = good_spec();
  spec.output_directory = "/out\x7f";
  EXPECT_THAT(problem(spec), testing::HasSubstr("spec.output_directory is \"/out\\x7f\""));
  EXPECT_FALSE(check_request_id("a\nb", InputLimits{}).ok());
  WorkerRegistered worker;
  worker.worker = WorkerName("n1");
  worker.host = "ho\tst";
  worker.slots = 1;
  worker.rendezvous_address = "h:1";
  EXPECT_THAT(std::string(check_registration(worker, InputLimits{}).message()),
              testing::HasSubstr("host is \"ho\\tst\""));
  spec = good_spec();
  spec.user = "ädä";
  spec.train_config_json = "{\n\t\"steps\": 5\n}\n";
  spec.environment["KEY"] = "first line\nsecond line\n";
  EXPECT_EQ(problem(spec), "");
}

TEST(CheckSpec, KeepsTheWorkersVariables) {
  JobSpec spec = good_spec();
  spec.environment["OMP_NUM_THREADS"].assign(1, '1');
  EXPECT_EQ(problem(spec), "");
  spec.environment["RANK"].assign(1, '3');
  EXPECT_EQ(problem(spec), "spec.environment sets RANK: the worker sets it for each rank");
  for (const char* name : {"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "GLIBC_TUNABLES"}) {
    spec = good_spec();
    spec.environment[name].assign(1, 'x');
    EXPECT_EQ(problem(spec),
              absl::StrCat("spec.environment sets ", name,
                           ": it would change what code the loader puts into the trainer; set it "
                           "for the worker"));
  }
  spec = good_spec();
  spec.environment["MUSTER_BIND_ADDRESS"].assign(1, 'x');
  EXPECT_EQ(problem(spec),
            "spec.environment sets MUSTER_BIND_ADDRESS: names that begin with MUSTER_ are between "
            "the worker and its ranks; use another name");
  for (const char* name : {"A B", "1A", "A=B", "A-B", ""}) {
    spec = good_spec();
    spec.environment[name].assign(1, 'x');
    EXPECT_EQ(problem(spec), absl::StrCat("spec.environment has the name \"", name,
                                          "\": a name is letters, digits and _, and does not begin "
                                          "with a digit; at most 128 bytes"));
  }
  spec = good_spec();
  for (int i = 0; i < 1025; ++i) spec.environment[absl::StrCat("K", i)] = "";
  EXPECT_THAT(problem(spec), testing::HasSubstr("1025 entries: at most 1024"));
}

TEST(OneLine, CutsAtACharacterAndDropsControls) {
  EXPECT_EQ(one_line("  a\tb\x1b[0m\n", 100), "a b [0m");
  EXPECT_EQ(one_line("aé", 2), "a");
  EXPECT_EQ(one_line("aé", 3), "aé");
}

}  // namespace
}  // namespace muster::coordinator
