"""Client of a league: contexts, endpoints, transport, and the calls that commands and the SDK share."""
