"""The channel between an executor and a hand: TLS 1.3 with a key of the moment, and a key that both prove.

The executor makes a key and a certificate that live as long as it does; a hand finds the certificate's
fingerprint in its environment. Each attempt of each hand has a key of its own (``model.attempt_key``), which
it reads from its standard input and which the executor computes. The hand talks to nobody but the holder of
the certificate, and both sides prove the key before anything else is read, let alone unpickled.
"""

import hashlib
import hmac
import os
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

CERTIFICATE_DAYS: Final = 3650
"""Nobody reads it: the hand trusts a fingerprint and not a date."""
RECORD_BYTES_MAX: Final = 16 << 10
"""The most that TLS gives at once."""
HAND: Final = b"hanse hand"
EXECUTOR: Final = b"hanse executor"


class Certificate:
    """A key of the moment with its certificate."""

    def __init__(self) -> None:
        from cryptography import x509  # noqa: PLC0415  slow to import, and a hand needs none
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

    def context(self) -> ssl.SSLContext:
        """For the executor's side."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0  # nobody comes back with a ticket
        descriptor, name = tempfile.mkstemp(prefix="hanse-key-")  # mode 0600; ssl reads keys from files only
        try:
            os.write(descriptor, self._pem)
            context.load_cert_chain(name)
        finally:
            os.close(descriptor)
            Path(name).unlink()
        return context


def hand_context() -> ssl.SSLContext:
    """For a hand's side. The certificate is checked by its fingerprint, after the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def proof(
    key: bytes, role: bytes, challenge: bytes, nonce: bytes, fingerprint: bytes, who: tuple[str, int, int]
) -> bytes:
    """What shows that ``role`` knows the key, to whoever sent it a nonce of their own.

    ``who``: job, index and attempt of the hand. All parts but this last one are of fixed length.
    """
    job, index, attempt = who
    text = f" {job}.{index}.{attempt}".encode()
    return hmac.digest(key, role + challenge + nonce + fingerprint + text, "sha256")


def proved(given: bytes, wanted: bytes) -> bool:
    """Whether a proof is right, in the same time whatever it is."""
    return hmac.compare_digest(given, wanted)


class Sealed:
    """TLS over memory: whoever owns the socket moves the bytes. For one thread at a time."""

    def __init__(self, context: ssl.SSLContext, server: bool) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server)

    def fingerprint(self) -> bytes:
        """Of the other side's certificate."""
        return hashlib.sha256(self._tls.getpeercert(binary_form=True) or b"").digest()

    def shaken(self) -> bool:
        """Go on with the handshake; whether it is done. Raises ``ssl.SSLError`` if it fails."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def feed(self, data: bytes) -> None:
        """Bytes came from the socket; none: it is closed."""
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def take(self) -> bytes:
        """What has come in so far, in clear. Raises ``ssl.SSLError`` if it was tampered with."""
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

    def seal(self, data: bytes) -> None:
        """Add to what goes out."""
        self._tls.write(data)

    def out(self) -> bytes:
        """What is to be written to the socket now."""
        return self._outgoing.read()
