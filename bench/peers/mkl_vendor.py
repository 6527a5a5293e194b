"""Replaces MKL's test of the processor's vendor. MKL does not use AVX-512 on AMD, so that PyTorch's
fp32 GEMMs run at half speed (Zen 5: 113 instead of 250 GFLOP/s per core). A preloaded
library can replace the function that tests the vendor; users may do so, so this faster PyTorch
is a peer, too.
"""
import pathlib
import subprocess

SOURCE = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"


def is_needed():
    """Returns whether MKL would not use all instructions of this processor."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    return "AuthenticAMD" in text and "avx512f" in text


def build(folder):
    """Compiles the library for LD_PRELOAD into `folder`. Returns its path."""
    source, library = pathlib.Path(folder) / "mkl_vendor.c", pathlib.Path(folder) / "libmkl_vendor.so"
    source.write_text(SOURCE)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    return library
