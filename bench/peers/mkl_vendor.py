"""MKL chooses its kernels by the processor's vendor: on AMD it leaves AVX-512 alone, and fp32 products of PyTorch run at half
their speed (Zen 5: 113 for 250 GFLOP/s per core). The function that asks for the vendor can be replaced from outside; a
user who knows this has the faster PyTorch, so that one is a peer, too.
"""
import pathlib
import subprocess

SOURCE = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"


def is_needed():
    """Whether MKL would use less of this processor than it could."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    return "AuthenticAMD" in text and "avx512f" in text


def build(folder):
    """The library for LD_PRELOAD, compiled into `folder`."""
    source, library = pathlib.Path(folder) / "mkl_vendor.c", pathlib.Path(folder) / "libmkl_vendor.so"
    source.write_text(SOURCE)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    return library
