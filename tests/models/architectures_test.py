#!/usr/bin/env python3
"""Small random models of many architectures against their published definitions, written down here in numpy and in
doubles, one after another and without our own code: as Hugging Face folders and as GGUF files.

usage: architectures_test.py TESSERA [unittest arguments]     Skips where numpy is not installed.
"""
import math
import os
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError as missing:
    print(f"SKIPPED: {missing}")
    sys.exit(77)

from model_files import write_folder, write_gguf

TESSERA = ""
TOLERANCE = 2e-4
# Vocabulary, width, layers, heads, groups, head, feed-forward width, tokens.
V, C, L, H, G, D, F, T = 96, 48, 4, 4, 2, 12, 80, 40
EXPERTS, USED, EXPERT_F = 6, 3, 20
random = np.random.default_rng(7)
IDS = [int(i) for i in random.integers(0, V, T)]


def matrix(*shape, scale=None):
    return (random.normal(size=shape) * (scale or 1 / math.sqrt(shape[-1]))).astype(np.float32).astype(np.float64)


def vector(size, mean=1.0):
    return (mean + 0.2 * random.normal(size=size)).astype(np.float32).astype(np.float64)


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def layer_norm(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + eps) * weight + bias


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def frequencies(theta, width=D):
    return theta ** -(np.arange(0, width, 2) / width)


def llama3(theta, factor, low, high, original):
    out = frequencies(theta)
    for i, f in enumerate(out):
        wave = 2 * math.pi / f
        if wave > original / low:
            out[i] = f / factor
        elif wave >= original / high:
            smooth = (original / wave - low) / (high - low)
            out[i] = (1 - smooth) * f / factor + smooth * f
    return out


def yarn(theta, factor, original, fast=32.0, slow=1.0, whole=True):
    def dimension(turns):
        return D * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(fast), dimension(slow)
    if whole:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, D - 1)
    ramp = np.clip((np.arange(D // 2) - low) / max(high - low, 0.001), 0, 1)
    return frequencies(theta) * ((1 - ramp) + ramp / factor)


def rope(x, turns, magnitude=1.0):
    """Turns halves of the first 2 len(turns) elements of each head of x [T, heads, width]."""
    angles = np.outer(np.arange(len(x)), turns)[:, None]
    cos, sin, n = np.cos(angles) * magnitude, np.sin(angles) * magnitude, len(turns)
    a, b = x[..., :n], x[..., n:2 * n]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., 2 * n:]], -1)


def capped(x, cap):
    return cap * np.tanh(x / cap) if cap else x


def attention(q, k, v, scale, window=None, causal=True, cap=None, bias=0.0):
    """`window`: of tokens before and with itself; on both sides, without itself, where it is not causal."""
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = capped(np.einsum("thd,shd->hts", q, k) * scale, cap) + bias
    ahead = np.arange(len(q))[:, None] - np.arange(len(q))
    window = window or len(q)
    seen = (ahead >= 0) & (ahead < window) if causal else abs(ahead) <= window
    return np.einsum("hts,shd->thd", softmax(np.where(seen, scores, -np.inf)), v).reshape(len(q), -1)


