"""Small transformer models of several families, written as their published code exports them: what exported graphs
look like, at sizes that a test can afford. Each entry of MODELS makes (module, inputs, dynamic axes, more inputs).

Letters: B batch, T tokens, S past length, H heads, C channels.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

C, H = 48, 4
HEAD = C // H


def linear(n_in=C, n_out=C, bias=True):
    return nn.Linear(n_in, n_out, bias=bias)


def split_heads(x, heads=H):
    """[B, T, heads*D] -> [B, heads, T, D]"""
    return x.view(x.size()[:-1] + (heads, -1)).permute(0, 2, 1, 3)


def join_heads(x):
    x = x.permute(0, 2, 1, 3).contiguous()
    return x.view(x.size()[:-2] + (-1,))


class BertLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.dense = linear(), linear(), linear(), linear()
        self.up, self.down = linear(C, 4 * C), linear(4 * C, C)
        self.norm1, self.norm2 = nn.LayerNorm(C, eps=1e-12), nn.LayerNorm(C, eps=1e-12)

    def forward(self, x, mask):
        q, k, v = split_heads(self.query(x)), split_heads(self.key(x)), split_heads(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(HEAD) + mask
        x = self.norm1(self.dense(join_heads(torch.matmul(F.softmax(scores, dim=-1), v))) + x)
        return self.norm2(self.down(F.gelu(self.up(x))) + x)


class Bert(nn.Module):
    """Encoder with a ragged padding mask of the type's lowest number."""

    def __init__(self, layers=2, vocabulary=100, positions=512):
        super().__init__()
        self.words, self.positions = nn.Embedding(vocabulary, C), nn.Embedding(positions, C)
        self.types, self.norm = nn.Embedding(2, C), nn.LayerNorm(C, eps=1e-12)
        self.register_buffer("ids", torch.arange(positions).unsqueeze(0))
        self.layers = nn.ModuleList([BertLayer() for _ in range(layers)])

    def forward(self, input_ids, attention_mask, token_type_ids):
        n = input_ids.size(1)
        x = self.norm(self.words(input_ids) + self.types(token_type_ids) + self.positions(self.ids[:, :n]))
        mask = (1.0 - attention_mask[:, None, None, :].to(torch.float32)) * torch.finfo(torch.float32).min
        for layer in self.layers:
            x = layer(x, mask)
        return x


class WhisperLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = linear(), linear(bias=False), linear(), linear()
        self.norm1, self.norm2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.up, self.down = linear(C, 4 * C), linear(4 * C, C)

    def forward(self, x):
        y = self.norm1(x)
        b, t, _ = y.size()
        split = lambda z: z.view(b, t, H, HEAD).transpose(1, 2)
        q, k, v = split(self.q(y) * HEAD ** -0.5), split(self.k(y)), split(self.v(y))
        a = F.softmax(torch.matmul(q, k.transpose(2, 3)), dim=-1)
        x = x + self.o(torch.matmul(a, v).transpose(1, 2).reshape(b, t, C))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class WhisperEncoder(nn.Module):
    def __init__(self, mels=20, positions=30, layers=2):
        super().__init__()
        self.conv1 = nn.Conv1d(mels, C, 3, padding=1)
        self.conv2 = nn.Conv1d(C, C, 3, stride=2, padding=1)
        self.positions = nn.Parameter(torch.randn(positions, C) * 0.02)
        self.layers = nn.ModuleList([WhisperLayer() for _ in range(layers)])
        self.norm = nn.LayerNorm(C)

    def forward(self, input_features):
        x = F.gelu(self.conv2(F.gelu(self.conv1(input_features)))).permute(0, 2, 1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Gpt2(nn.Module):
    """One block with a causal buffer, the tanh GELU, and keys and values of the past."""

    def __init__(self):
        super().__init__()
        self.qkv, self.o = linear(C, 3 * C), linear()
        self.up, self.down = linear(C, 4 * C), linear(4 * C, C)
        self.norm1, self.norm2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.register_buffer("causal", torch.tril(torch.ones(64, 64))[None, None])

    def forward(self, x, past_key, past_value):
        q, k, v = self.qkv(self.norm1(x)).split(C, 2)
        q, k = split_heads(q), torch.cat((past_key, split_heads(k)), -2)
        v = torch.cat((past_value, split_heads(v)), -2)
        scores = q @ k.transpose(-1, -2) / HEAD ** 0.5
        n, t = scores.size(-2), scores.size(-1)
        mask = self.causal[:, :, t - n:t, :t]
        scores = scores * mask - 1e4 * (1 - mask)
        x = x + self.o(join_heads(F.softmax(scores, -1) @ v))
        h = self.up(self.norm2(x))
        return x + self.down(0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h ** 3)))), k, v


