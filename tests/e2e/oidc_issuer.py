#!/usr/bin/env python3
"""An OpenID Connect issuer for tests: oidc_issuer.py CERTIFICATE KEY PORT_FILE. It serves its
discovery document and its keys by HTTPS, and signs with PyJWT what a test requests.
"""
import base64
import http.server
import json
import pathlib
import ssl
import sys

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

REALM = "/realms/ml"


def encoded(number):
    return base64.urlsafe_b64encode(number.to_bytes((number.bit_length() + 7) // 8, "big")).rstrip(b"=").decode()


def encoded_coordinate(number):
    return base64.urlsafe_b64encode(number.to_bytes(32, "big")).rstrip(b"=").decode()


class Issuer:
    def __init__(self):
        self.address = ""
        self.keys = {}       # by name
        self.published = {}  # JSON Web Keys by name

    def add_key(self, key, algorithm, published=True):
        """An unpublished key signs in the name of the first one."""
        if algorithm == "RS256":
            self.keys[key] = rsa.generate_private_key(65537, 2048)
            numbers = self.keys[key].public_key().public_numbers()
            public = {"kty": "RSA", "n": encoded(numbers.n), "e": encoded(numbers.e)}
        else:
            self.keys[key] = ec.generate_private_key(ec.SECP256R1())
            numbers = self.keys[key].public_key().public_numbers()
            public = {"kty": "EC", "crv": "P-256", "x": encoded_coordinate(numbers.x), "y": encoded_coordinate(numbers.y)}
        if published:
            self.published[key] = {**public, "kid": key, "use": "sig", "alg": algorithm}
        return ""

    def public_key(self, key):
        return self.keys[key].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    def sign(self, key, algorithm, claims):
        name = key if key in self.published else next(iter(self.published))
        return jwt.encode(claims, self.keys[key], algorithm=algorithm, headers={"kid": name})

    def document(self, path):
        return {"/.well-known/openid-configuration": {"issuer": self.address, "jwks_uri": f"{self.address}/keys"},
                "/keys": {"keys": list(self.published.values())}}[path]


def main():
    certificate, key, port_file = sys.argv[1:]
    issuer = Issuer()

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self, text):
            self.send_response(200)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def do_GET(self):
            self.answer(json.dumps(issuer.document(self.path.removeprefix(REALM))))

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            act = {"add-key": issuer.add_key, "public-key": issuer.public_key, "sign": issuer.sign}[self.path.rsplit("/", 1)[1]]
            self.answer(act(**body))

        def log_message(self, *_):
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    issuer.address = f"https://127.0.0.1:{server.server_port}{REALM}"
    issuer_file = pathlib.Path(port_file)
    beside = issuer_file.with_name(issuer_file.name + ".new")
    beside.write_text(json.dumps({"address": issuer.address}))
    beside.rename(issuer_file)
    server.serve_forever()


if __name__ == "__main__":
    main()