class Llama:
    """What Llama, Mistral, Qwen, Gemma, Phi-3, SmolLM and Granite share, and what they differ in."""

    def __init__(self, groups=G, head=D, bias=False, head_norms=False, gemma=False, four_norms=False, experts=False,
                 more_bias=False, shared=0, dense=()):
        """`more_bias`: of the other matrices; `shared`: width of an expert for all; `dense`: layers without experts."""
        self.groups, self.head, self.bias, self.head_norms = groups, head, bias, head_norms
        self.offset = 1 if gemma else 0  # added to the weights of norms
        self.four_norms, self.experts, self.more_bias, self.shared, self.dense = four_norms, experts, more_bias, shared, dense
        mean = 0 if gemma else 1
        w = {"model.embed_tokens.weight": matrix(V, C, scale=0.5)}
        for layer in range(L):
            at = f"model.layers.{layer}."
            norms = ["input_layernorm", "post_attention_layernorm"]
            norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"] if four_norms else []
            for norm in norms:
                w[f"{at}{norm}.weight"] = vector(C, mean)
            for part, heads in (("q", H), ("k", groups), ("v", groups)):
                w[f"{at}self_attn.{part}_proj.weight"] = matrix(heads * head, C)
                if bias:
                    w[f"{at}self_attn.{part}_proj.bias"] = matrix(heads * head, scale=0.3)
            w[f"{at}self_attn.o_proj.weight"] = matrix(C, H * head)
            if head_norms:
                for part in "qk":
                    w[f"{at}self_attn.{part}_norm.weight"] = vector(head, mean)
            if more_bias:
                w[f"{at}self_attn.o_proj.bias"] = matrix(C, scale=0.3)
            mixed = experts and layer not in dense
            if mixed:
                w[f"{at}mlp.gate.weight"] = matrix(EXPERTS, C)
            networks = {f"mlp.experts.{e}.": EXPERT_F for e in range(EXPERTS)} if mixed else {"mlp.": F}
            if mixed and shared:
                networks["mlp.shared_expert."] = shared
                w[f"{at}mlp.shared_expert_gate.weight"] = matrix(1, C)
            for prefix, width in networks.items():
                for part, rows, columns in (("gate", width, C), ("up", width, C), ("down", C, width)):
                    w[f"{at}{prefix}{part}_proj.weight"] = matrix(rows, columns)
                    if more_bias:
                        w[f"{at}{prefix}{part}_proj.bias"] = matrix(rows, scale=0.3)
        w["model.norm.weight"] = vector(C, mean)
        w["lm_head.weight"] = matrix(V, C)
        self.weights = w

    def logits(self, turns, magnitude=1.0, eps=1e-6, scale=None, act=silu, window=lambda layer: None, embedding=1.0,
               residual=1.0, logit=1.0, tied=False, normalised=True, cap=None, last_cap=None):
        """turns(layer): the frequencies of its rope, or None."""
        w = self.weights
        x = w["model.embed_tokens.weight"][IDS] * embedding
        for layer in range(L):
            def of(name, at=f"model.layers.{layer}."):
                return w[at + name]

            def norm(value, name, of=of):
                return rms_norm(value, of(f"{name}.weight") + self.offset, eps)

            def project(value, part, heads, of=of):
                y = value @ of(f"self_attn.{part}_proj.weight").T
                y = y + of(f"self_attn.{part}_proj.bias") if self.bias else y
                return y.reshape(T, heads, self.head)

            n = norm(x, "input_layernorm")
            q, k, v = project(n, "q", H), project(n, "k", self.groups), project(n, "v", self.groups)
            if self.head_norms:
                q, k = norm(q, "self_attn.q_norm"), norm(k, "self_attn.k_norm")
            if turns(layer) is not None:
                q, k = rope(q, turns(layer), magnitude), rope(k, turns(layer), magnitude)
            a = attention(q, k, v, scale or self.head ** -0.5, window(layer), cap=cap) @ of("self_attn.o_proj.weight").T
            a = a + of("self_attn.o_proj.bias") if self.more_bias else a
            x = x + residual * (norm(a, "post_attention_layernorm") if self.four_norms else a)
            n = norm(x, "pre_feedforward_layernorm" if self.four_norms else "post_attention_layernorm")
            f = self.feed_forward(n, layer, of, act, normalised)
            x = x + residual * (norm(f, "post_feedforward_layernorm") if self.four_norms else f)
        x = rms_norm(x, w["model.norm.weight"] + self.offset, eps)
        return capped(x @ w["model.embed_tokens.weight" if tied else "lm_head.weight"].T * logit, last_cap)

    def feed_forward(self, x, layer, of, act, normalised):
        def linear(value, name):
            y = value @ of(f"{name}_proj.weight").T
            return y + of(f"{name}_proj.bias") if self.more_bias else y

        def network(value, at):
            return linear(act(linear(value, f"{at}gate")) * linear(value, f"{at}up"), f"{at}down")

        if not self.experts or layer in self.dense:
            return network(x, "mlp.")
        y = np.zeros_like(x)
        if self.shared:
            y = network(x, "mlp.shared_expert.") / (1 + np.exp(-x @ of("mlp.shared_expert_gate.weight").T))
        for row, shares in enumerate(softmax(x @ of("mlp.gate.weight").T)):
            chosen = np.argsort(-shares, kind="stable")[:USED]
            total = shares[chosen].sum() if normalised else 1
            for e in chosen:
                y[row] += shares[e] / total * network(x[row], f"mlp.experts.{e}.")
        return y

    def fused(self):
        """As Phi-3 stores it: q, k and v in one matrix, gate and up in another."""
        w = dict(self.weights)
        for layer in range(L):
            at = f"model.layers.{layer}."
            parts = [w.pop(f"{at}self_attn.{part}_proj.weight") for part in "qkv"]
            w[f"{at}self_attn.qkv_proj.weight"] = np.concatenate(parts)
            parts = [w.pop(f"{at}mlp.{part}_proj.weight") for part in ("gate", "up")]
            w[f"{at}mlp.gate_up_proj.weight"] = np.concatenate(parts)
        return w


