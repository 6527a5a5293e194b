#!/usr/bin/env python3
"""Compares the API with its committed descriptor set, proto/api.binpb, and prints each change that
breaks programs of the other version: what is removed, renumbered, or of another type.

  proto/check_api.py [FOLDER]     FOLDER: the folder of muster/v1 (default: that of this script)
  proto/check_api.py --update     adds the compatible changes to proto/api.binpb

The exit status is 1 if a change breaks programs. Needs protoc.
"""
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SET = HERE / "api.binpb"
FILES = ("muster/v1/muster.proto", "muster/v1/admin.proto")
DESCRIPTOR = "google/protobuf/descriptor.proto"  # protoc finds it beside itself
# The attributes of each kind of description that programs depend on.
KINDS = {"message_type": (), "nested_type": (), "field": ("number", "label", "type", "type_name", "oneof_index"), "enum_type": (), "value": ("number",),
         "service": (), "method": ("input_type", "output_type", "client_streaming", "server_streaming")}


def protoc(*words, **options):
    return subprocess.run(["protoc", *map(str, words)], check=True, capture_output=True, timeout=60, **options).stdout


def descriptor_set(folder):
    return protoc(f"-I{folder}", "--descriptor_set_out=/dev/stdout", *FILES)


def blocks_of(lines):
    """Returns [(key, value)] of protobuf's text form; the value of a block is such a list."""
    found = []
    for line in lines:
        line = line.strip()
        if line == "}":
            break
        if line.endswith("{"):
            found.append((line[:-2], blocks_of(lines)))
        else:
            found.append(tuple(line.split(": ", 1)))
    return found


def described(descriptors):
    """Returns {"message muster.v1.Job": {…}, "field muster.v1.Job.id": {"number": "1", …}, …}."""
    text = protoc("--decode=google.protobuf.FileDescriptorSet", DESCRIPTOR, input=descriptors).decode()
    found = {}

    def describe(blocks, prefix):
        for kind, content in blocks:
            if kind in KINDS:
                values = dict(pair for pair in content if not isinstance(pair[1], list))
                name = f"{prefix}.{values['name'].strip(chr(34))}"
                found[f"{kind.removesuffix('_type').replace('nested', 'message')} {name}"] = {key: values.get(key, "unset") for key in KINDS[kind]}
                describe(content, name)

    for _, file in blocks_of(iter(text.splitlines())):
        describe(file, dict(pair for pair in file if not isinstance(pair[1], list))["package"].strip('"'))
    return found


def breaking_changes(old, new):
    """Returns a sentence per change of descriptor set `old` to `new` that breaks programs."""
    before, after = described(old), described(new)
    changes = [f"{name} is removed" for name in before if name not in after]
    for name in before.keys() & after.keys():
        changes += [f"{name}: {key} is {after[name][key]}, and was {value}" for key, value in before[name].items() if after[name][key] != value]
    return sorted(changes)


def main():
    update = sys.argv[1:] == ["--update"]
    new = descriptor_set(HERE if update or not sys.argv[1:] else sys.argv[1])
    changes = breaking_changes(SET.read_bytes(), new)
    for change in changes:
        print(f"proto/check_api.py: {change}: programs of the other version break", file=sys.stderr)
    if changes:
        return 1
    if update:
        SET.write_bytes(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
