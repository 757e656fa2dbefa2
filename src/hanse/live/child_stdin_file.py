"""Standard input of a child process as a file in memory, for data that is known beforehand."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def open_child_stdin(data: bytes) -> Iterator[int]:
    """Yield a file descriptor from which a child reads this data, then its end. It is a file in memory: event
    loops differ in how they report a child that ends before all data is written to a pipe."""
    descriptor = os.memfd_create("input", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)
