#!/usr/bin/env python3
"""Makes a folder of programs and libraries run with an older C library than that of this system.

Usage: deploy/bundle/lower_glibc.py HOME FLOOR     for example: muster-0.1.0 2.34

An ELF file names the versions of the C library that its symbols need, and the loader refuses the
file if one is missing. compat.c defines the few functions that are newer than FLOOR, so they are
needed without a version, and the loader takes those of compat.c. Fails if a file needs another
symbol that is newer than FLOOR.
"""
import pathlib
import re
import struct
import subprocess
import sys

COMPATIBLE = {"arc4random", "_dl_find_object"}  # those of compat.c
SHT_GNU_VERNEED, SHT_GNU_VERSYM = 0x6FFFFFFE, 0x6FFFFFFF
VERSION_MASK, VER_NDX_GLOBAL = 0x7FFF, 1


def version_of(name):
    """Returns (2, 34) of "GLIBC_2.34"; None of another version."""
    found = re.fullmatch(r"GLIBC_([0-9]+)\.([0-9]+)(\.[0-9]+)?", name)
    return found and (int(found[1]), int(found[2]))


def newer_symbols(path, floor):
    """Returns the symbols that the file needs from a C library newer than `floor`."""
    listed = subprocess.run(["readelf", "--wide", "--dyn-syms", path], capture_output=True, encoding="utf-8", errors="replace", check=True).stdout
    needed = re.findall(r" UND (\S+)@(GLIBC_\S+)", listed)
    # A version without a number, such as GLIBC_PRIVATE, belongs to one version of the C library.
    return sorted({symbol for symbol, version in needed if (version_of(version) or (9, 9)) > floor})


def sections(data, wanted):
    """Yields (offset, size, offset of the section it links to) of the ELF sections of a type."""
    table, = struct.unpack_from("<Q", data, 40)  # e_shoff
    size, count, _ = struct.unpack_from("<HHH", data, 58)
    for header in range(table, table + count * size, size):
        kind, = struct.unpack_from("<I", data, header + 4)
        if kind == wanted:
            offset, length = struct.unpack_from("<QQ", data, header + 24)
            link, = struct.unpack_from("<I", data, header + 40)
            yield offset, length, struct.unpack_from("<Q", data, table + link * size + 24)[0]


def unlink_versions(data, floor):
    """Removes versions of the C library above `floor` from the needed versions. Returns their
    indexes in the file.
    """
    removed = set()
    for need, _, strings in sections(data, SHT_GNU_VERNEED):
        while True:
            _, entries, _, first, step = struct.unpack_from("<HHIII", data, need)
            # The field with the distance to the entry, and the place from which it counts.
            field, origin, entry = need + 8, need, need + first
            for _ in range(entries):
                _, _, index, name, following = struct.unpack_from("<IHHII", data, entry)
                start = strings + name
                version = version_of(data[start:data.index(0, start)].decode())
                if version and version > floor:
                    removed.add(index)
                    entries -= 1
                    struct.pack_into("<I", data, field, entry + following - origin if following else 0)
                else:
                    field, origin = entry + 12, entry
                entry += following
            if entries == 0:
                raise ValueError("all its versions of one library are newer")
            struct.pack_into("<H", data, need + 2, entries)
            if step == 0:
                break
            need += step
    return removed


def remove_versions(path, floor):
    """Makes the symbols of versions above `floor` symbols without a version."""
    data = bytearray(path.read_bytes())
    removed = unlink_versions(data, floor)
    for offset, length, _ in sections(data, SHT_GNU_VERSYM):
        for place in range(offset, offset + length, 2):
            if struct.unpack_from("<H", data, place)[0] & VERSION_MASK in removed:
                struct.pack_into("<H", data, place, VER_NDX_GLOBAL)
    path.write_bytes(data)


def main():
    home, floor = pathlib.Path(sys.argv[1]), version_of("GLIBC_" + sys.argv[2])
    failed = False
    for path in sorted([*home.glob("bin/*"), *home.glob("lib/*")]):
        with path.open("rb") as file:
            if file.read(4) != b"\x7fELF":
                continue
        symbols = newer_symbols(path, floor)
        unknown = sorted(set(symbols) - COMPATIBLE)
        if unknown:
            print(f"deploy/bundle/lower_glibc.py: {path.name} needs {', '.join(unknown)} of a C library newer than {sys.argv[2]}", file=sys.stderr)
            failed = True
        elif symbols:
            remove_versions(path, floor)
            print(f"{path.name} runs without the C library's {', '.join(symbols)}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
