"""Checking a signature of the league's authority, without a library that can also make them.

Daemons check access tokens. ``cryptography`` would cost each of them 8 MB for that one question, while the
OpenSSL that Python's ``ssl`` is built on is loaded anyway: its ``EVP_DigestVerify`` is called directly. Where
it cannot be reached (a Python that hides it in its own binary), ``cryptography`` is imported after all.
"""

import _ssl
import ctypes
from collections.abc import Callable
from typing import Any, Final

Check = Callable[[bytes, bytes, bytes], bool]
"""Public key (SubjectPublicKeyInfo), signature (DER), what was signed -> whether it is genuine."""

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
"""What is used of OpenSSL (1.1.1 or later): results and arguments."""


def by_openssl() -> Check | None:
    """The check that Python's own OpenSSL makes; None if its functions cannot be reached."""
    try:
        library = ctypes.CDLL(getattr(_ssl, "__file__", None))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None

    def check(key: bytes, signature: bytes, signed: bytes) -> bool:
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
            library.ERR_clear_error()  # this thread's queue of errors belongs to the TLS connections

    return check


def by_cryptography(key: bytes, signature: bytes, signed: bytes) -> bool:
    """The same check by ``cryptography``: the fallback, and the tests' oracle."""
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


genuine: Final[Check] = by_openssl() or by_cryptography
"""Whether a signature is the key's: ECDSA with SHA-256. Anything malformed is not."""
