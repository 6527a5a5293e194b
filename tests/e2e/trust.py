"""A test's own certificates and tokens, made with the openssl program."""
import os
import pathlib
import shutil
import subprocess


def why_not():
    """Returns why certificates cannot be made here; empty if they can."""
    return "" if shutil.which("openssl") else "no openssl program here"


def run_openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)


class Authority:
    """Signs certificates. `hosts` are in OpenSSL's syntax."""

    def __init__(self, folder, name):
        self.dir = pathlib.Path(folder) / name
        self.dir.mkdir(parents=True)
        self.certificate, self.key = self.dir / "ca.crt", self.dir / "ca.key"
        run_openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", f"/CN={name}",
                    "-keyout", self.key, "-out", self.certificate)

    def sign(self, name, hosts="IP:127.0.0.1,DNS:localhost", days=1):
        """Returns the paths (certificate, key). `days`: negative: the certificate has expired."""
        certificate, key, request = (self.dir / f"{name}.{kind}" for kind in ("crt", "key", "csr"))
        run_openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out",
                    request)
        extensions = self.dir / f"{name}.ext"
        extensions.write_text(f"subjectAltName={hosts}\n")
        run_openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-days", days, "-extfile",
                    extensions, "-out", certificate)
        return certificate, key


def replace(target, content):
    """Replaces a file atomically, as a rotation does: readers find the old or the new one."""
    target = pathlib.Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.parent / f".{target.name}.new"
    beside.write_text(content)
    os.replace(beside, target)
