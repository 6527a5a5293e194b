"""Mounts a FUSE file system on a folder and never answers a request for it, as an NFS server that
is away. Root only, with /dev/fuse. Prints "mounted", and serves until it is killed; its end makes
waiting programs fail.
"""
import ctypes
import os
import struct
import sys

INIT = 26


def mount(folder):
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other"
    if ctypes.CDLL(None, use_errno=True).mount(b"hung", os.fsencode(folder), b"fuse", 0, options.encode()) != 0:
        raise SystemExit(f"mount: {os.strerror(ctypes.get_errno())}")
    return device


def answer_init(device):
    """The kernel sends nothing else before the versions are agreed on."""
    _, opcode, unique = struct.unpack_from("IIQ", os.read(device, 1 << 17))
    assert opcode == INIT, opcode
    major, minor, readahead, flags, background, congestion, write_max = 7, 31, 65536, 0, 12, 10, 4096
    body = struct.pack("IIIIHHIIHHI7I", major, minor, readahead, flags, background, congestion, write_max, 1, 0, 0, 0, *[0] * 7)
    os.write(device, struct.pack("IiQ", 16 + len(body), 0, unique) + body)


if __name__ == "__main__":
    try:
        opened = mount(sys.argv[1])
    except OSError as error:
        raise SystemExit(str(error))
    answer_init(opened)
    print("mounted", flush=True)
    while True:
        os.read(opened, 1 << 17)
