"""What a child process reads from its standard input, when all of it is known beforehand."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def child_input(data: bytes) -> Iterator[int]:
    """A descriptor from which a child reads this, then its end. It is a file in memory: a pipe would have to
    be written to while the child may already have ended, which every event loop tells in its own way."""
    descriptor = os.memfd_create("input", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)
