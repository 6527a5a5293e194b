"""The coordinators' addresses, and the files for TLS and the token: the environment variables,
checks and messages of the command `muster` (cli/shared_options.cc, daemon/endpoint.cc,
daemon/trust_files.cc).
"""
import dataclasses
import os
import ssl
from typing import List, Optional, Union

from muster.errors import InvalidArgument, NotFound

Path = Union[str, "os.PathLike[str]"]

ADDRESS_DEFAULT = "127.0.0.1:7070"
VARIABLES = ("MUSTER_COORDINATOR", "MUSTER_TLS_CA", "MUSTER_TLS_CERT", "MUSTER_TLS_KEY", "MUSTER_TOKEN_FILE")
_TRUST_FILE_BYTES_MAX = 1 << 20
_TOKEN_BYTES_MIN, _TOKEN_BYTES_MAX = 16, 512
_HOST_BYTES_MAX = 253
_PORT_MAX = 65_535
_COORDINATORS_MAX = 9


@dataclasses.dataclass(frozen=True)
class Secrets:
    """The contents of the files; empty if not set."""

    ca: bytes = b""
    certificate: bytes = b""
    key: bytes = dataclasses.field(default=b"", repr=False)
    token: str = dataclasses.field(default="", repr=False)


@dataclasses.dataclass(frozen=True)
class Target:
    """A coordinator, and the paths of the files for TLS and the token; empty if not set.
    `address`: "host:port", or several separated by commas.
    """

    address: str
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    token_file: str = ""

    @property
    def addresses(self) -> List[str]:
        """Returns the coordinators, of which one leads."""
        return self.address.split(",")

    def flags(self) -> List[str]:
        """Returns the same target as flags of the command `muster`."""
        flags = ["--coordinator", self.address]
        for flag, path in (("--tls-ca", self.tls_ca), ("--tls-cert", self.tls_cert), ("--tls-key", self.tls_key),
                           ("--token-file", self.token_file)):
            if path:
                flags += [flag, path]
        return flags

    def read_secrets(self) -> Secrets:
        """Reads the files, which may change while the program runs."""
        if bool(self.tls_cert) != bool(self.tls_key):
            raise InvalidArgument("--tls-cert and --tls-key go together: a certificate is of no use without its key")
        if not self.tls_ca:
            if self.tls_cert:
                raise InvalidArgument("--tls-cert needs --tls-ca: without it the connection has no TLS")
            if self.token_file:
                raise InvalidArgument("--token-file needs --tls-ca: a token is not sent over a connection that others can read")
            return Secrets()
        ca = _read_certificates("--tls-ca", self.tls_ca)
        certificate = key = b""
        if self.tls_cert:
            certificate, key = _read_certificates("--tls-cert", self.tls_cert), _read("--tls-key", self.tls_key)
            _check_pair(self.tls_cert, self.tls_key)
        return Secrets(ca, certificate, key, _read_token(self.token_file) if self.token_file else "")


def find_target(coordinator: Optional[str], tls_ca: Optional[Path], tls_cert: Optional[Path], tls_key: Optional[Path],
                token_file: Optional[Path]) -> Target:
    """Returns the target of the arguments, or of the environment where they are None."""
    def value(given: Optional[Path], variable: str) -> str:
        return os.environ.get(variable, "") if given is None else os.fspath(given)

    return Target(_checked_addresses(value(coordinator, "MUSTER_COORDINATOR") or ADDRESS_DEFAULT), value(tls_ca, "MUSTER_TLS_CA"),
                  value(tls_cert, "MUSTER_TLS_CERT"), value(tls_key, "MUSTER_TLS_KEY"), value(token_file, "MUSTER_TOKEN_FILE"))


def _checked_addresses(text: str) -> str:
    entries = text.split(",")
    for index, entry in enumerate(entries):
        _check_address(entry)
        if entry in entries[:index]:
            raise InvalidArgument(f"--coordinator={entry}: this address is in the list twice")
        if index == _COORDINATORS_MAX:
            raise InvalidArgument(f"--coordinator: more than {_COORDINATORS_MAX} addresses, the first too many is {entry}")
    return text


def _check_address(text: str) -> None:
    def refuse(why: str) -> InvalidArgument:
        return InvalidArgument(f"--coordinator={text[:2 * _HOST_BYTES_MAX]}: {why}; expected host:port, for example 127.0.0.1:7070")

    host, colon, digits = text.rpartition(":")
    if not colon:
        raise refuse("the port is missing")
    if len(host) >= 2 and host[0] == "[" and host[-1] == "]":
        host = host[1:-1]
    elif ":" in host:
        raise refuse("an IPv6 address needs brackets")
    if not host:
        raise refuse("the host is missing")
    if len(host) > _HOST_BYTES_MAX:
        raise refuse("the host is too long")
    if any(not "!" <= char <= "~" or char == "/" for char in host):
        raise refuse("the host is not a name")
    if not (digits.isascii() and digits.isdigit()) or int(digits) > _PORT_MAX:
        raise refuse(f"port '{digits[:20]}' is not a number from 0 to {_PORT_MAX}")
    if int(digits) == 0:
        raise InvalidArgument(f"--coordinator={text}: port 0 cannot be connected to")


def _read(flag: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(_TRUST_FILE_BYTES_MAX + 1)
    except FileNotFoundError as error:
        raise NotFound(f"{flag}={path}: {error.strerror}") from None
    except OSError as error:
        raise InvalidArgument(f"{flag}={path}: {error.strerror}") from None
    if len(data) > _TRUST_FILE_BYTES_MAX:
        raise InvalidArgument(f"{flag}={path} is longer than {_TRUST_FILE_BYTES_MAX} bytes")
    return data


def _read_certificates(flag: str, path: str) -> bytes:
    pem = _read(flag, path)
    if b"-----BEGIN CERTIFICATE-----" not in pem:
        raise InvalidArgument(f"{flag}={path}: there is no certificate in it; PEM is expected")
    return pem


def _check_pair(certificate_path: str, key_path: str) -> None:
    try:
        # No passphrase: a daemon cannot prompt for one, and neither does a client.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate_path, key_path, password="")
    except ssl.SSLError as error:
        why = f"the key is not that of --tls-cert={certificate_path}"
        if error.reason != "KEY_VALUES_MISMATCH":
            why = "there is no private key in it; PEM without a passphrase is expected"
        raise InvalidArgument(f"--tls-key={key_path}: {why}") from None


def _read_token(path: str) -> str:
    token = ""
    for number, line in enumerate(_read("--token-file", path).split(b"\n"), 1):
        text = line.strip().decode("latin-1")
        if not text or text.startswith("#"):
            continue
        if not _TOKEN_BYTES_MIN <= len(text) <= _TOKEN_BYTES_MAX or any(not "!" <= char <= "~" for char in text):
            raise InvalidArgument(f"--token-file={path}: line {number} is no token: {_TOKEN_BYTES_MIN} to {_TOKEN_BYTES_MAX} visible "
                                  "characters without spaces")
        token = token or text
    if not token:
        raise InvalidArgument(f"--token-file={path}: there is no token in it")
    return token
