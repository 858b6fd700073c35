#!/usr/bin/env python3
"""One formula in many spellings, as PyTorch exports them: the kernels that each becomes, and near-misses that must stay
what they are.

usage: spellings_test.py TESSERA [unittest arguments]     Skips where torch is not installed.
"""
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest
import warnings

try:
    import numpy
    import torch
    import torch.nn.functional as F
except ImportError as missing:
    print(f"SKIPPED: {missing}")
    sys.exit(77)

TESSERA = ""
WIDTH, HEADS, TOKENS = 64, 4, 16
SIZE = WIDTH // HEADS


class Formula(torch.nn.Module):
    """f(module, inputs...), where the module has a layer, a gain, a shift and tables of angles."""

    def __init__(self, f):
        super().__init__()
        self.f = f
        self.layer, self.merged = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.wide = torch.nn.Linear(WIDTH, 2 * WIDTH)
        self.q, self.k, self.v = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.gain, self.shift = torch.nn.Parameter(torch.rand(WIDTH)), torch.nn.Parameter(torch.rand(WIDTH))
        angles = torch.outer(torch.arange(TOKENS).float(), 1 / 10000 ** (torch.arange(0, SIZE, 2).float() / SIZE))
        self.register_buffer("half_cos", angles.cos())
        self.register_buffer("half_sin", angles.sin())
        self.register_buffer("pair_cos", angles.cos().repeat_interleave(2, -1))
        self.register_buffer("pair_sin", angles.sin().repeat_interleave(2, -1))
        self.register_buffer("cos", torch.cat([angles, angles], -1).cos())
        self.register_buffer("sin", torch.cat([angles, angles], -1).sin())

    def forward(self, *inputs):
        return self.f(self, *inputs)


def activation(f):
    return lambda m, x: f(m.layer(x))


def with_half(x, f):
    return f(0.5 * x)


ACTIVATIONS = {
    "linear+gelu": [
        lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
        lambda x: 0.5 * x * (1 + torch.erf(x * 0.7071067811865476)),
        lambda x: (torch.erf(x / 1.4142135) + 1) * x / 2,
        lambda x: x * (0.5 * torch.erf(x * math.sqrt(0.5)) + 0.5),
        lambda x: (x + x * torch.erf(x / math.sqrt(2))) * 0.5,
        lambda x: x * 0.5 * (1 - torch.erf(-x / math.sqrt(2))),
        lambda x: x * torch.distributions.Normal(0, 1).cdf(x),
        lambda x: with_half(x, lambda half: half + half * torch.erf(x * 0.7071067811865476)),
        lambda x: with_half(x, lambda half: half * (torch.erf(x / math.sqrt(2)) + 1)),
        F.gelu,
    ],
    "linear+gelu_tanh": [
        lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3)))),
        lambda x: x * 0.5 * (1 + torch.tanh(0.7978845608 * x * (1 + 0.044715 * x * x))),
        lambda x: x * torch.sigmoid(2 * 0.7978845608 * (x + 0.044715 * x * x * x)),
        lambda x: x / (1 + torch.exp(-1.5957691216 * (x + 0.044715 * x**3))),
        lambda x: 0.5 * x * (1 + torch.tanh(x * 0.7978845608 + 0.0356774081 * x * x * x)),
        lambda x: 0.5 * x * (1 + torch.tanh(x * (0.7978845608 + 0.0356774081 * x * x))),
        lambda x: 0.5 * (x + x * torch.tanh(0.7978845608 * (x + 0.044715 * x**3))),
        lambda x: with_half(x, lambda half: half + half * torch.tanh(0.7978845608 * (x + 0.044715 * x * (x * x)))),
        lambda x: x * torch.sigmoid(x * (1.5957691216 + 0.0713548163 * x * x)),
    ],
    "linear+silu": [lambda x: x * torch.sigmoid(x), lambda x: x / (1 + torch.exp(-x)), F.silu,
                    lambda x: x * 0.5 * (1 + torch.tanh(x * 0.5))],
    "linear+hard_swish": [F.hardswish, lambda x: x * F.relu6(x + 3) / 6, lambda x: x * (F.relu6(x + 3) / 6),
                          lambda x: x * torch.clamp(x + 3, 0, 6) / 6, lambda x: x * torch.clamp(x / 6 + 0.5, 0, 1),
                          lambda x: x * torch.clamp((x + 3) / 6, 0, 1)],
    "linear+relu": [F.relu, lambda x: torch.clamp(x, min=0), lambda x: torch.max(x, torch.zeros_like(x)),
                    lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
                    lambda x: torch.where(x >= 0, x, torch.zeros_like(x)),
                    lambda x: torch.where(x < 0, torch.zeros_like(x), x)],
    "linear+sigmoid": [torch.sigmoid, lambda x: 1 / (1 + torch.exp(-x)), lambda x: 0.5 * (1 + torch.tanh(0.5 * x))],
    "linear+mul+max": [lambda x: F.leaky_relu(x, 0.1)],
    # No composite, but one kernel: paths that part and meet again.
    "linear+mul+sigmoid+mul": [lambda x: x * torch.sigmoid(1.702 * x)],
    "linear+softplus+tanh+mul": [lambda x: x * torch.tanh(F.softplus(x))],
}
NOT_ACTIVATIONS = {
    "a gelu of another value": lambda x: x * 0.5 * (1 + torch.erf((x + 1) / math.sqrt(2))),
    "a gelu with another scale": lambda x: x * 0.5 * (1 + torch.erf(x / 2)),
    "half a gelu": lambda x: x * (0.25 + 0.5 * torch.erf(x / math.sqrt(2))),
    "a tanh with another cube": lambda x: 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.05 * x**3))),
    "a sigmoid of another value": lambda x: x / (1 + torch.exp(-x - 1)),
    "a clip elsewhere": lambda x: x * torch.clamp(x + 2, 0, 6) / 6,
    "half of another value": lambda x: with_half(x + 1, lambda half: half + half * torch.erf(x / math.sqrt(2))),
    "a selection of another value": lambda x: torch.where(x > 1, x, torch.zeros_like(x)),
}


