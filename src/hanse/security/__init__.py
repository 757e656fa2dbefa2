"""Authentication: certificates of one private authority, join tokens, and the identities they carry.

``identity`` (roles and names), ``certificate_parser`` (parsing), ``credentials`` (TLS contexts) and
``join_tokens`` need the standard library only; ``private_keys``, ``certificate_authority`` and ``enrollment``
make keys and certificates and import ``cryptography`` (10 MB), so a daemon imports those three only for as
long as it takes to join or renew.
"""
