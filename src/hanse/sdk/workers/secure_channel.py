"""Channel between an executor and a worker: TLS 1.3 with an ephemeral key, and mutual proof of a shared key.

The executor makes a key and a certificate that live as long as it does. A worker finds the certificate's
fingerprint in its environment. Each attempt of each worker has a key of its own
(``model.attempt_key_derivation``), which it reads from its standard input and which the executor computes.
The worker talks only to the holder of the certificate. Both sides prove the key before anything else is
read, let alone unpickled.
"""

import hashlib
import hmac
import os
import socket
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

CERTIFICATE_DAYS: Final = 3650
"""Validity, which nobody checks: the worker trusts a fingerprint and not a date."""
RECORD_BYTES_MAX: Final = 16 << 10
"""Largest TLS record."""
WORKER_ROLE: Final = b"hanse hand"
EXECUTOR_ROLE: Final = b"hanse executor"
KEEPALIVE_SECONDS: Final = 15
"""Silence after which a connection is probed; three probes of five seconds follow."""


class ExecutorCertificate:
    """Ephemeral key of an executor, with its certificate."""

    def __init__(self) -> None:
        from cryptography import x509  # noqa: PLC0415  slow to import, and a worker needs none
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415  as above
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415  as above

        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "hanse executor")])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=CERTIFICATE_DAYS))
            .sign(key, hashes.SHA256())
        )
        der = certificate.public_bytes(serialization.Encoding.DER)
        self.fingerprint = hashlib.sha256(der).digest()
        self._pem = certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    def server_context(self) -> ssl.SSLContext:
        """Return the TLS context of the executor's side."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0  # no session is resumed
        descriptor, name = tempfile.mkstemp(prefix="hanse-key-")  # mode 0600; ssl reads keys from files only
        try:
            os.write(descriptor, self._pem)
            context.load_cert_chain(name)
        finally:
            os.close(descriptor)
            Path(name).unlink()
        return context


def worker_context() -> ssl.SSLContext:
    """Return the TLS context of a worker. It checks the certificate's fingerprint after the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def compute_proof(
    key: bytes,
    role: bytes,
    challenge: bytes,
    nonce: bytes,
    fingerprint: bytes,
    attempt_id: tuple[str, int, int],
) -> bytes:
    """Return the proof that ``role`` knows the key, for the peer that sent ``challenge``.

    ``attempt_id``: job, index and attempt of the worker. All parts but this last one are of fixed length.
    """
    job, index, attempt = attempt_id
    text = f" {job}.{index}.{attempt}".encode()
    return hmac.digest(key, role + challenge + nonce + fingerprint + text, "sha256")


def is_same_secret(actual: bytes, expected: bytes) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(actual, expected)


class TlsSession:
    """TLS session in memory: the owner of the socket moves the bytes. For one thread at a time."""

    def __init__(self, context: ssl.SSLContext, server: bool) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server)

    def peer_fingerprint(self) -> bytes:
        """Return the fingerprint of the peer's certificate."""
        return hashlib.sha256(self._tls.getpeercert(binary_form=True) or b"").digest()

    def do_handshake(self) -> bool:
        """Continue the handshake; True if it is done. Raises ``ssl.SSLError`` if it fails."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def feed(self, data: bytes) -> None:
        """Add bytes from the socket; none: it is closed."""
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def read(self) -> bytes:
        """Return the decrypted bytes so far. Raises ``ssl.SSLError`` if they were tampered with."""
        pieces = []
        while True:
            try:
                piece = self._tls.read(RECORD_BYTES_MAX)
            except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                break
            if not piece:
                break
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def write(self, data: bytes) -> None:
        """Encrypt bytes for the peer."""
        self._tls.write(data)

    def take_output(self) -> bytes:
        """Return the encrypted bytes to be written to the socket."""
        return self._outgoing.read()


def enable_keepalive(connection: socket.socket) -> None:
    """Detect within half a minute that the other machine is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", KEEPALIVE_SECONDS), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):  # not on every system
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
