"""Downloads files over HTTP for the scripts in this folder.

Resumes, verifies, and uses the user's own mirrors and credentials. A file is written as NAME.part
and renamed when it is whole, so that a name without .part is a complete file. Its length is
compared with the server's, and its checksum with the one of SHA256SUMS.txt beside it, or of the
server's headers (Google Cloud Storage, Hugging Face). Credentials are those of ~/.netrc, and of
HF_TOKEN for Hugging Face; proxies are those of the environment.
"""
import base64
import hashlib
import http.client
import netrc
import os
import pathlib
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

BLOCK_BYTES = 1 << 20
TIMEOUT_S = 60
TRIES = 5
SUMS = "SHA256SUMS.txt"


class FetchError(Exception):
    """A download that no further attempt would mend."""


def fail(message):
    sys.exit(f"muster: error: {message}")


def authorization(url):
    """Returns the header for a URL's host; empty if the user has no credentials for it.

    Plain HTTP gets none beyond this machine.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        return {}
    endpoint = urllib.parse.urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    if os.environ.get("HF_TOKEN") and parts.netloc == endpoint.netloc:
        return {"Authorization": f"Bearer {os.environ['HF_TOKEN']}"}
    try:
        found = netrc.netrc(os.environ.get("NETRC")).hosts.get(parts.hostname)
    except (OSError, netrc.NetrcParseError):
        found = None
    if not found:
        return {}
    return {"Authorization": "Basic " + base64.b64encode(f"{found[0]}:{found[2]}".encode()).decode()}


class NoForwardedSecrets(urllib.request.HTTPRedirectHandler):
    """A redirect to another host does not get the credentials of the first one."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        if new and urllib.parse.urlsplit(newurl).netloc != urllib.parse.urlsplit(req.full_url).netloc:
            new.remove_header("Authorization")
        # Hugging Face has a file's checksum in the redirect alone.
        if new and headers.get("X-Linked-Etag"):
            new.linked_etag = headers["X-Linked-Etag"]
        elif new and hasattr(req, "linked_etag"):
            new.linked_etag = req.linked_etag
        return new


def open_url(url, headers=()):
    request = urllib.request.Request(url, headers={"User-Agent": "muster", **authorization(url), **dict(headers)})
    opener = urllib.request.build_opener(NoForwardedSecrets)
    response = opener.open(request, timeout=TIMEOUT_S)
    return response


def expected_digest(headers):
    """Returns (algorithm, hex digest) of the whole file from a server's headers, or None."""
    for value in headers.get_all("x-goog-hash") or []:
        for part in value.split(","):
            name, _, digest = part.strip().partition("=")
            if name == "md5":
                return "md5", base64.b64decode(digest).hex()
    etag = (headers.get("X-Linked-Etag") or "").strip('"')
    return ("sha256", etag) if re.fullmatch("[0-9a-f]{64}", etag) else None


