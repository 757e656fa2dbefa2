"""A parser of certificates that needs the standard library only.

Daemons need the end of their own certificate and the identity in it, without a library that can also make
certificates. Only the few fields below are parsed; TLS (or ``enrollment.accept``) verifies that a certificate
is *genuine*. All input is bounded, and malformed input is a ``CertificateError``.
"""

import binascii
import hashlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from hanse.model.ids import SECOND
from hanse.security.identity import BACKDATE, Identity, parse_identity

PEM_BYTES_MAX: Final = 64 << 10
"""The largest file or message with certificates that is parsed."""
_BLOCK: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----\r?\n([A-Za-z0-9+/=\r\n]+)-----END CERTIFICATE-----", re.ASCII
)
_SEQUENCE, _OCTETS, _OID, _UTC_TIME, _GENERAL_TIME = 0x30, 0x04, 0x06, 0x17, 0x18
_VERSION, _EXTENSIONS, _URI = 0xA0, 0xA3, 0x86
_ALTERNATIVE_NAMES: Final = bytes.fromhex("551d11")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class CertificateError(ValueError):
    """The input is not a certificate that we can parse."""


class Certificate(msgspec.Struct, frozen=True):
    """The parsed part of a certificate. Times in microseconds since 1970."""

    identity: Identity | None
    """None: it does not carry exactly one well-formed identity (an authority's own does not)."""
    not_before: int
    not_after: int
    fingerprint: str
    """``sha256:`` and the digest of the public key (SubjectPublicKeyInfo) in hexadecimal digits."""

    @property
    def issued_at(self) -> int:
        """Time at which the authority issued it."""
        return self.not_before + BACKDATE


def read_certificate(pem: str) -> Certificate:
    """Parse the first certificate of a PEM text (which may hold a key as well)."""
    return _parse(_der(pem))


def _der(pem: str) -> bytes:
    """Return the bytes of the first certificate of a PEM text."""
    if len(pem) > PEM_BYTES_MAX:
        raise CertificateError(f"a certificate takes at most {PEM_BYTES_MAX} bytes")
    block = _BLOCK.search(pem)
    if block is None:
        raise CertificateError("there is no certificate in this text")
    try:
        return binascii.a2b_base64(block[1])
    except binascii.Error as error:
        raise CertificateError(f"the certificate is not base64: {error}") from None


def public_key_of(pem: str) -> bytes:
    """Return the public key (SubjectPublicKeyInfo in DER) of the first certificate of a PEM text."""
    return _public_key(_der(pem))


def is_due_for_renewal(path: Path, now: int) -> bool:
    """Return whether two thirds of a certificate's life are over. ``now``: microseconds since 1970."""
    certificate = read_certificate(path.read_text(encoding="ascii"))
    span = certificate.not_after - certificate.not_before
    return 3 * (now - certificate.not_before) >= 2 * span


def _parse(der: bytes) -> Certificate:
    """Parse Certificate ::= {tbs {[0] version, serial, algorithm, issuer, validity, subject, key, ...}
    ...}."""
    fields = _fields(der)
    try:
        times = list(_items(_expect(fields[3], _SEQUENCE)))
        return Certificate(
            identity=_identity(fields[6:]),
            not_before=_instant(*times[0]),
            not_after=_instant(*times[1]),
            fingerprint=fingerprint_of(_public_key(der)),
        )
    except (IndexError, StopIteration):
        raise CertificateError("the certificate ends early") from None


def _fields(der: bytes) -> list[tuple[int, bytes]]:
    """Return the fields of the signed part, from the serial number on."""
    try:
        whole = next(_items(der))
        body = next(_items(_expect(whole, _SEQUENCE)))
        fields = list(_items(_expect(body, _SEQUENCE)))
    except (IndexError, StopIteration):
        raise CertificateError("the certificate ends early") from None
    return fields[1:] if fields and fields[0][0] == _VERSION else fields


def _public_key(der: bytes) -> bytes:
    fields = _fields(der)
    if len(fields) < 6:
        raise CertificateError("the certificate ends early")
    return _encode_item(fields[5])


def fingerprint_of(key: bytes) -> str:
    """Return the fingerprint by which a public key (its DER) is pinned."""
    return f"sha256:{hashlib.sha256(key).hexdigest()}"


def _identity(fields: list[tuple[int, bytes]]) -> Identity | None:
    """Return the identity from the only URI among the alternative names."""
    uris: list[str] = []
    for tag, content in fields:
        if tag != _EXTENSIONS:
            continue
        for extension in _items(_expect(next(_items(content)), _SEQUENCE)):
            parts = list(_items(_expect(extension, _SEQUENCE)))
            if _expect(parts[0], _OID) == _ALTERNATIVE_NAMES:
                names = _expect(next(_items(_expect(parts[-1], _OCTETS))), _SEQUENCE)
                uris += [text.decode("ascii", "replace") for tag, text in _items(names) if tag == _URI]
    return parse_identity(uris[0]) if len(uris) == 1 else None


def _items(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the tag and content of every item of a DER sequence's content."""
    at = 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length >= 0x80:
            count = length & 0x7F
            if not 1 <= count <= 3:
                raise CertificateError("a part of the certificate is too long")
            length = int.from_bytes(data[at : at + count], "big")
            at += count
        if at + length > len(data):
            raise CertificateError("the certificate ends early")
        yield tag, data[at : at + length]
        at += length


def _expect(item: tuple[int, bytes], tag: int) -> bytes:
    if item[0] != tag:
        raise CertificateError(f"the certificate has {item[0]:#x} where {tag:#x} belongs")
    return item[1]


def _encode_item(item: tuple[int, bytes]) -> bytes:
    """Return an item encoded with its tag and length."""
    tag, content = item
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(octets))) + octets + content


def _instant(tag: int, content: bytes) -> int:
    """Return a time of a certificate in microseconds; years of two digits below 50 belong to this century."""
    text = content.decode("ascii", "replace")
    if tag == _UTC_TIME:
        text = ("20" if text[:2] < "50" else "19") + text
    elif tag != _GENERAL_TIME:
        raise CertificateError("the certificate's times have an unknown format")
    try:
        moment = datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise CertificateError(f"{text!r} is not a time") from None
    return int((moment - _EPOCH).total_seconds()) * SECOND
