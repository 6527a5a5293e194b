"""Finds names of functions, types and files that differ by the order or the number of their words
alone, such as run_backward and backward_run: a reader takes one for the other."""
import collections
import itertools
import pathlib
import re

COMMENTS_AND_STRINGS = re.compile(r'//[^\n]*|/\*.*?\*/|R"(?P<tag>\w*)\((?:.|\n)*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
# Statements end at these. Directives end the statement before them, too.
END = re.compile(r"[{};]|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*|\b(?:public|private|protected):", re.M)
SCOPE = re.compile(r"(inline\s+)?namespace\b|extern\s*$")
TEMPLATE = re.compile(r"^template\s*<[^{;]*?>\s*(?=[\w\[])")
TYPE = re.compile(r"^(?:class|struct|union|enum(?:\s+class)?)\s+(?:\[\[\w+\]\]\s*)?(?:alignas\([^)]*\)\s*)?(\w+)\b(?!\s*[*&(])")
ALIAS = re.compile(r"^using\s+(\w+)\s*=")
FUNCTION = re.compile(r"(?<![\w.>])(?:\w+::)*([a-z]\w*[a-z0-9])\s*\(")
NOT_A_FUNCTION = {"alignas", "alignof", "asm", "catch", "decltype", "defined", "explicit", "for", "if", "main", "noexcept", "operator", "requires",
                  "return", "sizeof", "static_assert", "switch", "while"}
# columns_of and column_of, tensors_at and tensor_at: an element and a list of them.
ACCESSOR_WORDS = {"of", "in", "at", "to", "from", "on"}
# Pairs that stay: words of one name, and the reason.
ALLOWED = {
    ("float", "of", "u64"): "the inverse conversion",
    ("float", "of", "word"): "the inverse conversion",
    ("latin1", "to", "utf8"): "the inverse conversion",
}

Declaration = collections.namedtuple("Declaration", "kind name path line")


def split_words(name):
    spaced = re.sub(r"([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])", r"\1\3_\2\4", name)
    return [word for word in spaced.lower().split("_") if word]


def singular(word):
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 2:
        return word[:-1]
    return word


def declared(statement):
    """Yields (kind, name) of a statement outside functions, up to its `{` or `;`."""
    statement = TEMPLATE.sub("", statement)
    if found := TYPE.match(statement) or ALIAS.match(statement):
        yield "type", found.group(1)
    elif (found := FUNCTION.search(statement)) and found.start() > 0 and found.group(1) not in NOT_A_FUNCTION and "=" not in statement[:found.start()]:
        yield "function", found.group(1)


def declarations(path, text):
    """Yields the types and functions that a file declares outside function bodies."""
    text = COMMENTS_AND_STRINGS.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)
    scopes, start = [], 0  # scopes: whether each open brace is that of a namespace or a type
    for match in END.finditer(text):
        token, head = match.group(0), text[start:match.start()]
        if token == "}" and scopes:
            scopes.pop()
        elif token in "{;" and all(scopes):
            statement = head.strip()
            line = text.count("\n", 0, start + len(head) - len(head.lstrip())) + 1
            found = [Declaration(kind, name, path, line) for kind, name in declared(statement)]
            is_forward = token == ";" and not ALIAS.match(statement)
            yield from (one for one in found if not (one.kind == "type" and is_forward))
            is_type = any(one.kind == "type" for one in found) and not statement.startswith("enum")
            scopes += [is_type or bool(SCOPE.match(statement))] if token == "{" else []
        elif token == "{":
            scopes.append(False)
        start = match.end()


def files_declared(paths):
    """Returns the names of the files, each once for a header and its source."""
    return [Declaration("file", pathlib.PurePosixPath(path).stem, path, 1) for path in paths]


def problem(a, b, mentions):
    """Returns why two names with the same words are too similar, or None. `mentions(path, name)`:
    whether the file at `path` contains the name."""
    words = [split_words(a.name), split_words(b.name)]
    in_order = [list(map(singular, names)) for names in words]
    folders = [str(pathlib.PurePosixPath(one.path).parent) for one in (a, b)]
    if in_order[0] != in_order[1]:
        is_apart = a.kind == "file" and folders[0].split("/")[0] != folders[1].split("/")[0]
        return None if is_apart else "the order of its words"
    if a.kind != "file" and len(words[0]) == 1:
        return None
    if a.kind == "function":
        if words[0][1:] == words[1][1:]:
            return None if words[0][1] in ACCESSOR_WORDS else "the number of its first word"
    elif a.kind == "type":
        # A container, and its element.
        plural, element = (a, b) if len(a.name) > len(b.name) else (b, a)
        if mentions(plural.path, element.name):
            return None
    return "the number of a word" if folders[0] == folders[1] else None


def similar_names(sources):
    """Yields (path, line, message) for each pair of names of `sources`, which maps paths to texts,
    that is too similar."""
    groups = collections.defaultdict(dict)
    for one in itertools.chain(files_declared(sources), *(declarations(path, text) for path, text in sources.items())):
        key = tuple(sorted(map(singular, split_words(one.name))))
        groups[one.kind, key].setdefault((one.name, str(pathlib.PurePosixPath(one.path).parent)), one)

    def mentions(path, name):
        return re.search(rf"\b{name}\b", sources[path]) is not None

    reported = set()
    for (_, key), names in groups.items():
        for a, b in itertools.combinations(names.values(), 2):
            if a.name != b.name and key not in ALLOWED and (a.name, b.name) not in reported and (why := problem(a, b, mentions)):
                reported.add((a.name, b.name))
                yield b.path, b.line, f'the {b.kind} name "{b.name}" differs from "{a.name}" ({a.path}) by {why} alone: add a word that states the difference'