GGUF_NAMES = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
GGUF_LAYER_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm",
    "mlp.gate": "ffn_gate_inp", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp"}
GGUF_FOUR_NORMS = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
                   "post_feedforward_layernorm": "post_ffw_norm"}


def gguf_weights(model, weights=None, neighbours=False, tied=False):
    """`neighbours`: rope turns pairs of neighbours, for which rows of q and k are stored in another order."""
    out, stacks = {}, {}
    names = {**GGUF_LAYER_NAMES, **(GGUF_FOUR_NORMS if model.four_norms else {})}
    for name, value in (weights or model.weights).items():
        stem, kind = name.removeprefix("model.").rsplit(".", 1)
        if "norm" in stem:
            value = value + model.offset
        if not stem.startswith("layers."):
            if not (tied and stem == "lm_head"):
                out[f"{GGUF_NAMES[stem]}.{kind}"] = value
            continue
        _, layer, part = stem.split(".", 2)
        if part.startswith("mlp.experts."):
            _, _, expert, matrix_name = part.split(".")
            stacks.setdefault((layer, matrix_name.split("_")[0]), []).append((int(expert), value))
            continue
        if neighbours and part in ("self_attn.q_proj", "self_attn.k_proj"):
            heads = len(value) // model.head
            value = value.reshape(heads, 2, model.head // 2, -1).swapaxes(1, 2).reshape(value.shape)
        if part == "mlp.shared_expert_gate":
            value = value.reshape(C)
        out[f"blk.{layer}.{names[part]}.{kind}"] = value
    for (layer, part), parts in stacks.items():
        out[f"blk.{layer}.ffn_{part}_exps.weight"] = np.stack([value for _, value in sorted(parts, key=lambda p: p[0])])
    return out


CONFIG = {"vocab_size": V, "hidden_size": C, "num_hidden_layers": L, "num_attention_heads": H, "num_key_value_heads": G,
          "head_dim": D, "intermediate_size": F, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
          "hidden_act": "silu", "tie_word_embeddings": False}
METADATA = {"context_length": 256, "embedding_length": C, "block_count": L, "feed_forward_length": F,
            "attention.head_count": H, "attention.head_count_kv": G, "attention.key_length": D,
            "attention.value_length": D, "attention.layer_norm_rms_epsilon": 1e-6}


class Comparison(unittest.TestCase):
    ids = IDS
    written = set()  # kinds of models that have been written as GGUF

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def compare(self, model, wanted, *command):
        out = os.path.join(self.folder, "out.npy")
        call = [TESSERA, *command, "--ids", ",".join(map(str, self.ids)), "-o", out, "--activations", "f32"]
        call.insert(2, model)
        result = subprocess.run(call, capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertLess(np.abs(np.load(out) - wanted).max(), TOLERANCE)

    def check_folder(self, config, weights, wanted, *command):
        with self.subTest(config):
            model = os.path.join(self.folder, "model")
            write_folder(model, config, weights)
            self.compare(model, wanted, *(command or ("logits",)))
            if not command:
                self.check_written(model, config, wanted)

    def check_written(self, model, config, wanted):
        """The same from the GGUF file that `quantize` makes of a folder, or what such files cannot say."""
        path = os.path.join(self.folder, "written.gguf")
        with open(path, "w") as file:
            file.write("an older file")
        result = subprocess.run([TESSERA, "quantize", model, "-o", path, "--type", "F32"], capture_output=True, text=True,
                                timeout=120)
        if result.returncode == 0:
            self.compare(path, wanted, "logits")
            self.written.add(config["model_type"])
        else:
            self.assertRegex(result.stderr, "E0402 .* cannot say its|E0402 .* cannot say how its rope")
            with open(path) as file:
                self.assertEqual(file.read(), "an older file")
            self.assertEqual([f for f in os.listdir(self.folder) if f.startswith(".tessera")], [])
        os.remove(path)

    def check_gguf(self, architecture, metadata, weights, wanted, *command):
        with self.subTest(architecture, **metadata):
            path = os.path.join(self.folder, "model.gguf")
            write_gguf(path, architecture, {**METADATA, **metadata}, weights)
            self.compare(path, wanted, *(command or ("logits",)))


class Architectures(Comparison):
    @classmethod
    def tearDownClass(cls):
        missing = {"llama", "mistral", "granite", "smollm3", "qwen3", "qwen3_moe", "gemma", "gemma3_text", "gemma3", "phi3",
                   "gpt_neox"} - cls.written
        assert not missing or len(sys.argv) > 1, f"never written as GGUF: {missing}"

    def test_llama_and_its_ropes(self):
        config = {**CONFIG, "model_type": "llama"}
        model = Llama(groups=H)
        self.check_folder({**config, "num_key_value_heads": H}, model.weights, model.logits(lambda _: frequencies(1e4)))
        model = Llama()
        tied = {name: value for name, value in model.weights.items() if name != "lm_head.weight"}
        self.check_folder({**config, "tie_word_embeddings": True}, tied,
                          model.logits(lambda _: frequencies(1e4), tied=True))
        stretched = llama3(5e5, 8, 1, 4, 64)
        for scaling, turns, magnitude in (
                ({"type": "linear", "factor": 4.0}, frequencies(1e4) / 4, 1),
                ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}, yarn(1e4, 4, 64),
                 0.1 * math.log(4) + 1),
                ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "attention_factor": 1.3,
                  "beta_fast": 16}, yarn(1e4, 4, 64, fast=16), 1.3)):
            self.check_folder({**config, "rope_scaling": scaling}, model.weights,
                              model.logits(lambda _, t=turns: t, magnitude=magnitude))
        self.check_folder({**config, "rope_theta": 5e5, "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}}, model.weights, model.logits(lambda _: stretched))
        weights = gguf_weights(model, neighbours=True)
        self.check_gguf("llama", {"rope.freq_base": 5e5},
                        {**weights, "rope_freqs.weight": frequencies(5e5) / stretched},
                        model.logits(lambda _: stretched))
        self.check_gguf("llama", {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0, "rope.dimension_count": D},
                        weights, model.logits(lambda _: frequencies(1e4) / 4))

    def test_mistral_granite_and_smollm(self):
        model = Llama()
        weights = gguf_weights(model, neighbours=True)
        self.check_folder({**CONFIG, "model_type": "mistral", "sliding_window": 9}, model.weights,
                          model.logits(lambda _: frequencies(1e4), window=lambda _: 9))
        wanted = model.logits(lambda _: frequencies(1e4), embedding=12, residual=0.22, logit=1 / 8, scale=0.0156)
        self.check_folder({**CONFIG, "model_type": "granite", "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
                           "logits_scaling": 8.0, "attention_multiplier": 0.0156}, model.weights, wanted)
        self.check_gguf("granite", {"embedding_scale": 12.0, "residual_scale": 0.22, "logit_scale": 8.0,
                                    "attention.scale": 0.0156}, weights, wanted)
        config = {**CONFIG, "model_type": "smollm3", "rope_theta": 5e4}

        def turns(layer):
            return frequencies(5e4) if (layer + 1) % 4 else None

        self.check_folder(config, model.weights, model.logits(turns))
        self.check_folder({**config, "use_sliding_window": True, "sliding_window": 7}, model.weights,
                          model.logits(turns, window=lambda layer: 7 if turns(layer) is None else None))
        self.check_folder({**config, "no_rope_layers": [0, 1, 1, 0]}, model.weights,
                          model.logits(lambda layer: frequencies(5e4) if layer in (1, 2) else None))
        self.check_gguf("smollm3", {"rope.freq_base": 5e4}, weights, model.logits(turns))

    def test_qwen(self):
        model = Llama(bias=True)
        config = {**CONFIG, "rope_theta": 1e6}
        self.check_folder({**config, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 6,
                           "max_window_layers": 2}, model.weights,
                          model.logits(lambda _: frequencies(1e6), window=lambda layer: 6 if layer >= 2 else None))
        self.check_gguf("qwen2", {"rope.freq_base": 1e6}, gguf_weights(model), model.logits(lambda _: frequencies(1e6)))
        model = Llama(head_norms=True)
        self.check_folder({**config, "model_type": "qwen3"}, model.weights, model.logits(lambda _: frequencies(1e6)))
        self.check_gguf("qwen3", {"rope.freq_base": 1e6}, gguf_weights(model), model.logits(lambda _: frequencies(1e6)))
        model = Llama(head_norms=True, experts=True)
        for normalised in (True, False):
            self.check_folder({**config, "model_type": "qwen3_moe", "num_experts": EXPERTS, "num_experts_per_tok": USED,
                               "moe_intermediate_size": EXPERT_F, "norm_topk_prob": normalised}, model.weights,
                              model.logits(lambda _: frequencies(1e6), normalised=normalised))
        self.check_gguf("qwen3moe", {"rope.freq_base": 1e6, "expert_count": EXPERTS, "expert_used_count": USED,
                                     "expert_feed_forward_length": EXPERT_F}, gguf_weights(model),
                        model.logits(lambda _: frequencies(1e6)))

    def test_gemma(self):
        head = 16
        wide = {"attention.key_length": head, "attention.value_length": head}
        config = {**CONFIG, "head_dim": head, "hidden_act": "gelu_pytorch_tanh",
                  "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True}
        common = {"act": gelu_tanh, "embedding": math.sqrt(C), "tied": True}
        model = Llama(groups=1, head=head, gemma=True)
        tied = {name: value for name, value in model.weights.items() if name != "lm_head.weight"}
        wanted = model.logits(lambda _: frequencies(1e4, head), **common)
        self.check_folder({**config, "model_type": "gemma", "num_key_value_heads": 1}, tied, wanted)
        self.check_gguf("gemma", {**wide, "attention.head_count_kv": 1}, gguf_weights(model, tied=True), wanted)

        model = Llama(head=head, gemma=True, head_norms=True, four_norms=True)
        tied = {name: value for name, value in model.weights.items() if name != "lm_head.weight"}

        def wanted_of(pattern, scale):
            def slides(layer):
                return (layer + 1) % pattern != 0

            return model.logits(lambda layer: frequencies(1e4, head) if slides(layer) else frequencies(1e6, head) / 8,
                                window=lambda layer: 5 if slides(layer) else None, scale=scale, **common)

        config = {**config, "model_type": "gemma3_text", "rope_theta": 1e6, "rope_local_base_freq": 1e4,
                  "sliding_window": 5, "query_pre_attn_scalar": 24, "sliding_window_pattern": 3,
                  "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
        wanted = wanted_of(3, 24 ** -0.5)
        self.check_folder(config, tied, wanted)
        self.check_folder({"model_type": "gemma3", "text_config": config, "vision_config": {}},
                          {name.replace("model.", "language_model.model."): value for name, value in tied.items()},
                          wanted)
        self.check_gguf("gemma3", {**wide, "rope.freq_base": 1e6, "attention.sliding_window": 5,
                                   "rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
                        gguf_weights(model, tied=True), wanted_of(6, None))

    def test_phi3_long_rope(self):
        model = Llama()
        short, long = [1.0, 1.1, 1.2, 1.3, 1.5, 2.0], [1.0, 1.5, 2.5, 4.0, 6.0, 9.0]
        for original, part in ((16, 1.0), (64, 1.0), (16, 0.67)):
            turned = int(D * part) // 2
            factors = (long if T > original else short)[:turned]
            magnitude = math.sqrt(1 + math.log(256 / original) / math.log(original))
            wanted = model.logits(lambda _, f=factors, n=turned: frequencies(1e4, 2 * n) / f, magnitude=magnitude)
            self.check_folder({**CONFIG, "model_type": "phi3", "original_max_position_embeddings": original,
                               "sliding_window": None, "partial_rotary_factor": part, "rope_scaling": {
                                   "type": "longrope", "short_factor": short[:turned],
                                   "long_factor": long[:turned]}}, model.fused(), wanted)
            self.check_gguf("phi3", {"rope.dimension_count": 2 * turned, "rope.scaling.attn_factor": magnitude,
                                     "rope.scaling.original_context_length": original},
                            {**gguf_weights(model, model.fused()), "rope_factors_long.weight": np.array(long[:turned]),
                             "rope_factors_short.weight": np.array(short[:turned])}, wanted)

    def test_gpt_neox(self):
        eps, turned = 1e-5, D // 2
        parts = {"input_layernorm": ("attn_norm", C, None), "post_attention_layernorm": ("ffn_norm", C, None),
                 "attention.query_key_value": ("attn_qkv", 3 * C, C), "attention.dense": ("attn_output", C, C),
                 "mlp.dense_h_to_4h": ("ffn_up", F, C), "mlp.dense_4h_to_h": ("ffn_down", C, F)}
        w = {"gpt_neox.embed_in.weight": matrix(V, C, scale=0.5), "embed_out.weight": matrix(V, C),
             "gpt_neox.final_layer_norm.weight": vector(C), "gpt_neox.final_layer_norm.bias": vector(C, 0)}
        gguf = {"token_embd.weight": w["gpt_neox.embed_in.weight"], "output.weight": w["embed_out.weight"],
                "output_norm.weight": w["gpt_neox.final_layer_norm.weight"],
                "output_norm.bias": w["gpt_neox.final_layer_norm.bias"]}
        for layer in range(L):
            for name, (short, rows, columns) in parts.items():
                for kind in ("weight", "bias"):
                    is_matrix = kind == "weight" and columns is not None
                    value = matrix(rows, columns) if is_matrix else vector(rows, 1 if kind == "weight" else 0)
                    w[f"gpt_neox.layers.{layer}.{name}.{kind}"] = value
                    if short == "attn_qkv":  # by head there, all of q first here
                        value = value.reshape(H, 3, D, -1).swapaxes(0, 1).reshape(value.shape)
                    gguf[f"blk.{layer}.{short}.{kind}"] = value
        for parallel in (True, False):
            x = w["gpt_neox.embed_in.weight"][IDS]
            for layer in range(L):
                def of(name, kind, at=f"gpt_neox.layers.{layer}."):
                    return w[f"{at}{name}.{kind}"]

                def linear(value, name, of=of):
                    return value @ of(name, "weight").T + of(name, "bias")

                def norm(value, name, of=of):
                    return layer_norm(value, of(name, "weight"), of(name, "bias"), eps)

                heads = linear(norm(x, "input_layernorm"), "attention.query_key_value").reshape(T, H, 3, D)
                q, k = (rope(heads[:, :, i], frequencies(1e4, turned)) for i in (0, 1))
                a = linear(attention(q, k, heads[:, :, 2], D ** -0.5), "attention.dense")
                n = norm(x if parallel else x + a, "post_attention_layernorm")
                x = x + a + linear(gelu(linear(n, "mlp.dense_h_to_4h")), "mlp.dense_4h_to_h")
            x = layer_norm(x, w["gpt_neox.final_layer_norm.weight"], w["gpt_neox.final_layer_norm.bias"], eps)
            wanted = x @ w["embed_out.weight"].T
            self.check_folder({"model_type": "gpt_neox", "vocab_size": V, "hidden_size": C, "num_hidden_layers": L,
                               "num_attention_heads": H, "intermediate_size": F, "hidden_act": "gelu",
                               "rotary_pct": 0.5, "rotary_emb_base": 10000, "max_position_embeddings": 256,
                               "layer_norm_eps": eps, "use_parallel_residual": parallel}, w, wanted)
            self.check_gguf("gptneox", {"attention.head_count_kv": H, "attention.layer_norm_epsilon": eps,
                                        "rope.dimension_count": turned, "use_parallel_residual": parallel}, gguf, wanted)

    def test_distilbert(self):
        layers, eps = 2, 1e-12
        w = {"distilbert.embeddings.word_embeddings.weight": matrix(V, C, scale=1),
             "distilbert.embeddings.position_embeddings.weight": matrix(64, C, scale=1)}
        for name in ["embeddings.LayerNorm"] + [f"transformer.layer.{i}.{norm}" for i in range(layers)
                                                for norm in ("sa_layer_norm", "output_layer_norm")]:
            w[f"distilbert.{name}.weight"], w[f"distilbert.{name}.bias"] = vector(C), vector(C, 0)
        for i in range(layers):
            for name, rows, columns in (("attention.q_lin", C, C), ("attention.k_lin", C, C), ("attention.v_lin", C, C),
                                        ("attention.out_lin", C, C), ("ffn.lin1", F, C), ("ffn.lin2", C, F)):
                at = f"distilbert.transformer.layer.{i}.{name}"
                w[f"{at}.weight"], w[f"{at}.bias"] = matrix(rows, columns), vector(rows, 0)

        def norm(value, name):
            return layer_norm(value, w[f"distilbert.{name}.weight"], w[f"distilbert.{name}.bias"], eps)

        def linear(value, name):
            return value @ w[f"distilbert.{name}.weight"].T + w[f"distilbert.{name}.bias"]

        x = w["distilbert.embeddings.word_embeddings.weight"][IDS]
        x = norm(x + w["distilbert.embeddings.position_embeddings.weight"][:T], "embeddings.LayerNorm")
        for i in range(layers):
            at = f"transformer.layer.{i}."
            q, k, v = (linear(x, f"{at}attention.{part}_lin").reshape(T, H, D) for part in "qkv")
            a = linear(attention(q, k, v, D ** -0.5, causal=False), f"{at}attention.out_lin")
            x = norm(x + a, f"{at}sa_layer_norm")
            x = norm(x + linear(gelu(linear(x, f"{at}ffn.lin1")), f"{at}ffn.lin2"), f"{at}output_layer_norm")
        self.check_folder({"model_type": "distilbert", "vocab_size": V, "dim": C, "n_layers": layers, "n_heads": H,
                           "hidden_dim": F, "max_position_embeddings": 64, "activation": "gelu"}, w, x, "embed",
                          "--pooling", "none")


def run():
    global TESSERA
    TESSERA = os.path.abspath(sys.argv.pop(1))
    unittest.main()


if __name__ == "__main__":
    run()
