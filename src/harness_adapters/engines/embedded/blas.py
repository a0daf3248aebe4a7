"""Matrix products of few and of many rows, each by the library and the number of threads that suit it.

With few rows (decoding) a product takes a millisecond or less. Sharing it between threads gains little, since reading
the weights is the work, and costs much as soon as other processes want a core: every product then waits for a thread
that the system has put aside, 8 ms a time. So few rows go through numpy's BLAS on one thread, which on AMD processors
is also 1.5 times as fast there as torch's. Many rows (prompts) are arithmetic: torch, on all its threads.

Asymmetry: the number of OpenBLAS threads is one setting of the whole process; torch's is not touched.
"""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

log = logging.getLogger(__name__)

FEW_ROWS = 64

SETTERS = ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads")
"""What OpenBLAS calls its setter in numpy's wheels, newest first."""


def dense(x: Tensor, weight: Tensor) -> Tensor:
    """`x @ weight` for `x` `[rows, in]` and `weight` `[in, out]`, fp32, no gradients."""
    if x.shape[0] > FEW_ROWS:
        return torch.mm(x, weight)
    return torch.from_numpy(x.numpy() @ weight.numpy())


def use_one_openblas_thread() -> bool:
    """Have numpy's OpenBLAS compute on the calling thread only. False where numpy came with another BLAS."""
    for path in (Path(np.__file__).parent.parent / "numpy.libs").glob("*openblas*"):
        library = ctypes.CDLL(str(path))
        for name in SETTERS:
            if hasattr(library, name):
                getattr(library, name)(ctypes.c_int(1))
                return True
    log.info("numpy has no OpenBLAS of its own; its BLAS keeps its threads")
    return False
