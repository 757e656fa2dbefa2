"""``python -m hanse``: the command line, for those who start it from another program."""

from hanse.app.cli import main

if __name__ == "__main__":
    main()