def layer_norm(variance):
    def f(m, x):
        d = x - x.mean(-1, keepdim=True)
        return d / torch.sqrt(variance(d) + 1e-5) * m.gain + m.shift
    return f


def by_scale(m, x, put):
    mean = x.mean(-1, keepdim=True)
    return put(x, mean, torch.rsqrt((x - mean).pow(2).mean(-1, keepdim=True) + 1e-5) * m.gain)


def by_squares(power):
    """The variance as E[x^2] - E[x]^2, which loses digits: only where the user asks for it."""
    def f(m, x):
        mean = x.mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(power(x).mean(-1, keepdim=True) - power(mean) + 1e-5) * m.gain + m.shift
    return f


SQUARES = [by_squares(lambda x: x * x), by_squares(lambda x: x**2)]
NORMS = {
    "layer_norm": [
        layer_norm(lambda d: d.pow(2).mean(-1, keepdim=True)),
        layer_norm(lambda d: (d * d).mean(-1, keepdim=True)),
        lambda m, x: F.layer_norm(x, (WIDTH,), m.gain, m.shift),
        lambda m, x: F.layer_norm(x.reshape(-1, WIDTH), (WIDTH,), m.gain, m.shift).reshape(x.shape),
        lambda m, x: (x - x.mean(-1, keepdim=True)) * torch.rsqrt(
            x.var(-1, keepdim=True, unbiased=False) + 1e-5) * m.gain + m.shift,
        lambda m, x: by_scale(m, x, lambda x, mean, scale: x * scale + (m.shift - mean * scale)),
        lambda m, x: by_scale(m, x, lambda x, mean, scale: x * scale - mean * scale + m.shift),
        lambda m, x: F.layer_norm(x.view(*x.shape[:-1], 8, 8), (8, 8), m.gain.view(8, 8), m.shift.view(8, 8)).view(
            x.shape),
    ],
    "rms_norm": [
        lambda m, x: m.gain * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)),
        lambda m, x: x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6) * m.gain,
        lambda m, x: x * (1 + m.gain) * (x.pow(2).mean(-1, keepdim=True) + 1e-6).pow(-0.5),
        lambda m, x: x * (1 / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)) * m.gain,
        # Rows of length 1, but for eps.
        lambda m, x: x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6),
        lambda m, x: x / torch.sqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6) * m.gain,
    ],
}
# Channels that do not come last are turned there and back.
CHANNEL_NORMS = [
    lambda m, x: by_channels(m, x, (x - x.mean(1, keepdim=True)).pow(2).mean(1, keepdim=True)),
    lambda m, x: by_channels(m, x, x.var(1, keepdim=True, unbiased=False)),
    lambda m, x: F.layer_norm(x.permute(0, 2, 3, 1), (8,), m.gain[:8], m.shift[:8]).permute(0, 3, 1, 2),
]


def by_channels(m, x, variance):
    """As ConvNeXt and SAM are written."""
    y = (x - x.mean(1, keepdim=True)) / torch.sqrt(variance + 1e-6)
    return m.gain[:8, None, None] * y + m.shift[:8, None, None]


