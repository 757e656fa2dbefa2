"""How members talk: frames of envelopes over mutual TLS, checked before any machine sees them."""
