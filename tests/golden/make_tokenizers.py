#!/usr/bin/env python3
"""Makes tests/golden/tokenizers: small byte-level BPE tokenizers, and the tokens of hard texts by
Hugging Face's `tokenizers` and OpenAI's `tiktoken`.

Usage: tests/golden/make_tokenizers.py        versions in requirements.txt; the result is committed,
tests need no Python
"""
import base64
import json
import pathlib
import random
import unicodedata

import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "tokenizers"
MERGES = 500

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = (r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"""
          r"""\s*[\r\n]+|\s+(?!\S)|\s+""")
CL100K = (r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|"""
          r"""\s*[\r\n]|\s+(?!\S)|\s""")
R50K = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
QWEN = (r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"""
        r"""\s*[\r\n]+|\s+(?!\S)|\s+""")

# The training text of the merges: several scripts, code, numbers.
LEARNT = [
    "The ranks of a mesh meet in a collective, and the slowest of them sets the pace of the step. " * 3,
    "It's the worker's turn; they'll say what they've seen, and we'd better listen. I'm sure you're right. ",
    "for (size_t i = 0; i < count; ++i) {\n    total += values[i];\n}\nreturn total;\n",
    "def step(self, state):\n        if state is None:\n            return 1000000\n        return state + 1\n",
    "Die Größe des Übergangs überraschte die Prüfer; naïve Fälle blieben außen vor. ",
    "Привет, мир! Как дела у нас сегодня? Всё хорошо. ", "世界你好。今天天气很好,我们去公园吧。", "こんにちは世界。",
    "안녕하세요 세계", "مرحبا بالعالم", "नमस्ते दुनिया", "🌍🌎🌏 👩‍👩‍👧‍👦 🏳️‍🌈 ", "    " * 8, "\n\n\n\n", "1234567890 2024-06-30 3.14159 ",
]

# Texts that encoders often get wrong: all kinds of whitespace, contractions in capitals and beside
# unusual letters, marks that are not letters, numbers that are not digits, characters outside of
# the first plane, control characters, long words.
HARD = [
    "", " ", "  ", "\n", "a", " a", "a ", "  a  b   c", "\t\ttabs\tand  blanks \n \n\n next", "end of line\r\nnext\r\n\r\nlast\r",
    "It's IT'S it'S we'll WE'LL 'sup o'clock 'tis he'd've I'M you'rE ''s '", "don\u2019t use \u2018these\u2019", "'\u017f long s 'l\u017f \u212aelvin's",
    "1 12 123 1234 12345 123456789012345 3.14 1,000,000 0x1F 1e-5", "\u00bd \u00b2 \u2163 \u0665\u0666 \u096a\u096b \u3007 \u2460x\u2460 \U0001d7d8\U0001d7d9",
    "e\u0301 versus \u00e9, n\u0303o, \u1100\u1161\u11a8", "नमस्ते दुनिया", "ภาษาไทยไม่มีช่องว่าง", "مرحبا بالعالم ١٢٣", "שלום עולם",
    "世界你好。今天天气很好,我们去公园吧。12月25日", "こんにちは世界。カタカナ", "안녕하세요 세계", "Привет, мир! Ёлка", "ΑΣ ας ΐ ſt ﬁ ß ẞ",
    "🌍🌎🌏 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 👍🏽 ☺️", "a\u200bb\u200cc\u200dd\ufeffe\u2060f", "nbsp\u00a0thin\u2009em\u2003ideo\u3000ls\u2028ps\u2029nel\u0085ogham\u1680mvs\u180ex",
    "\x00\x01\x1b\x1c\x1d\x1f\x7f", "!!!???...,,, ;;; -- --- ___ ### $$$ ((())) [[]] {{}}", "http://example.com/a?b=c&d=e#f user@example.com /usr/lib/x_y.so.1",
    "for (size_t i = 0; i < count; ++i) {\n    total += values[i];\n}\n\treturn total;\n", "def f(x):\n        return x + 1\n\n\n# done\n",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" * 3, " " * 80 + "x", "=" * 70,
    "thethethethethethethethethethethethethethethethethethethethe", "\u0130stanbul \u0131 I i", "𝒜𝓁𝓅𝒽𝒶 𐍈 𠜎𠜱 \U0010fffd",
    "Größe des Übergangs, naïve Fälle", "<|endoftext|>", "a<|begin_of_text|>b <|end_of_text|>", "<|end_of_text|><|end_of_text|> <|end_of", "x <tool> y<tool>z <tools>",
    "mixed: the 世界 of 42 ranks' \u00bd-step\u2014or so\u2026 they've\nsaid", "\ufffd\ufffd broken", "\u0301\u0302 marks first", "tab\u000bvt\u000cff",
    # Texts that a normal form changes: marks in another order, several marks, letters whose sign
    # is another character, compositions that are excluded, added tokens in two forms.
    "Gro\u0308\u00dfe des U\u0308bergangs, nai\u0308ve Fa\u0308lle", "q\u0307\u0323 q\u0323\u0307 \u1e0b\u0323 d\u0307\u0323 a\u0328\u0301x\u0328",
    "\u212b \u2126 \u1e9b\u0323 \u0344 \u0958 \u0915\u093c \ufb1f \u2adc \U0001d15e", "\u1112\u1161\u11ab\u1100\u1173\u11af \uac00\u11a8 \u1100\uac00",
    "\uf900\uf9ff\U0002f800\u9f9c \u3099\u304b\u3099\u30cf\u309a", "e\u0301" * 40, "\u0301", "a\u0301 \u0301b\u00e9\u0301\u0302", "\u09c7\u09be \u0b47\u0b57 \u1025\u102e",
    "\ufb01 \u2460 \uff21\uff22 \u00bd \u338f \u3000 \u2026 \ufdfa", "<cafe\u0301> <caf\u00e9> <cafe\u0301", "<fix> <\ufb01x>a<f\u0131x>", "<|end_of_text|>\u0301x e<|end_of_text|>\u0301",
]


def random_characters(seed, length):
    """Returns characters from all of Unicode 14: the tables of some libraries lack newer ones."""
    draw = random.Random(seed)
    pools = [(0x20, 0x7e), (0x20, 0x20), (0x9, 0xd), (0xa0, 0x24f), (0x370, 0x3ff), (0x400, 0x4ff), (0x590, 0x6ff), (0x900, 0x97f),
             (0x1e00, 0x1eff), (0x2000, 0x206f), (0x2070, 0x218f), (0x3000, 0x30ff), (0x4e00, 0x4fff), (0xac00, 0xacff), (0x1f300, 0x1f64f)]
    text = ""
    while len(text) < length:
        low, high = draw.choice(pools)
        char = chr(draw.randint(low, high))
        if unicodedata.category(char) not in ("Cn", "Cs"):
            text += char
    return text


def train(pre_tokenizer, specials, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(LEARNT, trainers.BpeTrainer(
        vocab_size=256 + MERGES, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.add_special_tokens(specials)
    return tokenizer


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False)


def byte_level(**options):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, **options)


def hugging_face():
    gpt2 = train(byte_level(use_regex=True), ["<|endoftext|>"])
    llama3 = train(pre_tokenizers.Sequence([split(LLAMA3), byte_level(use_regex=False)]),
                   ["<|begin_of_text|>", "<|end_of_text|>"], ignore_merges=True)
    llama3.add_tokens(["<tool>", "<tools>"])
    # Several splits in sequence, and a leading blank.
    chain = train(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), split(r"[\u4e00-\u9fff]+|\s{2,}"),
                                           byte_level(use_regex=True)]), ["</s>"])
    prefix = train(pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True), ["<|endoftext|>"])
    # Qwen's: text in the form NFC. One added token is matched in the normalized text, which its
    # content is brought to, one in the original text.
    qwen = train(pre_tokenizers.Sequence([split(QWEN), byte_level(use_regex=False)]), ["<|endoftext|>"])
    qwen.normalizer = normalizers.NFC()
    qwen.add_tokens([AddedToken("<cafe\u0301>", normalized=True), AddedToken("\u1e9b\u0323", normalized=False)])
    # Two forms in sequence.
    forms = train(pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True), ["<|end_of_text|>"])
    forms.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.NFD()])
    forms.add_tokens([AddedToken("<\ufb01x>", normalized=True)])
    return {"qwen": qwen, "forms": forms, "gpt2": gpt2, "llama3": llama3, "chain": chain, "prefix": prefix}


def alphabet():
    """GPT-2's characters for bytes, from the library's own list."""
    shown = [b for b in range(256) if 0x21 <= b <= 0x7e or 0xa1 <= b <= 0xac or b >= 0xae]
    table = {chr(b): b for b in shown}
    table.update({chr(256 + n): b for n, b in enumerate(b for b in range(256) if b not in shown)})
    assert sorted(table) == sorted(pre_tokenizers.ByteLevel.alphabet())
    return table


def ranks_of(tokenizer):
    """Returns the vocabulary: the bytes in GPT-2's order, then the result of each merge."""
    table = alphabet()
    shown = [b for b in range(256) if 0x21 <= b <= 0x7e or 0xa1 <= b <= 0xac or b >= 0xae]
    tokens = [bytes([b]) for b in shown + [b for b in range(256) if b not in shown]]
    for left, right in json.loads(tokenizer.to_str())["model"]["merges"]:
        tokens.append(bytes(table[c] for c in left + right))
    return {token: rank for rank, token in enumerate(dict.fromkeys(tokens))}


def tiktokens(tokenizers):
    encodings = {}
    for name, learnt, pattern in [("llama3", "llama3", LLAMA3), ("cl100k_base", "llama3", CL100K), ("r50k_base", "gpt2", R50K),
                                  ("qwen", "llama3", QWEN)]:
        ranks = ranks_of(tokenizers[learnt])
        (OUT / f"{name}.tiktoken").write_text("".join(f"{base64.b64encode(t).decode()} {r}\n" for t, r in ranks.items()))
        encodings[name] = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return encodings


def main():
    OUT.mkdir(exist_ok=True)
    texts = HARD + [random_characters(seed, 40) for seed in range(24)]
    golden = {"texts": texts, "huggingface": {}, "tiktoken": {}, "decoded": {}}
    tokenizers = hugging_face()
    for name, tokenizer in tokenizers.items():
        (OUT / f"{name}.json").write_text(tokenizer.to_str(pretty=False))
        golden["huggingface"][name] = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        golden["decoded"][name] = [tokenizer.decode(ids) for ids in golden["huggingface"][name]]
    for name, encoding in tiktokens(tokenizers).items():
        # Qwen's tokenization_qwen.py normalizes the text first.
        form = (lambda text: unicodedata.normalize("NFC", text)) if name == "qwen" else str
        golden["tiktoken"][name] = [encoding.encode_ordinary(form(text)) for text in texts]
    (OUT / "golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