# A row for each group of channels; each channel's scale and shift is one more kernel.
GROUP_NORMS = [
    lambda m, x: F.group_norm(x, 2, m.gain[:8], m.shift[:8]),
    lambda m, x: F.instance_norm(x.reshape(x.shape[0], 2, -1)).reshape(x.shape) * m.gain[:8].view(8, 1, 1) +
    m.shift[:8].view(8, 1, 1),
    lambda m, x: F.layer_norm(x.reshape(x.shape[0], 2, -1), (4 * 36,)).view(x.shape) * m.gain[:8].view(1, 8, 1, 1) +
    m.shift[:8].view(1, 8, 1, 1),
    lambda m, x: F.instance_norm(x, weight=m.gain[:8], bias=m.shift[:8]),
]
NOT_NORMS = {
    "a gain inside of the square root": lambda m, x: x / torch.sqrt(m.gain * x.pow(2).mean(-1, keepdim=True) + 1e-6),
    "an unbiased variance": lambda m, x: (x - x.mean(-1, keepdim=True)) / torch.sqrt(
        x.var(-1, keepdim=True, unbiased=True) + 1e-5) * m.gain + m.shift,
    "a mean of another value": lambda m, x: x * torch.rsqrt((x + 1).pow(2).mean(-1, keepdim=True) + 1e-6),
    "a norm of columns": lambda m, x: x * torch.rsqrt(x.pow(2).mean(-2, keepdim=True) + 1e-6),
    "a layer norm of columns": lambda m, x: (x - x.mean(1, keepdim=True)) / torch.sqrt(
        x.var(1, keepdim=True, unbiased=False) + 1e-6) * m.gain + m.shift,
    "a mean of rows and a variance of columns": lambda m, x: (x - x.mean(-1, keepdim=True)) / torch.sqrt(
        x.var(1, keepdim=True, unbiased=False) + 1e-6) * m.gain,
    "eps outside of the root": lambda m, x: x / (x.pow(2).mean(-1, keepdim=True).sqrt() + 1e-6) * m.gain,
    "eps outside of the root of a variance": lambda m, x: (x - x.mean(-1, keepdim=True)) / (
        x.var(-1, keepdim=True, unbiased=False).sqrt() + 1e-5) * m.gain,
    "a length that is held up": lambda m, x: F.normalize(x, dim=-1),
    "a variance without its root": lambda m, x: (x - x.mean(-1, keepdim=True)) / (
        x.var(-1, keepdim=True, unbiased=False) + 1e-5),
    "a largest, not a mean": lambda m, x: x * torch.rsqrt(x.pow(2).amax(-1, keepdim=True) + 1e-6),
}


def turned_pairs(x):
    return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)


def of_pairs(m, a, b):
    return torch.stack([a * m.half_cos - b * m.half_sin, a * m.half_sin + b * m.half_cos], -1)


