"""Private keys and certificate requests. Imports ``cryptography``: for joining and renewing only."""

from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

REQUEST_BYTES_MAX: Final = 8 << 10
"""The largest certificate request that is parsed."""


def new_key() -> str:
    """Return a new private key (P-256) as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode("ascii")


def certificate_request(key: str) -> str:
    """Return a certificate request for this private key. It names nobody: the sender's identity comes from
    its token or present certificate."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hanse")])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    signed = builder.sign(load_key(key), hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM).decode("ascii")


def load_key(pem: str) -> ec.EllipticCurvePrivateKey:
    """Load a private key that ``new_key`` made."""
    key = serialization.load_pem_private_key(pem.encode("ascii"), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey), "our keys are P-256"
    return key


def load_certificate_request(pem: str) -> ec.EllipticCurvePublicKey | str:
    """Return the key of a certificate request, or a sentence saying why none is issued. No input raises."""
    if len(pem) > REQUEST_BYTES_MAX:
        return f"a request takes at most {REQUEST_BYTES_MAX} bytes"
    try:
        found = x509.load_pem_x509_csr(pem.encode("ascii"))
        genuine = found.is_signature_valid
        key = found.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "this is not a certificate request in PEM"
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        return "certificates are issued for P-256 keys only"
    if not genuine:
        return "the request is not signed by its own key"
    return key


def encode_public_key(key: ec.EllipticCurvePublicKey) -> bytes:
    """Return a public key as in certificates (SubjectPublicKeyInfo)."""
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
