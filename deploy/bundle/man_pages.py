#!/usr/bin/env python3
"""Writes the manual pages of programs in BIN to SHARE, and for `muster` those of its commands and
the completion scripts. Their source is what the programs print: --help and `muster completion`.

Usage: deploy/bundle/man_pages.py BIN SHARE PROGRAM…
"""
import gzip
import os
import pathlib
import re
import subprocess
import sys
import time

COMPLETION = {"bash": "bash-completion/completions/muster", "zsh": "zsh/site-functions/_muster", "fish": "fish/vendor_completions.d/muster.fish"}


def output_of(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


def escaped(text):
    """Returns the text with roff's special characters and control lines escaped. An ellipsis
    becomes three dots: devices of plain text have no glyph for it."""
    text = text.replace("…", "...")
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return "\\&" + text if text.startswith(".") else text


def page(name, version, help_text):
    """Returns a manual page of section 1 with the sections of a --help."""
    lines = help_text.splitlines()
    day = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
    out = [f'.TH "{name.upper()}" 1 "{day}" "muster {version}" Muster', ".SH NAME", f"{escaped(name)} \\- {escaped(lines[0].rstrip('.'))}"]
    verbatim = False
    for line in lines[1:]:
        section = re.fullmatch(r"([A-Z][^:]*):", line)
        entry = re.fullmatch(r"  (\S.*?)(?:  +(\S.*))?", line)
        if section or line.startswith("Usage: "):
            if verbatim:
                out.append(".EE")
            title = section[1] if section else "Synopsis"
            verbatim = title.startswith(("Example", "Begin here"))
            out += [f".SH {escaped(title.upper())}"] + [".EX"] * verbatim
            if not section:
                out.append(escaped(line.removeprefix("Usage: ")))
        elif verbatim and (line.startswith("  ") or not line):
            out.append(escaped(line.removeprefix("  ")))
        elif not line:
            out.append(".PP")
        elif entry:
            out += [".TP", f".B {escaped(entry[1])}", *map(escaped, filter(None, entry.groups()[1:]))]
        else:
            if verbatim:
                out += [".EE", ".SH NOTES"]
                verbatim = False
            out.append(escaped(line.strip()))
    return "\n".join(out + [".EE"] * verbatim) + "\n"


def commands_of(completion):
    """Returns the commands that bash completes: ["run"], …, ["slurm", "submit"], …"""
    found = []
    for command in re.search(r'compgen -W "(run [^"]*)"', completion)[1].split():
        if command.startswith("-"):
            continue
        found.append([command])
        choices = re.search(rf'^ *{command}\) choices="([^"]*)"', completion, re.M)
        for choice in choices[1].split() if choices and command != "completion" else ():
            if choice.startswith("-"):
                break
            found.append([command, choice])
    return found


def main():
    programs, share, names = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    pages = {name: [str(programs / name)] for name in names}
    version = output_of(*pages[names[0]], "--version").split()[1]
    if muster := pages.get("muster"):
        for shell, path in COMPLETION.items():
            script = share / path
            script.parent.mkdir(parents=True, exist_ok=True)
            script.write_text(("#compdef muster\n" if shell == "zsh" else "") + output_of(*muster, "completion", shell))
        for words in commands_of((share / COMPLETION["bash"]).read_text()):
            pages["-".join(["muster", *words])] = [*muster, *words]
    folder = share / "man/man1"
    folder.mkdir(parents=True, exist_ok=True)
    for name, words in pages.items():
        text = page(name, version, output_of(*words, "--help"))
        (folder / f"{name}.1.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{len(pages)} manual pages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
