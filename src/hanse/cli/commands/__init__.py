"""Commands of ``hanse``, a module for each family, imported when one of them is used."""
