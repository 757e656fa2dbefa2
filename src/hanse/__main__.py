"""``python -m hanse``: the command line, started as a module."""

from hanse.cli.main import main

if __name__ == "__main__":
    main()
