"""Weights kept as bf16 where that loses nothing: half the memory, and half the bytes that a decoding step reads.

Checkpoints are mostly published in bf16, so their fp32 weights have nothing in their lower halves. The modules here
keep such weights as they were published and compute in the precision of what comes in: products, log-probs and
gradients are those of the fp32 modules, to the last bit.

Asymmetry: a product through torch (the trainer's) widens a whole weight for its duration, which its many rows outweigh;
the engine widens a few columns at a time (`products`).
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class HalfLinear(nn.Linear):
    """A frozen linear layer whose weight is bf16; for input in fp32 its output and gradient are fp32."""

    def forward(self, input: Tensor) -> Tensor:
        product: Tensor = cast(Any, _WidenedProduct.apply)(input, self.weight)
        return product if self.bias is None else product + self.bias


class HalfEmbedding(nn.Embedding):
    """Frozen embeddings kept in bf16 and given in fp32."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input).float()


class _WidenedProduct(torch.autograd.Function):
    """`x W^T`, keeping W as it is stored for the backward pass: a widened copy would outlive its use."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        return F.linear(x, weight.to(x.dtype))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (weight,) = ctx.saved_tensors
        return grads[0] @ weight.to(grads[0].dtype), None


def keep_halves(module: nn.Module) -> bool:
    """Turn all linear layers and embeddings of a frozen fp32 model into ones that keep bf16; whether it was done.

    Nothing is changed if one of them would lose anything by it. Tied weights stay tied.
    """
    places = [child for child in module.modules() if type(child) in (nn.Linear, nn.Embedding)]
    halved: dict[int, nn.Parameter] = {}
    for child in places:
        weight = cast(Tensor, child.weight)
        if id(weight) not in halved:
            half = weight.detach().to(torch.bfloat16)
            if not torch.equal(half.float(), weight):
                return False
            halved[id(weight)] = nn.Parameter(half, requires_grad=False)
    for child in places:
        child.weight = halved[id(child.weight)]
        child.__class__ = HalfLinear if isinstance(child, nn.Linear) else HalfEmbedding
    return True
