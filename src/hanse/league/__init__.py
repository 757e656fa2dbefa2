"""The league file: who belongs to a league, where, and with which settings."""
