#!/usr/bin/env python3
"""Makes the golden files of chat templates with Python's jinja2, in the environment that
transformers makes for a template.

    python3 -m venv build/golden && build/golden/bin/pip install -r tests/golden/requirements.txt
    build/golden/bin/python tests/golden/make_chat.py               # writes beside itself

chat/*.jinja are templates like those of the ten most used families. chat/cases.jsonl has each of
them with conversations, chat/generated.jsonl templates that are drawn at random. The first line has
the variables, each other one a template and the result: `text` and the spans of `generation` blocks
in characters, or `error`.
"""
import json
import pathlib
import random
import re

from transformers.utils.chat_template_utils import _compile_jinja_template, _render_with_assistant_indices

HERE = pathlib.Path(__file__).resolve().parent / "chat"
SEED = 20_250_101
GENERATED = 1500
TEXT_MAX = 2000

USER, BOT = {"role": "user", "content": " What is 2 + 2? "}, {"role": "assistant", "content": "It is 4.\n"}
SYSTEM = {"role": "system", "content": "Be brief. Ünïcode “quotes” & <tags>"}
MORE = [{"role": "user", "content": "And 3 × 3?\nPlease."}, {"role": "assistant", "content": "<think>3 × 3</think>\n\n9"}]
TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "Returns the weather of a city.",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "The city's name"}, "days": {"type": "integer"},
        "units": {"type": ["string", "number"]}, "tags": {"type": "array", "items": {"type": "string"}},
        "extra": {"type": "object", "additionalProperties": {"type": "boolean"}}}}}}
CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "abcdef123", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2, "p": 0.5}}}]}
ANSWER = {"role": "tool", "name": "get_weather", "tool_call_id": "abcdef123", "content": "{\"sky\": \"clear\"}"}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
CONVERSATIONS = [
    [USER], [USER, BOT], [SYSTEM, USER], [SYSTEM, USER, BOT, *MORE], [USER, BOT, *MORE], [USER, USER], [BOT], [USER, BOT, SYSTEM],
    [SYSTEM, USER, CALL, ANSWER, {"role": "assistant", "content": "Clear."}], [USER, CALL, ANSWER, ANSWER], [USER, CALL, ANSWER, BOT, *MORE],
]


def rendered(source, variables):
    """Returns the result of a template, and the spans of its generation blocks."""
    template = _compile_jinja_template(source)
    text, spans = _render_with_assistant_indices(compiled_template=template, **variables) if "messages" in variables else (
        template.render(**variables), [])
    return {"text": text, "generated": [list(span) for span in spans]}


def result(source, variables):
    try:
        return rendered(source, variables)
    except Exception as error:  # any error of the template
        return {"error": f"{type(error).__name__}: {error}"[:120]}


def conversation_cases():
    for path in sorted(HERE.glob("*.jinja")):
        source = path.read_text()
        for number, conversation in enumerate(CONVERSATIONS):
            for tools in (None, [TOOL, TOOL]):
                for prompt in (False, True):
                    variables = {"messages": conversation, "tools": tools, "documents": None, "add_generation_prompt": prompt, **SPECIAL}
                    yield {"file": path.name, "conversation": number, "with_tools": tools is not None, "add_generation_prompt": prompt,
                           **result(source, variables)}


VARIABLES = {"s": " a Bc-d\n", "w": "héllo wörld", "e": "", "n": 3, "z": 0, "neg": -7, "f": 2.5, "t": True, "none_": None,
             "l": [3, 1, 2], "words": ["b", "A", "c", "b"], "d": {"k": "v", "x": 1, "items": 2}, "empty": [],
             "rows": [{"role": "user", "content": "hi", "n": 1}, {"role": "bot", "content": "yo \"q\"", "n": 2}, {"role": "user", "content": ""}]}
