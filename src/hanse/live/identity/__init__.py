"""Who may speak: certificates of one private authority, join tokens, and the identities they carry.

``identity`` (roles and names), ``certificate`` (reading), ``credentials`` (TLS contexts) and ``tokens`` need
the standard library only; ``keys``, ``authority`` and ``enrol`` make keys and certificates and import
``cryptography`` (10 MB), so a daemon imports those three only for as long as it takes to join or renew.
"""
