"""``python -m hanse``: the command line, for those who start it from another program."""

from hanse.cli.main import main

if __name__ == "__main__":
    main()
