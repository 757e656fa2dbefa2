"""Commands of ``hanse``: one module per family, imported when one of its commands runs."""
