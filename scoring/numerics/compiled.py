"""Compiling loops, the same way everywhere."""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile on first use, without the interpreter lock, and keep the result on the disk."""
    try:
        made: Function = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        made = numba.njit(nogil=True)(function)
    return made