class Llama(nn.Module):
    """One block with RMS norms, rotary positions, two key heads for four query heads, and a gated FFN."""

    def __init__(self, interleave=False):
        super().__init__()
        self.interleave = interleave
        self.q, self.k, self.v, self.o = linear(bias=False), linear(C, C // 2, False), linear(C, C // 2, False), linear(
            bias=False)
        self.gate, self.up, self.down = linear(C, 96, False), linear(C, 96, False), linear(96, C, False)
        self.weights = nn.Parameter(1 + 0.1 * torch.randn(2, C))
        self.register_buffer("frequencies", 1 / 1e4 ** (torch.arange(0, HEAD, 2) / HEAD))

    def norm(self, x, i):
        return self.weights[i] * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))

    def forward(self, x, positions):
        angles = positions.float()[..., None] * self.frequencies
        angles = torch.cat((angles, angles), -1)[:, None]
        cos, sin = angles.cos(), angles.sin()

        def rope(t):
            a, b = t[..., :HEAD // 2], t[..., HEAD // 2:]
            return t * cos + torch.cat((-b, a), -1) * sin

        def repeat(t):
            if self.interleave:
                return t.repeat_interleave(2, 1)
            b, h, n, d = t.shape
            return t[:, :, None].expand(b, h, 2, n, d).reshape(b, h * 2, n, d)

        y = self.norm(x, 0)
        q, k, v = rope(split_heads(self.q(y))), rope(split_heads(self.k(y), 2)), split_heads(self.v(y), 2)
        n = x.shape[1]
        later = torch.arange(n)[None, :] > torch.arange(n)[:, None]
        scores = (q @ repeat(k).transpose(-1, -2) / HEAD ** 0.5).masked_fill(later, torch.finfo(torch.float32).min)
        x = x + self.o(join_heads(scores.softmax(-1) @ repeat(v)))
        y = self.norm(x, 1)
        return x + self.down(self.up(y) * F.silu(self.gate(y)))


class Vit(nn.Module):
    """Patches by convolution, a class token, one block."""

    def __init__(self):
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, C, 4, 4), nn.Parameter(torch.randn(1, 1, C))
        self.positions = nn.Parameter(torch.randn(1, 26, C))
        self.qkv, self.o, self.up, self.down = linear(C, 3 * C), linear(), linear(C, 96), linear(96, C)
        self.norm1, self.norm2 = nn.LayerNorm(C, 1e-6), nn.LayerNorm(C, 1e-6)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.positions
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(b, t, 3, H, HEAD).permute(2, 0, 3, 1, 4).unbind(0)
        a = (q @ k.transpose(-2, -1) * HEAD ** -0.5).softmax(-1)
        x = x + self.o((a @ v).transpose(1, 2).reshape(b, t, C))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class T5(nn.Module):
    """One block with a table of relative positions and no scale."""

    def __init__(self, reach=16):
        super().__init__()
        self.q, self.k, self.v, self.o = (linear(bias=False) for _ in range(4))
        self.up, self.down = linear(C, 96, False), linear(96, C, False)
        self.table, self.weight, self.reach = nn.Embedding(2 * reach, H), nn.Parameter(torch.ones(C)), reach

    def forward(self, x):
        y = self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, True) + 1e-6))
        n = x.shape[1]
        distance = (torch.arange(n)[None] - torch.arange(n)[:, None] + self.reach).clamp(0, 2 * self.reach - 1)
        bias = self.table(distance).permute(2, 0, 1).unsqueeze(0)
        a = F.softmax(split_heads(self.q(y)) @ split_heads(self.k(y)).transpose(3, 2) + bias, -1)
        x = x + self.o(join_heads(a @ split_heads(self.v(y))))
        return x + self.down(F.relu(self.up(x)))


class ConvNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        return F.silu(self.norm(self.conv(x)))


def ragged(batch, tokens):
    """Inputs of Bert: sequence i is padded after fewer tokens than the one before."""
    mask = torch.ones(batch, tokens, dtype=torch.int64)
    for i in range(batch):
        mask[i, max(1, tokens - i * tokens // 9):] = 0
    return {
        "input_ids": torch.randint(0, 100, (batch, tokens)),
        "attention_mask": mask,
        "token_type_ids": torch.randint(0, 2, (batch, tokens)),
    }


def gpt2_inputs(batch, tokens, past):
    return {
        "x": torch.randn(batch, tokens, C),
        "past_key": torch.randn(batch, H, past, HEAD),
        "past_value": torch.randn(batch, H, past, HEAD)
    }


def llama_inputs(batch, tokens):
    return {"x": torch.randn(batch, tokens, C), "positions": torch.arange(tokens)[None].repeat(batch, 1)}


TOKENS = {0: "batch", 1: "tokens"}
PAST = {0: "batch", 2: "past"}

# name: module, inputs of the export, dynamic axes, inputs of the comparison
MODELS = {
    "bert": (Bert, ragged(1, 16), {"input_ids": TOKENS, "attention_mask": TOKENS, "token_type_ids": TOKENS},
             [ragged(b, t) for b in (1, 8) for t in (1, 16, 127, 128, 512)]),
    "whisper_encoder": (WhisperEncoder, {"input_features": torch.randn(1, 20, 60)}, {"input_features": {0: "batch"}},
                        [{"input_features": torch.randn(b, 20, 60)} for b in (1, 8)]),
    "gpt2": (Gpt2, gpt2_inputs(2, 3, 5), {"x": TOKENS, "past_key": PAST, "past_value": PAST},
             [gpt2_inputs(b, t, s) for b, t, s in ((1, 1, 0), (1, 7, 0), (2, 1, 9), (3, 4, 17))]),
    "llama": (Llama, llama_inputs(2, 10), {"x": TOKENS, "positions": TOKENS},
              [llama_inputs(b, t) for b, t in ((1, 1), (2, 10), (1, 65))]),
    # What the exporter writes for sizes that it does not know is no valid ONNX: docs/decisions/0005.
    "llama_interleaved": (lambda: Llama(interleave=True), llama_inputs(2, 10), {"x": TOKENS, "positions": TOKENS},
                          [llama_inputs(b, t) for b, t in ((1, 1), (2, 10), (3, 12))]),
    "vit": (Vit, {"image": torch.randn(2, 3, 20, 20)}, {"image": {0: "batch"}},
            [{"image": torch.randn(b, 3, 20, 20)} for b in (1, 4)]),
    "t5": (T5, {"x": torch.randn(2, 10, C)}, {"x": TOKENS}, [{"x": torch.randn(b, t, C)} for b, t in ((1, 1), (2, 40))]),
    "conv_norm": (ConvNorm, {"x": torch.randn(2, 3, 17, 19)}, {"x": {0: "batch"}}, [{"x": torch.randn(3, 3, 17, 19)}]),
}
# The first operator set that the exporter has for a model, where it does not have all.
FIRST_OPSETS = {"llama_interleaved": 13}
