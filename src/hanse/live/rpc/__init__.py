"""Messages between members: frames of envelopes over mutual TLS, validated before a machine handles them."""
