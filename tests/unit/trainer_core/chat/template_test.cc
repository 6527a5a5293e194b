// Errors and limits of templates.
#include "trainer_core/chat/template.h"

#include <string>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace muster::trainer::chat {
namespace {

using nlohmann::ordered_json;

// Returns the error of parsing or rendering a template.
std::string error_of(const std::string& source,
                     const ordered_json& variables = ordered_json::object(),
                     const RenderOptions& options = {}) {
  const auto parsed = Template::parse(source);
  if (!parsed.ok()) return std::string(parsed.status().message());
  const auto rendered = parsed->render(variables, options);
  return rendered.ok() ? "no error: " + rendered->text : std::string(rendered.status().message());
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(TemplateTest, ErrorsNameTheLine) {
  const std::pair<const char*, const char*> kCases[] = {
      {"a\n{% for m in messages %}\n", "line 2: \"for\" is not closed by \"else\" or \"endfor\""},
      {"a\n{% endfor %}", "line 2: \"endfor\" closes nothing"},
      {"{% if a %}\n{% endfor %}",
       "line 2: \"endfor\" where \"if\" needs \"elif\" or \"else\" or \"endif\""},
      {"\n\n{{ a", "line 3: a tag is not closed by \"}}\""},
      {"{# c\n", "line 1: a comment is not closed by \"#}\""},
      {"{{ 'a }}", "line 1: a string is not closed"},
      {"{{\n a b }}", "line 2: expected \"}}\" instead of \"b\""},
      {"{{ a.}}", "line 1: expected a name instead of \"}}\""},
      {"{% include 'x' %}", "line 1: the statement \"include\" is not supported"},
      {"\n{{ 1 + 'a' }}", "line 2: there is no int + str"},
      {"\n{{ missing.x }}", "line 2: \"missing\" is undefined"},
      {"{{ none.x.y }}", "line 1: \"x\" is undefined"},
      {"\n\n{{ raise_exception('Roles must\nalternate') }}",
       "line 3: the template refuses the conversation: Roles must\\x0aalternate"},
      {"{{ 'a' | colour }}", "line 1: there is no filter \"colour\""},
      {"{{ 1 is prime }}", "line 1: there is no test \"prime\""},
      {"{{ [].append(1) }}", "line 1: a template cannot change a list by append()"},
      {"{{ 9223372036854775807 + 1 }}",
       "line 1: the result of an operation on integers exceeds 64 bits"},
      {"{{ strftime_now('%Y') }}", "line 1: \"strftime_now\" is undefined"},
      {"{% break %}", "line 1: \"break\" is outside of a loop"},
      {"{{ ( }}", "line 1: unexpected \"}\""},
      {"{{ ) }}", "line 1: unexpected \")\""},
      {"{{ a ? b }}", "line 1: unexpected character ?"},
  };
  for (const auto& [source, message] : kCases)
    EXPECT_TRUE(absl::StartsWith(error_of(source), message)) << source << ": " << error_of(source);
}

TEST(TemplateTest, HostileTemplatesEndAtALimit) {
  RenderOptions options;
  options.work_max = 1'000'000;
  options.output_bytes_max = 100'000;
  const std::pair<std::string, const char*> kCases[] = {
      {"{% for i in range(1000000000000) %}{% endfor %}", "a range has more than 100000 items"},
      {"{{ range(-9223372036854775807, 9223372036854775807) }}", "a range has more than"},
      {"{% for i in range(999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
       "units of work"},
      {"{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% "
       "endfor %}",
       "units of work"},
      {"{{ 'a' * 1000000000000 }}", "units of work"},
      {"{{ [1] * 1000000000000 }}", "units of work"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested deeper than"},
      {"{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}",
       "nested deeper than 100 levels"},
      {"{% set s = 'a' * 60000 %}{{ s }}{{ s }}", "the output exceeds 100000 bytes"},
      {"{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}", "nested deeper than"},
      {"{{ " + std::string(5000, '[') + std::string(5000, ']') + " }}", "nested deeper than"},
      {"{{ " + std::string(50000, '-') + "1 }}", "nested deeper than"},
      // Lists that share their items.
      {"{% set ns = namespace(v=[1]) %}{% for i in range(60) %}{% set ns.v = [ns.v, ns.v] %}{% "
       "endfor %}{{ ns.v }}",
       "a list or dict has more than"},
      {"{% set ns = namespace(v={'a': 1}) %}{% for i in range(60) %}{% set ns.v = {'a': ns.v, "
       "'b': ns.v} %}{% endfor %}{{ ns.v | tojson }}",
       "a list or dict has more than"},
      {"{% set ns = namespace(v=[1], w=[1]) %}{% for i in range(20) %}{% set ns.v = [ns.v, ns.v] "
       "%}{% set ns.w = [ns.w, ns.w] %}{% endfor %}{{ ns.v == ns.w }}",
       "units of work"},
      {"{% set ns = namespace(v=[1]) %}{% for i in range(18) %}{% set ns.v = [ns.v, ns.v] %}{% "
       "endfor %}{% for i in range(99) %}{% set x = ns.v ~ '' %}{% endfor %}",
       "units of work"},
      {"{{ (['a' * 10000] * 5000) | join }}", "units of work"},
      {"{{ ''.join(['a' * 10000] * 5000) }}", "units of work"},
      {"{% set s = 'a' * 10000 %}{{ s" + repeated(" ~ s", 1000) + " }}", "units of work"},
      {"{{ 1" + repeated(" or 1", 50'000) + " }}", "nested deeper than"},
      {"{{ 1" + repeated(" if 1", 50'000) + " }}", "nested deeper than"},
      {"{% filter upper" + repeated(" | lower", 50'000) + " %}a{% endfilter %}", "no error: a"},
      {std::string(9000, ' ') + "{{ not" + std::string(50000, ' ') + "x}}", "no error"},
  };
  for (const auto& [source, message] : kCases)
    EXPECT_TRUE(absl::StrContains(error_of(source, ordered_json::object(), options), message))
        << source.substr(0, 100) << ": " << error_of(source, ordered_json::object(), options);
  EXPECT_TRUE(
      absl::StrContains(error_of("{{ 'a' | map('map'" + repeated(", 'map'", 5000) + ") | list }}"),
                        "nested deeper than"));
  EXPECT_TRUE(
      absl::StrContains(error_of("{{ 1" + repeated(" + 1", 50'000) + " }}"), "nested deeper than"));
  EXPECT_TRUE(absl::StrContains(
      error_of("{% if a %}" + repeated("{% elif a %}", 5'000) + "{% endif %}"), "branches"));
  EXPECT_EQ(error_of("a\xFF"), "the template is not valid UTF-8");
}

TEST(TemplateTest, ErrorsOfVariablesNameNoLine) {
  EXPECT_EQ(error_of("a", {{"a", 18'446'744'073'709'551'615ULL}}),
            "the variables: the integer 18446744073709551615 is too large; the largest is 2^63 - "
            "1");
  RenderOptions options;
  options.required = {"bos_token"};
  EXPECT_EQ(error_of("a\n{{ bos_token }}", ordered_json::object(), options),
            "line 2: \"bos_token\" is undefined");
  EXPECT_EQ(error_of("{{ bos_token is defined }}{{ other }}", ordered_json::object(), options),
            "no error: False");
}

// The expected texts are those of jinja2 3.1.6.
TEST(TemplateTest, RendersAsJinja2) {
  const std::pair<const char*, const char*> kCases[] = {
      {"{{ 42 | round }} {{ true | round }} {{ 42 | round(1, 'floor') }}", "42 1 42.0"},
      {"{{ 1.5 | round }} {{ 2.5 | round }} {{ -0.5 | round }}", "2.0 2.0 -0.0"},
      {"{{ 2.675 | round(2) }} {{ 0.285 | round(2) }} {{ 5.015 | round(2) }}", "2.67 0.28 5.01"},
      {"{% for a in [1] %}{% for b in [1] %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}{% endfor "
       "%}",
       "10"},
      {"x\n\u00a0{% if true %}y{% endif %}", "x\ny"},
      {"{% set ns = namespace() %}{% set ns.x | upper %}abc{% endset %}{{ ns.x }}", "ABC"},
      {"{% set ns = namespace() %}{% set ns.x, y = 1, 2 %}{{ ns.x }}{{ y }}", "12"},
      {"{{ {'append': 1}.append }}{{ {'extend': 3}.extend }}", "13"},
      {"{{ [3, 1, 2] | select('>', 1) | list }}{{ [3, 1] | select('!=', 1) | list }}", "[3, 2][3]"},
      {"{{ '\x7f' | tojson }}{{ '\x7f' | tojson(ensure_ascii=true) }}", "\"\x7f\"\"\\u007f\""},
  };
  for (const auto& [source, text] : kCases)
    EXPECT_EQ(error_of(source), absl::StrCat("no error: ", text)) << source;
}

TEST(TemplateTest, TheTimeIsThatOfTheCaller) {
  setenv("TZ", "UTC", 1);
  tzset();
  RenderOptions options;
  options.now = 1'700'000'000;
  EXPECT_EQ(error_of("{{ strftime_now('%d %b %Y') }}", ordered_json::object(), options),
            "no error: 14 Nov 2023");
  EXPECT_EQ(error_of("{{ strftime_now is defined }}"), "no error: False");
}

}  // namespace
}  // namespace muster::trainer::chat
