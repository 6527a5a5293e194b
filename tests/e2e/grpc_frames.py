"""A gRPC client made of HTTP/2 frames (RFC 9113), for calls that a correct client cannot make.

Headers are sent as literals, without compression. Trailers are searched for gRPC's fields, which
gRPC's own servers send as literals on a new connection; therefore one connection makes one call.
"""
import functools
import gzip
import socket
import ssl
import struct
import subprocess
import threading
import urllib.parse

from harness import SOURCE

DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
OK, INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, RESOURCE_EXHAUSTED, UNIMPLEMENTED, UNAUTHENTICATED = 0, 3, 5, 6, 7, 8, 12, 16
FRAME_BYTES_MAX = 16384


@functools.lru_cache(256)
def encode(message, text):
    """Returns the bytes of a message of the API in protobuf's text format."""
    return run_protoc("--encode", message, text.encode())


def decode(message, data):
    """Returns the text format of a message of the API."""
    return run_protoc("--decode", message, data).decode()


def run_protoc(option, message, data):
    files = ["muster/v1/muster.proto", "muster/v1/admin.proto"]
    command = ["protoc", f"-I{SOURCE / 'proto'}", f"{option}=muster.v1.{message}", *files]
    return subprocess.run(command, input=data, capture_output=True, check=True, timeout=60).stdout


def framed(data, compressed=False):
    """Returns a message with gRPC's prefix: whether it is compressed, and its length."""
    return struct.pack(">BI", compressed, len(data)) + data


def literal(text):
    data, length = text.encode("latin-1"), len(text)
    if length < 127:
        return bytes([length]) + data
    prefix, rest = [127], length - 127
    while rest >= 128:
        prefix.append(rest % 128 + 128)
        rest //= 128
    return bytes([*prefix, rest]) + data


def field_of(trailers, name):
    """Returns the value of a literal field; None if there is none."""
    at = trailers.find(name)
    if at < 0:
        return None
    at += len(name)
    length, shift = trailers[at] & 0x7F, 0
    at += 1
    while length >= 127 and (shift == 0 or trailers[at - 1] & 0x80):
        length += (trailers[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return trailers[at:at + length].decode("latin-1")


class GrpcConnection:
    def __init__(self, port, context=None, timeout=20):
        """`context`: None: a connection without TLS."""
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.received, self.trailers = b"", b""
        try:
            if context is not None:
                self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
            self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            self.send(SETTINGS, 0, b"", stream=0)
        except OSError:
            self.socket.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.socket.close()

    def send(self, kind, flags, payload, stream=1):
        self.socket.sendall(len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload)

    def start(self, method, token="", extra=()):
        """Sends the headers of a call: "Muster/GetJob"."""
        fields = [(":method", "POST"), (":scheme", "http"), (":path", f"/muster.v1.{method}"), (":authority", "localhost"), ("te", "trailers"),
                  ("content-type", "application/grpc")]
        fields += [("authorization", f"Bearer {token}")] if token else []
        block = b"".join(b"\0" + literal(name) + literal(value) for name, value in (*fields, *extra))
        parts = [block[at:at + FRAME_BYTES_MAX] for at in range(0, len(block), FRAME_BYTES_MAX)]
        for number, part in enumerate(parts):
            self.send(CONTINUATION if number else HEADERS, END_HEADERS if number == len(parts) - 1 else 0, part)

    def send_message(self, data):
        self.send(DATA, 0, framed(data))

    def half_close(self):
        self.send(DATA, END_STREAM, b"")

    def read_frame(self):
        """Reads a frame. Returns False at the end of the call or of the connection."""
        head = self.read_bytes(9)
        if head is None:
            return False
        kind, flags, payload = head[3], head[4], self.read_bytes(int.from_bytes(head[:3], "big"))
        if payload is None:
            return False
        if kind in (SETTINGS, PING) and not flags & ACK:
            self.send(kind, ACK, b"" if kind == SETTINGS else payload, stream=0)
        elif kind == DATA:
            self.received += payload
            self.widen_window(len(payload))
        elif kind == HEADERS:
            self.trailers += payload
        return not (kind in (RESET, GOAWAY) or kind in (DATA, HEADERS) and flags & END_STREAM)

    def widen_window(self, count):
        """Permits the server to send so many bytes more, on the connection and on the stream."""
        try:
            for stream in (0, 1) if count else ():
                self.send(WINDOW_UPDATE, 0, count.to_bytes(4, "big"), stream)
        except OSError:
            pass  # the server has ended the connection; what it has sent can still be read

    def read_bytes(self, count):
        data = b""
        while len(data) < count:
            try:
                part = self.socket.recv(count - len(data))
            except (ConnectionError, ssl.SSLError):
                part = b""
            if not part:
                return None
            data += part
        return data

    def read_message(self):
        """Returns the next message of the server; None at the end of the call."""
        while len(self.received) < 5 or len(self.received) < 5 + int.from_bytes(self.received[1:5], "big"):
            if not self.read_frame():
                return None
        end = 5 + int.from_bytes(self.received[1:5], "big")
        message, self.received = self.received[5:end], self.received[end:]
        return message

    def end(self):
        """Waits for the end of the call. Returns (status, message); None if there is no status."""
        while self.read_frame():
            pass
        status, text = (field_of(self.trailers, name) for name in (b"grpc-status", b"grpc-message"))
        return (int(status) if status else None, urllib.parse.unquote(text or ""))

    def call(self, method, data=b"", token=""):
        self.start(method, token)
        self.send_message(data)
        self.half_close()
        return self.end()


class FakeServer:
    """A coordinator in other hands: it answers each call with the same message, without TLS."""

    def __init__(self, message, compressed=False):
        self.answer = framed(gzip.compress(message) if compressed else message, compressed)
        self.calls, self.connections = 0, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()

    def serve(self):
        while True:
            try:
                connection = self.listener.accept()[0]
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                try:
                    self.answer_calls(connection)
                except OSError:
                    pass

    def answer_calls(self, connection):
        """Answers until the client ends the connection."""
        def send(kind, flags, payload, stream):
            connection.sendall(len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload)

        reader = connection.makefile("rb")
        reader.read(len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
        send(SETTINGS, 0, b"", 0)
        head = reader.read(9)
        while len(head) == 9:
            payload, stream = reader.read(int.from_bytes(head[:3], "big")), int.from_bytes(head[5:], "big")
            if head[3] in (SETTINGS, PING) and not head[4] & ACK:
                send(head[3], ACK, payload if head[3] == PING else b"", 0)
            elif head[3] == HEADERS:
                fields = ((":status", "200"), ("content-type", "application/grpc"), ("grpc-encoding", "gzip"))
                send(HEADERS, END_HEADERS, b"".join(b"\0" + literal(name) + literal(value) for name, value in fields), stream)
                for at in range(0, len(self.answer), FRAME_BYTES_MAX):
                    send(DATA, 0, self.answer[at:at + FRAME_BYTES_MAX], stream)
                send(HEADERS, END_HEADERS | END_STREAM, b"\0" + literal("grpc-status") + literal("0"), stream)
                self.calls += 1
            head = reader.read(9)