TEXTS = ["s", "w", "e", "'lit'", "\"a\\nb\"", "d.k", "rows[0].role", "rows[1]['content']", "words[-1]", "missing", "none_", "s[1:4]", "w[::-1]", "w[-3:]"]
NUMBERS = ["n", "z", "neg", "f", "7", "2", "0.1", "l[0]", "l|length", "words|count", "t", "rows[0].n", "1e20", "100000000000000000"]
LISTS = ["l", "words", "empty", "rows", "[1, 's', none]", "(1, 2)", "d", "range(4)|list", "words[1:]", "rows|map(attribute='role')|list", "s", "missing", "none_"]
TEXT_FILTERS = ["trim", "upper", "lower", "title", "capitalize", "length", "replace('a', 'xy')", "string", "default('D')", "default('D', true)", "tojson",
                "first", "last", "wordcount", "int", "float", "trim('a ')", "indent(2)", "list", "join('.')", "unique|list|length"]
METHODS = ["strip()", "lstrip()", "rstrip('\\n')", "upper()", "title()", "split()", "split('l')", "split('l', 1)", "startswith('h')", "endswith(('d', 'x'))",
           "replace('l', 'L')", "find('o')", "count('l')", "splitlines()", "capitalize()", "isalpha()", "join(words)", "rsplit('o', 1)", "islower()"]
LIST_FILTERS = ["length", "first", "last", "join(', ')", "sort", "sort(reverse=true)", "reverse|list", "list", "tojson", "max", "min", "sum", "unique|list", "string",
                "map('string')|join", "select('odd')|list", "reject('none')|list", "map('upper')|list", "selectattr('role', 'equalto', 'user')|list",
                "rejectattr('n')|list", "map(attribute='content', default='-')|join('|')", "tojson(indent=1)", "sort(attribute='role')|tojson", "items|list", "dictsort"]
TESTS = ["defined", "undefined", "none", "string", "number", "mapping", "iterable", "sequence", "true", "false", "boolean", "integer", "float", "odd", "even",
         "eq(3)", "in([3, 'v'])", "divisibleby 3", "lower", "not defined", "not none", "callable", "sameas(none)"]
OPERATORS = ["+", "-", "*", "/", "//", "**", "~", "==", "!=", "<", ">", "<=", ">=", "and", "or", "in", "not in"]


