"""The words that tidy.py refuses, each with the standard term, and the texts that stay as they are."""
import re

# A comment does not open with one of these: begin with a subject or a verb.
FREE_CLAUSE = re.compile(r"(Of|Who|Whom|Whose|What|Where|With)\b")
# Trailing comments seldom begin with a capital letter.
TRAILING_FREE_CLAUSE = re.compile(FREE_CLAUSE.pattern, re.I)

# Refused in comments, in texts of programs and on pages. People want and know, things require and
# detect: "you want to know" is allowed.
WORDS = [
    (re.compile(r"\bdesks?\b", re.I), "mailbox"),
    (re.compile(r"\b(told|tells?|hears?|heard|overhears?)\b", re.I), "things report, receive and observe"),
    (re.compile(r"\b(says?|said)\b(?!:)", re.I), "things state, contain, show or report"),
    (re.compile(r"\b(asks?|asked|asking)\b", re.I), "things request, require or query"),
    (re.compile(r"(?<!you )\bwant(s|ed)?\b", re.I), "things need, require or request"),
    (re.compile(r"(?<!want to )\b[Kk](now|nows|new)\b"), "things have, detect or support; or the reader's verb: check, find"),
    (re.compile(r"\b(nobody|anybody|somebody|whoever|whom)\b", re.I), "no rank, no process, no other; a rank that; that"),
    (re.compile(r"\b(look(s|ed|ing)?|look-ups?)\b", re.I), "sample, probe, check, search; lookup"),
    (re.compile(r"\banew\b", re.I), "again, or from the beginning"),
    (re.compile(r"\bstrays?\b", re.I), "orphan"),
    (re.compile(r"\bstow(s|ed|ing)?\b", re.I), "offload"),
    (re.compile(r"\b(makes?|making) way\b", re.I), "is preempted, or drains"),
    (re.compile(r"\bwho leaves?\b", re.I), "draining"),
    (re.compile(r"(?<!max-)\b(turns?|turned)\b", re.I), "transition, commit, allocation, slot or iteration; one after another; converts"),
    (re.compile(r"\b(go|goes|going|went|gone) on\b", re.I), "resumes, or continues"),
    (re.compile(r"\bwish(es|ed)?\b", re.I), "request, or requirement"),
    (re.compile(r"\bcircles?\b", re.I), "subgroup, or cycle"),
    (re.compile(r"(?<!-)\bdoubts?\b", re.I), "inconclusive hang"),
    (re.compile(r"\bown kernels?\b", re.I), "built-in kernels"),
    (re.compile(r"\b(own|matrix) products?\b", re.I), "built-in GEMMs; GEMM"),
]
# Refused in these folders alone: elsewhere the word is the field's own (the lanes of a warp or of a vector).
FOLDER_WORDS = {
    ("common/", "coordinator/", "worker/", "cli/", "progress/", "proto/", "trainer_core/comm/", "docs/"):
        [(re.compile(r"\blanes?\b", re.I), "stream or channel of a process group")],
}

# Identifiers that are refused, and the standard one for each.
NAMES = [
    (re.compile(r"\bWish(es)?\b"), "PlacementRequest"),
    (re.compile(r"\b[dD]esks?_?\b"), "mailbox"),
    (re.compile(r"\b([sS]tow(s|ed|ing)?|stow_\w+)_?\b"), "offload"),
    (re.compile(r"\bkNeighbours\b"), "kInterleaved"),
    (re.compile(r"\bDoubt\b"), "InconclusiveHang"),
    (re.compile(r"\bCircle\b"), "Subgroup"),
    (re.compile(r"\bReplica\b"), "RankModel"),
    (re.compile(r"\bNumbers\b"), "BufferView"),
    (re.compile(r"\b[sS]trays?_?\b"), "orphans"),
    (re.compile(r"\b(\w+_)?(told|hears?|heard|tells?|says?|said|asks?|asked|wants|nobody|anew)_?\b"),
     "a verb such as report, receive, request or notify"),
    (re.compile(r"\bgoes_on_?\b"), "continues"),
]
# Names of tests in C++ and Python.
TEST_NAME = re.compile(r"\b(?:TEST(?:_[FP])?\(\w+, *|def test_)(\w+)")
TEST_WORDS = re.compile(
    r"(Told|Tells?|Hears?|Heard|Says?|Said|Asks?|Asked|Wants?|Nobody|Whom|Whoever|Anew|GoesOn|WentOn|GoOn|Looks?|Looked|Knows?)(?=[A-Z]|$)"
    r"|(?:^|_)(told|tells?|hears?|heard|says?|said|asks?|asked|wants?|nobody|whom|anew|goes_on|looks?|looked|knows?)(?=_|$)")

# Texts that stay: users' commands, scripts and files contain them, or they are samples of natural language.
FROZEN = [
    (re.compile(r"--max-turns|slurm_turns|`turns`"), "an option of muster slurm, and the file and key of its record"),
    (re.compile(r"--hang-doubt(-program)?-seconds"), "options of the coordinator"),
    (re.compile(r"says: a sentence|^\s+says: "), "a key of model presets"),
    (re.compile(r"\btold: after\b|[|\[ ]told\]"), "a keyword of scenarios"),
    (re.compile(r"And God said"), "a sample of natural language: the training text of the examples"),
    (re.compile(r"a stray .{1,12} byte"), "a sample of natural language: the text of a test"),
    (re.compile(r"It's the worker's turn; they'll say|they've\s+said"), "a sample of natural language: the golden files contain its tokens"),
]
# Pages and data that record what was written at the time.
HISTORY = ("CHANGELOG.md", "bench/results/")
