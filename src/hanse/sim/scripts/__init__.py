"""Golden scripts: stories of a league as text, and the vocabulary of the script language."""
