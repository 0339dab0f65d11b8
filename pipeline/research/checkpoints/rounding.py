"""float64 to 16 bits in one rounding.

torch goes from float64 to bfloat16 and float16 through float32. What float32 rounds to a tie is
then rounded wrongly: 1 + 2^-8 + 2^-32 becomes 1 in bfloat16, whose next number is 1 + 2^-7. So the
step to float32 rounds to odd here: what is not exact gets a last bit of 1, which is no tie, and
lies on the right side of every tie.

Source: Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using
rounding to odd" (2008).
"""

import numpy as np
import torch

_LOW = (1 << 29) - 1  # the bits of a float64 that a float32 has no place for


def assign(out: torch.Tensor, total: torch.Tensor, spare: torch.Tensor, wide: bool) -> None:
    """Round every number once, to the nearest of `out`'s dtype, ties to even.

    Args:
        out: takes the numbers; of any float dtype.
        total: the numbers, in float64; they may lose their last bits.
        spare: float64, as many, to work in.
        wide: whether they may be no mean of numbers of `out`'s dtype, and so as small as any.
    """
    if out.dtype not in (torch.bfloat16, torch.float16):
        out.copy_(total)
    elif not wide:  # on the bits; NumPy adds whole numbers faster than torch
        bits, sticky = total.numpy().view(np.int64), spare.numpy().view(np.int64)
        np.bitwise_and(bits, _LOW, out=sticky)
        sticky += _LOW
        bits |= sticky
        bits &= ~_LOW
        out.copy_(total)
    else:  # so small that float32 has fewer bits for them
        near = total.float()
        back = near.double()
        even = (near.view(torch.int32) & 1 == 0) & (back != total)
        toward = torch.where(back < total, torch.inf, -torch.inf).float()
        out.copy_(torch.where(even, torch.nextafter(near, toward), near))
