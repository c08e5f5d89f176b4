"""The code of gpt.yaml: a decoder of two blocks over characters, in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

CHARACTERS = "0123456789="
DIGITS = 6
LENGTH = 2 * DIGITS + 1  # 478512=215874


def texts(count: int, rng: np.random.Generator, test: int = 200) -> tuple[Tensor, Tensor]:
    """Return lines for training and test: int64 [n, 13], indices into CHARACTERS."""
    digits = torch.from_numpy(rng.integers(0, 10, (count + test, DIGITS)))
    sign = torch.full((count + test, 1), CHARACTERS.index("="))
    lines = torch.cat([digits, sign, digits.flip(1)], dim=1)
    return lines[:count], lines[count:]


class Block(nn.Module):
    """Attention to what came before, then a layer for each place by itself."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.each = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(0.05)

    def forward(self, x: Tensor) -> Tensor:
        """Return x [n, length, width] with what both parts add."""
        n, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).reshape(n, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.mix(found.transpose(1, 2).reshape(n, length, width)))
        return x + self.dropout(self.each(self.norms[1](x)))


class GPT(nn.Module):
    """Characters in, scores of the next character out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(CHARACTERS), width)
        self.place = nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(Block(width), Block(width), nn.LayerNorm(width))
        self.scores = nn.Linear(width, len(CHARACTERS), bias=False)
        self.scores.weight = self.embed.weight  # tied
        for embedding in (self.embed, self.place):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, lines: Tensor) -> Tensor:
        """Return scores [n, length, characters] for lines [n, length]."""
        places = torch.arange(lines.shape[1])
        return self.scores(self.blocks(self.embed(lines) + self.place(places)))


def build(width: int, rate: float) -> tuple[GPT, torch.optim.Optimizer]:
    """Build the model and its optimizer."""
    gpt = GPT(width)
    return gpt, torch.optim.AdamW(gpt.parameters(), lr=rate, betas=(0.9, 0.95))


def gradients(lines: Tensor, gpt: Any, accumulate: int) -> float:
    """Add the gradients of one batch; return the loss of the digits after the sign."""
    gpt.train()
    scores = gpt(lines[:, :-1])[:, DIGITS:]
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), lines[:, DIGITS + 1 :].flatten())
    (loss / accumulate).backward()
    return loss.item()


def update(gpt: Any, optimizer: torch.optim.Optimizer) -> None:
    """Make a step with the gradients, and begin anew."""
    nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


@torch.no_grad()
def right_lines(gpt: Any, lines: Tensor) -> float:
    """Return the share of lines of which all digits after the sign are right."""
    gpt.eval()
    said = lines[:, : DIGITS + 1]
    for _ in range(DIGITS):
        said = torch.cat([said, gpt(said)[:, -1:].argmax(2)], dim=1)
    return (said == lines).all(1).double().mean().item()