OMITTED = [" object", " at 0x", "<function", "<bound", "dict_", "<namespace", "undefined)", "'n' is undefined", "'w' is undefined", "unhashable"]


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, values):
        return self.random.choice(values)

    def atom(self):
        return self.pick(self.pick([TEXTS, NUMBERS, LISTS]))

    def expression(self, depth):
        kind = self.random.randrange(12) if depth > 0 else 0
        if kind <= 1:
            return self.atom()
        if kind == 2:
            return f"{self.pick(TEXTS)}|{self.pick(TEXT_FILTERS)}"
        if kind == 3:
            return f"{self.pick(['s', 'w', 'd.k', 'e'])}.{self.pick(METHODS)}"
        if kind == 4:
            return f"{self.pick(LISTS)}|{self.pick(LIST_FILTERS)}"
        if kind == 5:
            return f"({self.atom()} is {self.pick(TESTS)})"
        if kind == 6:
            return f"({self.expression(depth - 1)} if {self.expression(depth - 1)} else {self.expression(depth - 1)})"
        if kind == 7:
            return f"not {self.expression(depth - 1)}"
        if kind == 8:
            return self.pick([f"-{self.pick(NUMBERS)}", f"{self.pick(NUMBERS)} % {self.pick(NUMBERS)}"])
        if kind == 9:
            return f"[{self.expression(depth - 1)}, {self.expression(depth - 1)}]"
        if kind == 10:
            return f"{{'a': {self.expression(depth - 1)}, 'b': {self.atom()}}}"
        return f"{self.expression(depth - 1)} {self.pick(OPERATORS)} {self.expression(depth - 1)}"

    def tag(self, body):
        return f"{{%{self.pick(['', '', '', '-', '+'])} {body} {self.pick(['', '', '', '-', '+'])}%}}"

    def data(self):
        return self.pick(["", "x", " ", "\n", "  \n", "\n  ", " y \n\n z", "\t", "{ % }", "é\r\n", "{# c #}", "{#- c -#}\n", "  {# c #}\n", "{% raw %}{{ r }}{% endraw %}\n"])

    def block(self, depth):
        inner = self.statements(depth - 1)
        kind = self.random.randrange(9)
        if kind == 0:
            other = f"{self.tag('elif ' + self.expression(1))}{self.statements(depth - 1)}" if self.random.random() < 0.4 else ""
            return f"{self.tag('if ' + self.expression(2))}{inner}{other}{self.tag('else')}{self.data()}{self.tag('endif')}"
        if kind == 1:
            value = self.pick(["loop.index", "loop.index0", "loop.first", "loop.last", "loop.revindex", "loop.length", "i", "loop.previtem", "loop.cycle('a', 'b')", "loop.depth"])
            condition = f" if i is {self.pick(TESTS)}" if self.random.random() < 0.3 else ""
            leave = self.tag("if loop.index == 2") + self.tag(self.pick(["break", "continue"])) + self.tag("endif") if self.random.random() < 0.3 else ""
            return (f"{self.tag('for i in ' + self.pick(LISTS) + condition)}{inner}{leave}{{{{ {value} }}}}"
                    f"{self.tag('else') + 'none' if self.random.random() < 0.3 else ''}{self.tag('endfor')}")
        if kind == 2:
            return f"{self.tag('for k, v in ' + self.pick(['d.items()', 'd|items', 'd|dictsort', 'words', 'l']))}{{{{ k }}}}={{{{- v }}}}{self.tag('endfor')}"
        if kind == 3:
            return f"{self.tag('set n = ' + self.expression(2))}{inner}{{{{ n }}}}"
        if kind == 4:
            return f"{self.tag('set w' + self.pick(['', ' | upper', ' | trim | length']))}{inner}{self.tag('endset')}[{{{{ w }}}}]"
        if kind == 5:
            return (f"{self.tag('set ns = namespace(c=0)')}{self.tag('for i in ' + self.pick(LISTS))}{self.tag('set ns.c = ns.c + 1')}{self.tag('set n = n + 1')}"
                    f"{self.tag('endfor')}{{{{ ns.c }}}},{{{{ n }}}}")
        if kind == 6:
            return (f"{self.tag('macro m(a, b=' + self.atom() + ')')}{inner}<{{{{ a }}}}|{{{{ b }}}}>{self.tag('endmacro')}{{{{ m({self.expression(1)}) }}}}"
                    f"{{{{- m(b={self.atom()}, a=n) }}}}")
        if kind == 7:
            return f"{self.tag('filter ' + self.pick(['upper', 'trim', 'replace(' + chr(39) + 'a' + chr(39) + ', 1)']))}{inner}{self.tag('endfilter')}"
        return f"{self.tag('with n = ' + self.atom() + ', q = n')}{inner}{{{{ q }}}}{self.tag('endwith')}"

    def statements(self, depth):
        parts = []
        for _ in range(self.random.randrange(1, 4)):
            parts.append(self.data())
            if depth > 0 and self.random.random() < 0.4:
                parts.append(self.block(depth))
            else:
                parts.append(f"{{{{{self.pick(['', '-', '+'])} {self.expression(2)} {self.pick(['', '-'])}}}}}")
        return "".join(parts) + self.data()


def is_comparable(case):
    """Omits results that are not values of a template, such as generators, and errors of jinja2's
    own: names that a block reads before the template sets them, and dicts as keys.
    """
    text = (case.get("text", "") + case.get("error", "")).lower()
    return not any(part in text for part in OMITTED) and len(text) <= TEXT_MAX


def generated_cases():
    made = 0
    for seed in range(SEED, SEED + 10 * GENERATED):
        source = Generator(seed).statements(2)
        # A random chain of powers may take minutes.
        # In jinja2 the text of a set block cannot read the earlier value of a variable that the
        # template sets.
        if "set w" in source and "set n" in source:
            continue
        if "set w" in source and re.search(r"\bw\b", source.replace("set w", "").replace("[{{ w }}]", "")):
            continue
        if source.count("**") > 1 or "ns.c" in source and "macro" in source or len(source) > 600:
            continue
        case = {"source": source, **result(source, VARIABLES)}
        if not is_comparable(case):
            continue
        yield case
        made += 1
        if made == GENERATED:
            return


def write(name, header, cases):
    with open(HERE / name, "w", encoding="utf-8") as file:
        for line in (*header, *cases):
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write("cases.jsonl", ({"conversations": CONVERSATIONS, "tools": [TOOL, TOOL], "special": SPECIAL},), conversation_cases())
    write("generated.jsonl", ({"variables": VARIABLES},), generated_cases())
