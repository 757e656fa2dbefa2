"""Verification of signatures of the league's authority, without a library that can also make them.

Daemons check access tokens. ``cryptography`` would cost each of them 8 MB for that one check, while the
OpenSSL under Python's ``ssl`` is loaded anyway: its ``EVP_DigestVerify`` is called directly. If it cannot be
reached (a Python that hides it in its own binary), ``cryptography`` is imported.
"""

import _ssl
import ctypes
from collections.abc import Callable
from typing import Any, Final

SignatureVerifier = Callable[[bytes, bytes, bytes], bool]
"""Public key (SubjectPublicKeyInfo), signature (DER), signed bytes -> whether the signature is genuine."""

_POINTER: Final = ctypes.c_void_p
_FUNCTIONS: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "d2i_PUBKEY": (_POINTER, (_POINTER, ctypes.POINTER(ctypes.c_char_p), ctypes.c_long)),
    "EVP_PKEY_free": (None, (_POINTER,)),
    "EVP_MD_CTX_new": (_POINTER, ()),
    "EVP_MD_CTX_free": (None, (_POINTER,)),
    "EVP_sha256": (_POINTER, ()),
    "EVP_DigestVerifyInit": (ctypes.c_int, (_POINTER, _POINTER, _POINTER, _POINTER, _POINTER)),
    "EVP_DigestVerify": (
        ctypes.c_int,
        (_POINTER, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t),
    ),
    "ERR_clear_error": (None, ()),
}
"""OpenSSL functions in use (1.1.1 or later): results and arguments."""


def openssl_verifier() -> SignatureVerifier | None:
    """Return a verifier on Python's own OpenSSL; None if its functions cannot be reached."""
    try:
        library = ctypes.CDLL(getattr(_ssl, "__file__", None))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None

    def verify(key: bytes, signature: bytes, signed: bytes) -> bool:
        place = ctypes.c_char_p(key)
        public = library.d2i_PUBKEY(None, ctypes.byref(place), len(key))
        context = library.EVP_MD_CTX_new()
        try:
            return bool(
                public
                and context
                and library.EVP_DigestVerifyInit(context, None, library.EVP_sha256(), None, public) == 1
                and library.EVP_DigestVerify(context, signature, len(signature), signed, len(signed)) == 1
            )
        finally:
            library.EVP_MD_CTX_free(context)
            library.EVP_PKEY_free(public)
            library.ERR_clear_error()  # this thread's error queue belongs to the TLS connections

    return verify


def verify_with_cryptography(key: bytes, signature: bytes, signed: bytes) -> bool:
    """Verify with ``cryptography``: the fallback, and the tests' oracle."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415  8 MB that daemons should not need
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    try:
        public = serialization.load_der_public_key(key)
        assert isinstance(public, ec.EllipticCurvePublicKey), "our authorities have P-256 keys"
        public.verify(signature, signed, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError):
        return False
    return True


is_genuine_signature: Final[SignatureVerifier] = openssl_verifier() or verify_with_cryptography
"""Returns whether a signature is the key's: ECDSA with SHA-256. Malformed input is not."""
