#!/usr/bin/env python3
"""Creates tests/golden/parquet: one column of text stored with different settings of writers, and
files with wrong sizes.

Usage: tests/golden/make_parquet.py        versions in requirements.txt; the result is committed,
tests need no Python
"""
import io
import pathlib
import struct

import pyarrow
import pyarrow.parquet

OUT = pathlib.Path(__file__).resolve().parent / "parquet"
ROWS = 60
GROUP_ROWS = 13
LONG_ROWS = 40_000


def text_of(row):
    """Returns the row that parquet_chunks_test.cc expects."""
    return None if row % 11 == 3 else f"row {row}: " + "the ranks meet " * (row % 7) + ("\u00e9" if row % 2 else "")


def write(name, table, group_rows=GROUP_ROWS, **settings):
    pyarrow.parquet.write_table(table, OUT / name, row_group_size=group_rows, store_schema=False, write_statistics=False, **settings)


def varint(number):
    """Encodes Thrift's compact i32: zigzag, seven bits per byte."""
    number, out = number << 1, b""
    while number > 0x7F:
        number, out = number >> 7, out + bytes([number & 0x7F | 0x80])
    return out + bytes([number])


def rewrite_first_page(name, table, compression, uncompressed, compressed):
    """Writes a file whose first page has these sizes in its header; None keeps the true size."""
    file = io.BytesIO()
    pyarrow.parquet.write_table(table, file, compression=compression, use_dictionary=False, store_schema=False, write_statistics=False,
                                write_page_checksum=True)
    good = file.getvalue()
    # PAR1, then PageHeader{1: i32 type, 2: i32 uncompressed_page_size, 3: i32 compressed_page_size,
    # 4: i32 crc, 5: struct …}: the headers of the fields, less their values, are 15 15 15 15 1c.
    # Without the checksum there is room for longer sizes.
    assert good[:6] == b"PAR1\x15\x00" and good[6] == 0x15
    values, at = [], 6
    for _ in range(3):
        begin = at = at + 1
        while good[at] & 0x80:
            at += 1
        at += 1
        values.append(good[begin:at])
    assert good[at] == 0x1C
    sizes = [true if size is None else varint(size) for true, size in zip(values, (uncompressed, compressed))]
    (OUT / name).write_bytes(good[:6] + b"\x15" + sizes[0] + b"\x15" + sizes[1] + b"\x2c" + good[at + 1:])


def main():
    OUT.mkdir(exist_ok=True)
    texts = [text_of(row) for row in range(ROWS)]
    ids = list(range(ROWS))
    table = pyarrow.table({"id": ids, "text": texts})
    text_alone = pyarrow.table({"text": texts})
    write("plain.parquet", text_alone, compression="none", use_dictionary=False)
    write("checksums.parquet", text_alone, compression="none", use_dictionary=False, write_page_checksum=True)
    write("snappy.parquet", table, compression="snappy", use_dictionary=["text"])
    write("gzip.parquet", table, compression="gzip", use_dictionary=False)
    write("zstd.parquet", table, compression="zstd", use_dictionary=["text"], data_page_version="2.0")
    # Many pages in one row group.
    write("pages.parquet", table, group_rows=ROWS, compression="zstd", use_dictionary=False, data_page_size=64, write_batch_size=4)
    delta = {"text": "DELTA_BYTE_ARRAY", "id": "DELTA_BINARY_PACKED"}
    write("delta.parquet", table, compression="snappy", use_dictionary=False, column_encoding=delta)
    documents = [None if text is None else {"text": text, "url": f"https://a.b/{row}"} for row, text in enumerate(texts)]
    write("nested.parquet", pyarrow.table({"id": ids, "doc": documents, "parts": [[text] for text in texts]}), compression="zstd")
    write("empty.parquet", text_alone.slice(0, 0), compression="none")
    words = [f"And it came to pass in the year {row * 7919 % 1000} that the people spake unto him." for row in range(LONG_ROWS)]
    write("long.parquet", pyarrow.table({"text": words}), group_rows=LONG_ROWS // 2, compression="zstd", compression_level=19,
          use_dictionary=["text"])

    rewrite_first_page("huge_compressed.parquet", text_alone, "none", None, 2**31 - 1)
    rewrite_first_page("huge_uncompressed.parquet", text_alone, "zstd", 2**31 - 1, None)
    good = (OUT / "plain.parquet").read_bytes()
    (OUT / "huge_footer.parquet").write_bytes(good[:-8] + struct.pack("<I", 2**32 - 16) + good[-4:])


if __name__ == "__main__":
    main()
