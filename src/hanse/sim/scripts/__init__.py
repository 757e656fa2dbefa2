"""Scripts: golden stories of a league as text, and the words they are written in."""