def digest_of(path, algorithm):
    digest = hashlib.new(algorithm)
    with open(path, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def sums_of(mirror):
    """Returns {name: SHA-256} of the mirror's SHA256SUMS.txt; empty without one."""
    try:
        with open_url(f"{mirror}/{SUMS}") as response:
            lines = response.read(1 << 20).decode("utf-8", "replace").splitlines()
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return {}
        raise
    found = (re.fullmatch(r"([0-9a-fA-F]{64})\s+[*]?(?:\./)?(\S.*)", line.strip()) for line in lines)
    return {match.group(2): match.group(1).lower() for match in found if match}


def report(name, done, total, start, begin):
    rate = (done - begin) / max(time.monotonic() - start, 1e-3)
    share = f"{100 * done / total:.0f}%" if total else f"{done} bytes"
    print(f"\r{name}: {share}, {rate / 1e6:.1f} MB/s ", end="", file=sys.stderr, flush=True)


def total_bytes(response, begin):
    length = response.headers.get("Content-Length")
    return begin + int(length) if length and not response.headers.get("Content-Encoding") else None


def copy(response, part, begin, name):
    """Appends the body to `part`.

    Returns the length of the whole file that the server promised, or None.
    """
    total = total_bytes(response, begin)
    done, start, shown = begin, time.monotonic(), 0
    with open(part, "ab" if begin else "wb") as file:
        while block := response.read(BLOCK_BYTES):
            file.write(block)
            done += len(block)
            if sys.stderr.isatty() and time.monotonic() > shown + 0.5:
                shown = time.monotonic()
                report(name, done, total, start, begin)
    if total is not None and done < total:
        raise ConnectionError(f"the connection ended after {done} of {total} bytes")
    return total


def attempt(url, part):
    """Downloads once, from where `part` ends.

    Returns the server's checksum of the whole file, or None.
    """
    tag = part.with_name(part.name + ".etag")
    begin = part.stat().st_size if part.exists() and tag.exists() else 0
    headers = {"Range": f"bytes={begin}-", "If-Range": tag.read_text()} if begin else {}
    with open_url(url, headers) as response:
        if response.status != 206:
            begin = 0  # the whole file comes: it has changed, or the server has no ranges
        etag = response.headers.get("ETag", "")
        # A weak tag does not distinguish two versions of a file.
        if begin == 0:
            tag.unlink(missing_ok=True)
            if etag and not etag.startswith("W/"):
                tag.write_text(etag)
        copy(response, part, begin, part.stem)
        return expected_digest(response.headers)


def verify(part, wanted, url):
    if wanted is None:
        print(f"muster: warning: {url}: the server states no checksum; only the length was compared", file=sys.stderr)
        return
    algorithm, digest = wanted
    actual = digest_of(part, algorithm)
    if actual != digest:
        part.unlink()
        part.with_name(part.name + ".etag").unlink(missing_ok=True)
        raise FetchError(f"{url}: the {algorithm} checksum is {actual}, but must be {digest}; the file was removed")


def fetch(url, path, sha256=None):
    """Downloads `url` to `path`, unless the file is there.

    Raises FetchError, or OSError if the server cannot be reached.
    """
    path = pathlib.Path(path)
    if path.exists():
        if sha256 and digest_of(path, "sha256") != sha256:
            raise FetchError(f"{path}: its SHA-256 is not the mirror's; remove the file to download it again")
        print(f"{path}: is there already")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    for number in range(TRIES):
        try:
            stated = attempt(url, part)
            break
        except urllib.error.HTTPError as error:
            if error.code == 416:  # nothing is left to send, or the file has changed
                part.unlink(missing_ok=True)
            elif error.code in (401, 403):
                raise FetchError(f"{url}: access was refused ({error.code}); put the credentials into ~/.netrc, or HF_TOKEN for "
                                 "Hugging Face") from error
            elif error.code < 500 and error.code not in (408, 429):
                raise FetchError(f"{url}: the server answers {error.code} {error.reason}") from error
            problem = error
        except (OSError, http.client.HTTPException) as error:
            problem = error
        if number + 1 == TRIES:
            raise OSError(f"{url}: {problem}")
        time.sleep(float(os.environ.get("MUSTER_FETCH_PAUSE_S", 2)) * 2 ** number)
    verify(part, ("sha256", sha256) if sha256 else stated, url)
    os.replace(part, path)
    part.with_name(part.name + ".etag").unlink(missing_ok=True)
    print(f"{path}: {path.stat().st_size} bytes")


def data_folder():
    """Returns $TFDS_DATA_DIR, where Pax's scripts put data sets."""
    folder = os.environ.get("TFDS_DATA_DIR")
    if not folder:
        fail("TFDS_DATA_DIR is not set: export TFDS_DATA_DIR=FOLDER, the folder for data sets")
    return pathlib.Path(folder)


def fetch_all(what, mirror, names, folder, by_hand):
    """Downloads `names` from `mirror` into `folder`.

    `by_hand`: the instructions for a machine without a network, for the error message.
    """
    folder = pathlib.Path(folder)
    mirror = mirror.rstrip("/")
    try:
        sums = sums_of(mirror)
        for name in names:
            fetch(f"{mirror}/{name}", folder / name, sums.get(name))
    except FetchError as error:
        fail(error)
    except OSError as error:
        fail(f"{what} could not be downloaded: {error}\n{by_hand}")
    print(f"{what} is in {folder}")