HALF = SIZE // 2
ROTARY = [
    lambda m, x: x * m.cos + torch.cat([-x[..., HALF:], x[..., :HALF]], -1) * m.sin,
    lambda m, x: x * m.cos + torch.cat([-x.chunk(2, -1)[1], x.chunk(2, -1)[0]], -1) * m.sin,
    lambda m, x: torch.cat([x[..., :HALF] * m.half_cos - x[..., HALF:] * m.half_sin,
                            x[..., HALF:] * m.half_cos + x[..., :HALF] * m.half_sin], -1),
    lambda m, x: of_pairs(m, x[..., ::2], x[..., 1::2]).flatten(-2),
    lambda m, x: x * m.pair_cos + turned_pairs(x) * m.pair_sin,
    lambda m, x: of_pairs(m, x.reshape(*x.shape[:-1], HALF, 2)[..., 0],
                          x.reshape(*x.shape[:-1], HALF, 2)[..., 1]).reshape(x.shape),
    lambda m, x: torch.cat([x[..., :HALF] * m.cos[:, :HALF] + torch.cat(
        [-x[..., HALF // 2:HALF], x[..., :HALF // 2]], -1) * m.sin[:, :HALF], x[..., HALF:]], -1),
    lambda m, x: partly(x, m.half_cos[:, :HALF // 2], m.half_sin[:, :HALF // 2]),
]


def partly(x, cos, sin):
    """The first half turned, half by half of it."""
    a, b = x[..., :HALF // 2], x[..., HALF // 2:HALF]
    return torch.cat([torch.cat([a * cos - b * sin, b * cos + a * sin], -1), x[..., HALF:]], -1)


NOT_ROTARY = {
    "halves that are not negated": lambda m, x: x * m.cos + torch.cat([x[..., HALF:], x[..., :HALF]], -1) * m.sin,
    "halves in their places": lambda m, x: x * m.cos + torch.cat([-x[..., :HALF], x[..., HALF:]], -1) * m.sin,
    "the same table twice": lambda m, x: x * m.cos + torch.cat([-x[..., HALF:], x[..., :HALF]], -1) * (m.sin + x),
}


def heads(x):
    return x.view(x.shape[0], x.shape[1], HEADS, SIZE).transpose(1, 2)


def attention(scores=None, weights=None, parts=None, mask=None):
    def f(m, x, seen):
        q, k, v = parts(m, x) if parts else (heads(m.q(x)), heads(m.k(x)), heads(m.v(x)))
        s = scores(q, k) if scores else q @ k.transpose(-1, -2) / math.sqrt(SIZE)
        s = mask(s, seen) if mask else s + (1 - seen[:, None, None, :]) * -10000.0
        y = (weights(s) if weights else s.softmax(-1)) @ v
        return m.layer(y.reshape(x.shape[0], HEADS, -1, SIZE).transpose(1, 2).reshape(x.shape))
    return f


def flat(x):
    return x.reshape(-1, x.shape[2], x.shape[3])


def by_products(mask):
    """As Whisper and Bloom are written: heads within the batch, but for the mask."""
    def f(m, x, seen):
        q, k, v = flat(heads(m.q(x) * SIZE**-0.5)), flat(heads(m.k(x))), flat(heads(m.v(x)))
        s = torch.bmm(q, k.transpose(1, 2)).view(x.shape[0], HEADS, TOKENS, TOKENS)
        y = torch.bmm(flat(mask(s, seen)).softmax(-1), v)
        return m.layer(y.view(x.shape[0], HEADS, TOKENS, SIZE).transpose(1, 2).reshape(x.shape))
    return f


def shared(repeat):
    """Two heads of keys for four of queries."""
    def f(m, x):
        k, v = (t[..., :2 * SIZE].view(*x.shape[:2], 2, SIZE).transpose(1, 2) for t in (m.k(x), m.v(x)))
        return heads(m.q(x)), repeat(k), repeat(v)
    return f


def grouped(m, x):
    k, v = (t[..., :2 * SIZE].view(*x.shape[:2], 2, SIZE).transpose(1, 2).unsqueeze(2) for t in (m.k(x), m.v(x)))
    return heads(m.q(x)).view(x.shape[0], 2, 2, TOKENS, SIZE), k, v


def exponentials(largest):
    def f(s):
        e = torch.exp(s - largest(s))
        return e / e.sum(-1, keepdim=True)
    return f


def padding(seen):
    return seen[:, None, None, :]


LOWER = torch.tril(torch.ones(TOKENS, TOKENS))
LEAST = torch.finfo(torch.float32).min


ATTENTION = {
    "scale after": attention(),
    "scale before": attention(scores=lambda q, k: (q * SIZE**-0.5) @ k.transpose(-1, -2)),
    "scale of both": attention(scores=lambda q, k: (q * SIZE**-0.25) @ (k.transpose(-1, -2) * SIZE**-0.25)),
    "scale by a product": attention(scores=lambda q, k: (q @ k.permute(0, 1, 3, 2)) * (1 / math.sqrt(SIZE))),
    "einsum": attention(scores=lambda q, k: torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(SIZE)),
    "where": attention(mask=lambda s, seen: torch.where(seen[:, None, None, :] > 0, s, torch.tensor(-1e9))),
    "filled": attention(mask=lambda s, seen: s.masked_fill(seen[:, None, None, :] == 0, float("-inf"))),
    "filled with the least": attention(
        mask=lambda s, seen: s.masked_fill((seen == 0)[:, None, None, :], torch.finfo(torch.float32).min)),
    "capped": attention(mask=lambda s, seen: 30 * torch.tanh(s / 30) + (1 - seen[:, None, None, :]) * -1e4),
    "exponentials": attention(
        weights=lambda s: torch.exp(s - s.amax(-1, keepdim=True)) / torch.exp(s - s.amax(-1, keepdim=True)).sum(
            -1, keepdim=True)),
    "one product split": attention(parts=lambda m, x: [heads(t) for t in m.merged(x).split(WIDTH, -1)]),
    "one product unbound": attention(
        parts=lambda m, x: m.merged(x).reshape(*x.shape[:2], 3, HEADS, SIZE).permute(2, 0, 3, 1, 4).unbind(0)),
    "one product by heads": attention(
        parts=lambda m, x: m.merged(x).view(*x.shape[:2], HEADS, 3 * SIZE).transpose(1, 2).split(SIZE, -1)),
}
ATTENTION.update({
    "scale of keys": attention(scores=lambda q, k: q @ (k * SIZE**-0.5).transpose(-1, -2)),
    "scale by a root of a size": attention(
        scores=lambda q, k: q @ k.transpose(-1, -2) / torch.sqrt(torch.tensor(k.size(-1)).float())),
    "keys first": attention(scores=lambda q, k: (k @ q.transpose(-1, -2)).transpose(-1, -2) / 4),
    "keys permuted at once": attention(parts=lambda m, x: (heads(m.q(x)), m.k(x).view(
        *x.shape[:2], HEADS, SIZE).permute(0, 2, 3, 1).transpose(2, 3), heads(m.v(x)))),
    "heads in the batch": by_products(lambda s, seen: s + (1 - padding(seen)) * -1e4),
    "heads in the batch, filled": by_products(lambda s, seen: s.masked_fill(padding(seen) == 0, float("-inf"))),
    "less the largest": attention(weights=lambda s: torch.softmax(s - s.amax(-1, keepdim=True), -1)),
    "less the largest of two results": attention(weights=exponentials(lambda s: s.max(-1, keepdim=True)[0])),
    "exponentials as they are": attention(mask=lambda s, seen: s + padding(seen), weights=exponentials(lambda s: 0)),
    "a logarithm's exponential": attention(weights=lambda s: s.log_softmax(-1).exp()),
    "0 where there is no number": attention(
        mask=lambda s, seen: s.masked_fill(padding(seen) == 0, float("-inf")),
        weights=lambda s: (lambda p: torch.where(torch.isnan(p), torch.zeros_like(p), p))(s.softmax(-1))),
    "keys times a mask": attention(mask=lambda s, seen: s * padding(seen) - 1e4 * (1 - padding(seen))),
    "the triangle times": attention(mask=lambda s, seen: s * LOWER - 1e4 * (1 - LOWER)),
    "triangle and padding": attention(
        mask=lambda s, seen: s.masked_fill(LOWER * padding(seen) == 0, LEAST)),
    "no lower than the least": attention(mask=lambda s, seen: torch.max(
        s + ((1 - LOWER) * LEAST + (1 - padding(seen)) * -1e9), torch.tensor(LEAST))),
    "a mask of windows": attention(mask=lambda s, seen: (
        s.view(-1, 1, HEADS, TOKENS, TOKENS) + (1 - LOWER) * -5.0).view(-1, HEADS, TOKENS, TOKENS)),
    "keys expanded": attention(parts=shared(lambda t: t[:, :, None].expand(
        t.shape[0], 2, 2, TOKENS, SIZE).reshape(t.shape[0], HEADS, TOKENS, SIZE))),
    "keys stacked": attention(parts=shared(lambda t: torch.stack([t, t], 2).flatten(1, 2))),
    "keys of a group": attention(parts=grouped, mask=lambda s, seen: s + (1 - padding(seen)[:, None]) * -1e4),
    "one head of keys": attention(parts=lambda m, x: (
        heads(m.q(x)), m.k(x)[..., :SIZE].unsqueeze(1), m.v(x)[..., :SIZE].unsqueeze(1))),
})


def by_logarithm(s, shift=None):
    if shift is None:
        return torch.exp(s - torch.logsumexp(s, -1, keepdim=True))
    return torch.exp(s - (shift + torch.log(torch.exp(s - shift).sum(-1, keepdim=True))))


def divided_late(divide):
    """The sum of a row divides what comes behind the product with the values."""
    def f(m, x, seen):
        q, k, v = heads(m.q(x)), heads(m.k(x)), heads(m.v(x))
        s = q @ k.transpose(-1, -2) / math.sqrt(SIZE) + (1 - padding(seen)) * -1e4
        e = torch.exp(s - s.amax(-1, keepdim=True))
        return m.layer(divide(e @ v, e.sum(-1, keepdim=True)).transpose(1, 2).reshape(x.shape))
    return f


def einsum(m, x, seen):
    q, k, v = (t.view(x.shape[0], TOKENS, HEADS, SIZE) for t in (m.q(x), m.k(x), m.v(x)))
    s = torch.einsum("bthd,bshd->bhts", q, k) / 4 + (1 - padding(seen)) * -1e4
    return m.layer(torch.einsum("bhts,bshd->bthd", s.softmax(-1), v).reshape(x.shape))


def with_sink(m, s, first=False, shifted=False):
    """As GPT-OSS: one more column, which has no value."""
    sink = m.gain[:HEADS].view(1, -1, 1, 1).expand(s.shape[0], -1, TOKENS, 1)
    scores = torch.cat([sink, s] if first else [s, sink], -1)
    scores = scores - scores.amax(-1, keepdim=True) if shifted else scores
    return scores.softmax(-1)[..., 1:] if first else scores.softmax(-1)[..., :-1]


def attention_with_sink(**options):
    return lambda m, x, seen: attention(weights=lambda s: with_sink(m, s, **options))(m, x, seen)


def distance():
    i = torch.arange(TOKENS)
    return i[:, None] - i[None]


def repeated_heads(repeat):
    return attention(parts=shared(repeat), mask=lambda s, seen: s.masked_fill(padding(seen) == 0, -1e9))


def attention_of_groups(m, x, seen):
    """Two heads of keys for two of queries each, as JAX's models are written."""
    q = m.q(x).view(x.shape[0], TOKENS, 2, 2, SIZE)
    k, v = (t[..., :2 * SIZE].reshape(x.shape[0], TOKENS, 2, SIZE) for t in (m.k(x), m.v(x)))
    s = torch.einsum("btngh,bsnh->bngts", q, k) / 4 + (1 - padding(seen)[:, None]) * -1e4
    return m.layer(torch.einsum("bngts,bsnh->btngh", s.softmax(-1), v).reshape(x.shape))


ATTENTION.update({
    "log-sum-exp": attention(weights=by_logarithm),
    "log-sum-exp of shifted scores": attention(weights=lambda s: by_logarithm(s, s.amax(-1, keepdim=True))),
    "log-sum-exp of scores as they are": attention(weights=lambda s: torch.exp(s - torch.log(torch.exp(s).sum(-1, keepdim=True))),
                                                   mask=lambda s, seen: s + padding(seen)),
    "divided behind the values": divided_late(lambda y, total: y / total),
    "multiplied behind the values": divided_late(lambda y, total: y * (1 / total)),
    "einsum of rows before heads": einsum,
    "no number as 0": attention(weights=lambda s: torch.nan_to_num(s.softmax(-1), nan=0.0)),
    "no number filled": attention(weights=lambda s: (lambda p: p.masked_fill(torch.isnan(p), 0.0))(s.softmax(-1))),
    "what differs from itself as 0": attention(
        weights=lambda s: (lambda p: torch.where(p != p, torch.zeros_like(p), p))(s.softmax(-1))),
    "a sink": attention_with_sink(),
    "a sink first": attention_with_sink(first=True),
    "a sink and shifted scores": attention_with_sink(shifted=True),
    "less the largest of all": attention(weights=lambda s: torch.softmax(s - s.amax((1, 2, 3), keepdim=True), -1)),
    "the triangle and padding of -inf": attention(
        mask=lambda s, seen: s.masked_fill(LOWER * padding(seen) == 0, float("-inf"))),
    "a window of distances": attention(mask=lambda s, seen: s.masked_fill(distance().abs() > 3, float("-inf"))),
    "a window of two compares": attention(
        mask=lambda s, seen: torch.where((distance() >= 0) & (distance() < 5), s, torch.tensor(LEAST))),
    "truth times the least": attention(
        mask=lambda s, seen: s + torch.full((TOKENS, TOKENS), LEAST) * (distance() < 0) + (1 - padding(seen)) * LEAST),
    "the triangle filled and padding added": attention(
        mask=lambda s, seen: torch.where(LOWER > 0, s, torch.tensor(LEAST)) + (1 - padding(seen)) * LEAST),
    "the triangle filled and padding filled": attention(
        mask=lambda s, seen: s.masked_fill(LOWER == 0, LEAST).masked_fill(padding(seen) == 0, LEAST)),
    "the triangle filled by another number": attention(
        mask=lambda s, seen: s.masked_fill(LOWER == 0, -1e4).masked_fill(padding(seen) == 0, LEAST)),
    "einsum of groups": attention_of_groups,
    "keys interleaved": repeated_heads(lambda t: t.repeat_interleave(2, 1)),
    "keys by index": repeated_heads(lambda t: t[:, torch.tensor([0, 0, 1, 1])]),
    "keys one after the other": repeated_heads(lambda t: torch.cat([t[:, :1], t[:, :1], t[:, 1:], t[:, 1:]], 1)),
    "keys repeated": repeated_heads(lambda t: t.unsqueeze(2).repeat(1, 1, 2, 1, 1).flatten(1, 2)),
})
# A norm of each head's rows is a kernel of its own.
HEAD_NORMS = {
    "rms_norm": lambda m, t: t * torch.rsqrt(t.pow(2).mean(-1, keepdim=True) + 1e-6) * m.gain[:SIZE],
    "layer_norm": lambda m, t: F.layer_norm(t, (SIZE,), m.gain[:SIZE], m.shift[:SIZE]),
}
GATES = {
    "linear+silu+mul": [
        lambda m, x: F.silu(m.q(x)) * m.k(x),
        lambda m, x: m.k(x) * F.silu(m.q(x)),
        lambda m, x: (lambda a, b: F.silu(a) * b)(*m.wide(x).chunk(2, -1)),
        lambda m, x: (lambda a, b: a * F.silu(b))(*m.wide(x).split(WIDTH, -1)),
        lambda m, x: (lambda y: F.silu(y[..., WIDTH:]) * y[..., :WIDTH])(m.wide(x)),
        lambda m, x: (lambda y: F.silu(y[..., ::2]) * y[..., 1::2])(m.wide(x)),
        lambda m, x: (lambda y: F.silu(y[:, :, 0]) * y[:, :, 1])(m.wide(x).view(*x.shape[:2], 2, WIDTH)),
        lambda m, x: (lambda a: a / (1 + torch.exp(-a)) * m.k(x))(m.q(x)),
    ],
    "linear+gelu+mul": [lambda m, x: (lambda a, b: F.gelu(a) * b)(*m.wide(x).chunk(2, -1))],
    "linear+sigmoid+mul": [lambda m, x: F.glu(m.wide(x), -1)],
}
NOT_ATTENTION = {
    "log-sum-exp of queries": attention(mask=lambda s, seen: s + padding(seen),
                                        weights=lambda s: torch.exp(s - torch.logsumexp(s, -2, keepdim=True))),
    "log-sum-exp of other scores": attention(weights=lambda s: torch.exp(s - torch.logsumexp(s * 2, -1, keepdim=True))),
    "a sum of more than the row": divided_late(lambda y, total: y / (total + 1)),
    "a sum of columns": divided_late(lambda y, total: y / total.sum(-2, keepdim=True)),
    "a sink that is kept": lambda m, x, seen: attention(weights=lambda s: torch.cat(
        [s, m.gain[:HEADS].view(1, -1, 1, 1).expand(s.shape[0], -1, TOKENS, 1)], -1).softmax(-1)[..., 1:])(m, x, seen),
    "a sink of each row": attention(weights=lambda s: torch.cat([s, s[..., :1] * 2], -1).softmax(-1)[..., :-1]),
    "large weights cut off": attention(weights=lambda s: (lambda p: torch.where(p > 0.2, torch.ones_like(p), p))(s.softmax(-1))),
    "scores times a triangle": attention(mask=lambda s, seen: s * LOWER),
    "weights masked": attention(weights=lambda s: s.softmax(-1) * LOWER),
    "less another row's largest": attention(
        weights=lambda s: torch.exp(s - s.amax(-1, keepdim=True)) / torch.exp(s).sum(-2, keepdim=True)),
    "scores times a matrix": attention(mask=lambda s, seen: s * (LOWER + 0.5)),
    "scores cut off": attention(mask=lambda s, seen: torch.clamp(s, min=-1.0)),
    "a number for what is none": attention(
        weights=lambda s: (lambda p: torch.where(torch.isnan(p), torch.ones_like(p), p))(s.softmax(-1))),
    "softmax of queries": attention(weights=lambda s: s.softmax(-2)),
    "weights that are no softmax": attention(weights=torch.sigmoid),
    "weights that are changed": attention(weights=lambda s: s.softmax(-1) * s),
    "scores that are rectified": attention(scores=lambda q, k: torch.relu(q @ k.transpose(-1, -2))),
}


def saved(folder, name, x):
    """The file of a tensor, as the command reads it."""
    file = os.path.join(folder, name + ".npy")
    numpy.save(file, x.numpy())
    return file


def kernels(f, example, opset=13, *flags):
    torch.manual_seed(3)
    names = ["x", "seen"][:len(example)]
    with tempfile.TemporaryDirectory() as folder, torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = os.path.join(folder, "model.onnx")
        torch.onnx.export(Formula(f).eval(), example, file, input_names=names, opset_version=opset,
                          dynamic_axes={name: {0: "batch"} for name in names})
        out = subprocess.run([TESSERA, "inspect", file, "--plan", "--json", *flags], check=True, stdout=subprocess.PIPE,
                             text=True, timeout=120).stdout
        with open(file, "rb") as exported:  # inputs that no formula reads are left out
            data = exported.read()
        inputs = [part for name, x in zip(names, example)
                  if name.encode() in data for part in ("--input", f"{name}={saved(folder, name, x)}")]
        subprocess.run([TESSERA, "verify", file, *inputs], check=True, stdout=subprocess.PIPE, timeout=120)
    return [line["op"] for line in json.loads(out.strip().splitlines()[-1])["kernels"]]


ROWS = (torch.randn(2, TOKENS, WIDTH),)
# Padded on the left and on the right: under a causal mask, the first rows of the first see no key.
SEEN = torch.ones(3, TOKENS)
SEEN[0, :5], SEEN[1, 9:], SEEN[2, 3:5] = 0, 0, 0
MASKED = (torch.randn(3, TOKENS, WIDTH), SEEN)
IMAGES = (torch.randn(2, 8, 6, 6),)
BY_HEADS = (torch.randn(2, HEADS, TOKENS, SIZE),)


class Spellings(unittest.TestCase):
    def each(self, formulas, wanted, example, *flags):
        for i, f in enumerate(formulas):
            with self.subTest(wanted=wanted, spelling=i):
                self.assertEqual(kernels(f, example, 13, *flags), wanted)

    def test_activations(self):
        for wanted, formulas in ACTIVATIONS.items():
            self.each([activation(f) for f in formulas], [wanted], ROWS)

    def test_norms(self):
        for wanted, formulas in NORMS.items():
            self.each(formulas, [wanted], ROWS)
        self.each(SQUARES, ["layer_norm"], ROWS, "--approximate")
        self.each(GROUP_NORMS, ["layer_norm", "mul+add"], IMAGES)
        self.each(CHANNEL_NORMS, ["copy", "layer_norm", "copy"], IMAGES)
        for norm, f in HEAD_NORMS.items():
            def normed(m, x, seen, f=f):
                return attention(parts=lambda m, x: (f(m, heads(m.q(x))), f(m, heads(m.k(x))), heads(m.v(x))))(m, x, seen)
            ops = kernels(normed, MASKED)
            self.assertEqual([ops.count(op) for op in (norm, "linear", "attention", "copy")], [2, 2, 1, 0], ops)

    def test_gates(self):
        for wanted, formulas in GATES.items():
            self.each(formulas, [wanted], ROWS)

    def test_norms_of_one_row(self):
        """Two norms that differ in gain and shift alone: parallel attention and layers."""
        def parallel(m, x):
            return m.layer(F.layer_norm(x, (WIDTH,), m.gain, m.shift)) + m.q(F.layer_norm(x, (WIDTH,), m.shift, m.gain))
        for opset in (11, 13, 17):
            ops = kernels(parallel, ROWS, opset)
            self.assertEqual(ops[:3], ["layer_norm", "layer_norm", "linear"])
            self.assertEqual(len(ops), 4, ops)  # the other layer adds the biases and the sum

    def test_rotary(self):
        self.each(ROTARY, ["rotary"], BY_HEADS)

    def test_attention(self):
        for name, f in ATTENTION.items():
            with self.subTest(name):
                ops = kernels(f, MASKED)
                self.assertEqual(ops.count("attention"), 1, ops)
                self.assertEqual(ops.count("linear"), 2, ops)
                self.assertFalse({"softmax", "dot", "exp", "reduce_max", "copy"} & set(ops), ops)

    def test_near_misses(self):
        for formulas, composite, example in ((NOT_NORMS, ("layer_norm", "rms_norm"), ROWS),
                                             (NOT_ROTARY, ("rotary",), BY_HEADS),
                                             (NOT_ATTENTION, ("attention",), MASKED)):
            for name, f in formulas.items():
                for opset in (11, 13):  # before 13 a softmax of other axes is one of transposed scores
                    with self.subTest(name, opset=opset):
                        try:
                            ops = kernels(f, example, opset)
                        except RuntimeError:  # what this opset cannot say
                            continue
                        self.assertFalse(set(composite) & set(ops), ops)
        for name, f in NOT_ACTIVATIONS.items():
            with self.subTest(name):
                ops = kernels(activation(f), ROWS)
                self.assertNotIn(ops[0], set(ACTIVATIONS) - {"linear+mul+sigmoid+mul"}, ops)
        for i, f in enumerate(SQUARES):
            with self.subTest("a variance that loses digits", i=i):
                self.assertNotIn("layer_norm", kernels(f, ROWS))


if __name__ == "__main__":
    TESSERA = sys.argv.pop(1)
    unittest.main(argv=sys.argv[:1] + sys.argv[1:])
