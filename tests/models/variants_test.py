#!/usr/bin/env python3
"""What configurations of real checkpoints vary in each architecture, against the same definitions in numpy.

usage: variants_test.py TESSERA [unittest arguments]     Skips where numpy is not installed.
"""
import math
import sys
import unittest

import architectures_test as base
from architectures_test import (C, CONFIG, D, EXPERT_F, EXPERTS, F, G, H, IDS, L, T, USED, V, Llama, attention, capped,
                                frequencies, gelu, gelu_tanh, gguf_weights, layer_norm, matrix, np, rope, vector, yarn)


def plain(_):
    return frequencies(1e4)


def without_head(weights):
    return {name: value for name, value in weights.items() if name != "lm_head.weight"}


class Layers:
    """Weights with biases under their names."""

    def __init__(self):
        self.weights = {}

    def linear(self, name, rows, columns, bias=True):
        self.weights[f"{name}.weight"] = matrix(rows, columns)
        if bias:
            self.weights[f"{name}.bias"] = vector(rows, 0)

    def norm(self, name, bias=True):
        self.weights[f"{name}.weight"] = vector(C)
        if bias:
            self.weights[f"{name}.bias"] = vector(C, 0)

    def put(self, x, name):
        return x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", 0)

    def normed(self, x, name, eps):
        return layer_norm(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias", 0), eps)


class Variants(base.Comparison):
    def test_llama_with_all_biases_and_wide_heads(self):
        head = 20
        model = Llama(head=head, bias=True, more_bias=True)
        self.check_folder({**CONFIG, "model_type": "llama", "head_dim": head, "attention_bias": True, "mlp_bias": True,
                           "hidden_act": "gelu", "rms_norm_eps": 1e-3}, model.weights,
                          model.logits(lambda _: frequencies(1e4, head), act=gelu, eps=1e-3))

    def test_ropes(self):
        model = Llama()
        config = {**CONFIG, "model_type": "llama"}
        # Dynamic: the base grows past the context that the model was made for.
        for context in (64, 16):
            growth = max(3.0 * T / context - 2, 1) ** (D / (D - 2))
            self.check_folder({**config, "max_position_embeddings": context,
                               "rope_scaling": {"type": "dynamic", "factor": 3.0}}, model.weights,
                              model.logits(lambda _, g=growth: frequencies(1e4 * g)), "logits", "--ctx", "64")
        yarn_of = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
        for more, turns, magnitude in (
                ({"mscale": 0.7, "mscale_all_dim": 0.4}, yarn(1e4, 4, 64),
                 (0.07 * math.log(4) + 1) / (0.04 * math.log(4) + 1)),
                ({"truncate": False, "beta_slow": 2.0}, yarn(1e4, 4, 64, slow=2.0, whole=False), 0.1 * math.log(4) + 1)):
            self.check_folder({**config, "rope_scaling": {**yarn_of, **more}}, model.weights,
                              model.logits(lambda _, t=turns: t, magnitude=magnitude))
        self.check_folder({**config, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e3}},
                          model.weights, model.logits(lambda _: frequencies(5e3) / 2))
        self.check_folder({**config, "partial_rotary_factor": 0.5}, model.weights,
                          model.logits(lambda _: frequencies(1e4, D // 2)))

    def test_layer_types(self):
        types = ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]

        def window(layer):
            return 5 if types[layer][0] == "s" else None

        model = Llama(bias=True)
        self.check_folder({**CONFIG, "model_type": "qwen2", "layer_types": types, "use_sliding_window": True,
                           "sliding_window": 5, "max_window_layers": 9}, model.weights, model.logits(plain, window=window))
        model = Llama(head_norms=True, bias=True, more_bias=False)
        weights = {**model.weights, **{f"model.layers.{i}.self_attn.o_proj.bias": np.zeros(C) for i in range(L)}}
        self.check_folder({**CONFIG, "model_type": "qwen3", "attention_bias": True, "tie_word_embeddings": True},
                          without_head(weights), model.logits(plain, tied=True))

    def test_experts(self):
        config = {**CONFIG, "num_experts_per_tok": USED}
        qwen = {**config, "model_type": "qwen2_moe", "num_experts": EXPERTS, "moe_intermediate_size": EXPERT_F,
                "shared_expert_intermediate_size": 28}
        model = Llama(bias=True, experts=True, shared=28, dense=(0, 2, 3))
        for normalised in (False, True):
            self.check_folder({**qwen, "decoder_sparse_step": 2, "mlp_only_layers": [3], "norm_topk_prob": normalised},
                              model.weights, model.logits(plain, normalised=normalised))
        model = Llama(bias=True, experts=True, shared=28)
        counts = {"expert_count": EXPERTS, "expert_used_count": USED}
        self.check_gguf("qwen2moe", {**counts, "expert_feed_forward_length": EXPERT_F,
                                     "expert_shared_feed_forward_length": 28}, gguf_weights(model),
                        model.logits(plain, normalised=False))
        self.check_gguf("qwen2moe", {**counts, "expert_feed_forward_length": EXPERT_F}, gguf_weights(model),
                        model.logits(plain, normalised=False))

        model = Llama(experts=True)
        wanted = model.logits(plain, window=lambda _: 7)
        words = {"mlp.gate.": "block_sparse_moe.gate.", "mlp.experts": "block_sparse_moe.experts", "gate_proj": "w1",
                 "down_proj": "w2", "up_proj": "w3"}
        weights = {}
        for name, value in model.weights.items():
            for ours, theirs in words.items() if "mlp" in name else ():
                name = name.replace(ours, theirs)
            weights[name] = value
        self.check_folder({**config, "model_type": "mixtral", "num_local_experts": EXPERTS, "sliding_window": 7,
                           "intermediate_size": EXPERT_F, "rope_theta": 1e4}, weights, wanted)
        weights = gguf_weights(model, neighbours=True)
        metadata = {**counts, "feed_forward_length": EXPERT_F, "attention.sliding_window": 7}
        self.check_gguf("llama", metadata, weights, wanted)
        apart = {}  # as files had them before the experts were stacked
        for name, value in weights.items():
            parts = {name.replace("_exps", f".{e}"): one for e, one in enumerate(value)} if "_exps" in name else {name: value}
            apart.update(parts)
        self.check_gguf("llama", metadata, apart, wanted)

    def test_gemma2(self):
        head = 16
        model = Llama(head=head, gemma=True, four_norms=True)
        config = {**CONFIG, "model_type": "gemma2", "head_dim": head, "hidden_act": "gelu_pytorch_tanh",
                  "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True, "sliding_window": 6,
                  "query_pre_attn_scalar": 20}
        common = {"turns": lambda _: frequencies(1e4, head), "act": gelu_tanh, "embedding": math.sqrt(C), "tied": True,
                  "window": lambda layer: 6 if layer % 2 == 0 else None}
        for caps, cap, last in (({"attn_logit_softcapping": 2.0, "final_logit_softcapping": 9.0}, 2, 9),
                                ({"attn_logit_softcapping": None, "final_logit_softcapping": None}, None, None)):
            self.check_folder({**config, **caps}, without_head(model.weights),
                              model.logits(scale=20 ** -0.5, cap=cap, last_cap=last, **common))
        self.check_gguf("gemma2", {"attention.key_length": head, "attention.value_length": head,
                                   "attention.sliding_window": 6, "attn_logit_softcapping": 2.0,
                                   "final_logit_softcapping": 9.0}, gguf_weights(model, tied=True),
                        model.logits(cap=2, last_cap=9, **common))

    def test_gpt2(self):
        inner = 72
        for prefix, act, name, by_layer, scaled, tied in (("transformer.", gelu_tanh, "gelu_new", False, True, True),
                                                          ("", gelu, "gelu", True, True, False),
                                                          ("", gelu_tanh, "gelu_pytorch_tanh", True, False, True)):
            m = Layers()
            w = {f"{prefix}wte.weight": matrix(V, C, scale=0.5), f"{prefix}wpe.weight": matrix(64, C, scale=0.5)}
            for layer in range(L):
                at = f"{prefix}h.{layer}."
                for norm in ("ln_1", "ln_2"):
                    m.norm(at + norm)
                for part, rows, columns in (("attn.c_attn", 3 * C, C), ("attn.c_proj", C, C), ("mlp.c_fc", inner, C),
                                            ("mlp.c_proj", C, inner)):
                    m.linear(at + part, rows, columns)
            m.norm(f"{prefix}ln_f")
            x = w[f"{prefix}wte.weight"][IDS] + w[f"{prefix}wpe.weight"][:T]
            for layer in range(L):
                at = f"{prefix}h.{layer}."
                q, k, v = np.split(m.put(m.normed(x, f"{at}ln_1", 1e-5), f"{at}attn.c_attn").reshape(T, 3 * H, D), 3, 1)
                scale = (D ** -0.5 if scaled else 1) / (layer + 1 if by_layer else 1)
                x = x + m.put(attention(q, k, v, scale), f"{at}attn.c_proj")
                x = x + m.put(act(m.put(m.normed(x, f"{at}ln_2", 1e-5), f"{at}mlp.c_fc")), f"{at}mlp.c_proj")
            head = w[f"{prefix}wte.weight"] if tied else matrix(V, C)
            wanted = m.normed(x, f"{prefix}ln_f", 1e-5) @ head.T
            # Stored with inputs first; `attn.bias` is a mask.
            stored = {n: v.T if v.ndim == 2 else v for n, v in m.weights.items()}
            stored.update({f"{prefix}h.{i}.attn.bias": np.tril(np.ones((64, 64)))[None, None] for i in range(L)})
            if not tied:
                stored["lm_head.weight"] = head
            self.check_folder({"model_type": "gpt2", "vocab_size": V, "n_embd": C, "n_head": H, "n_layer": L,
                               "n_inner": inner, "n_positions": 64, "activation_function": name,
                               "scale_attn_by_inverse_layer_idx": by_layer, "scale_attn_weights": scaled,
                               "tie_word_embeddings": tied}, {**w, **stored}, wanted)

    def test_bert_and_its_kin(self):
        names = {"attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
                 "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
                 "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}
        m = Layers()
        m.norm("embeddings.LayerNorm")
        for layer in range(L):
            at = f"encoder.layer.{layer}."
            for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
                m.linear(at + part, C, C)
            m.norm(f"{at}attention.output.LayerNorm")
            m.linear(f"{at}intermediate.dense", F, C)
            m.linear(f"{at}output.dense", C, F)
            m.norm(f"{at}output.LayerNorm")
        tables = {"word": matrix(V, C, scale=1), "position": matrix(64, C, scale=1), "token_type": matrix(1, C, scale=1)}

        def hidden(first, act, eps, types=True):
            x = tables["word"][IDS] + tables["position"][first:first + T] + (tables["token_type"] if types else 0)
            x = m.normed(x, "embeddings.LayerNorm", eps)
            for layer in range(L):
                at = f"encoder.layer.{layer}."
                q, k, v = (m.put(x, f"{at}attention.self.{p}").reshape(T, H, D) for p in ("query", "key", "value"))
                a = m.put(attention(q, k, v, D ** -0.5, causal=False), f"{at}attention.output.dense")
                x = m.normed(x + a, f"{at}attention.output.LayerNorm", eps)
                f = m.put(act(m.put(x, f"{at}intermediate.dense")), f"{at}output.dense")
                x = m.normed(x + f, f"{at}output.LayerNorm", eps)
            return x

        config = {"vocab_size": V, "hidden_size": C, "num_hidden_layers": L, "num_attention_heads": H,
                  "intermediate_size": F, "max_position_embeddings": 64, "type_vocab_size": 1}
        embeddings = {f"embeddings.{n}_embeddings.weight": table for n, table in tables.items()}
        for kind, prefix, first, activation, act, eps in (("bert", "bert.", 0, "gelu_new", gelu_tanh, 1e-12),
                                                          ("roberta", "roberta.", 2, "gelu", gelu, 1e-5),
                                                          ("xlm-roberta", "roberta.", 2, "gelu", gelu, 1e-5),
                                                          ("camembert", "", 2, "gelu", gelu, 1e-5)):
            weights = {prefix + name: value for name, value in {**embeddings, **m.weights}.items()}
            self.check_folder({**config, "model_type": kind, "hidden_act": activation, "layer_norm_eps": eps,
                               "pad_token_id": 1}, weights, hidden(first, act, eps), "embed", "--pooling", "none")
        # In GGUF files the rows of positions that are not used are gone; DistilBERT has no types of tokens.
        layers = {"token_embd.weight": tables["word"], "token_embd_norm.weight": m.weights["embeddings.LayerNorm.weight"],
                  "token_embd_norm.bias": m.weights["embeddings.LayerNorm.bias"]}
        for layer in range(L):
            for part, short in names.items():
                for kind in ("weight", "bias"):
                    layers[f"blk.{layer}.{short}.{kind}"] = m.weights[f"encoder.layer.{layer}.{part}.{kind}"]
        metadata = {"attention.head_count_kv": H, "attention.layer_norm_epsilon": 1e-5, "pooling_type": 0,
                    "attention.causal": False}
        for first, types in ((2, True), (0, False)):
            weights = {**layers, "position_embd.weight": tables["position"][first:]}
            if types:
                weights["token_types.weight"] = tables["token_type"]
            self.check_gguf("bert", {**metadata, "context_length": 64 - first}, weights,
                            hidden(first, gelu, 1e-5, types), "embed", "--pooling", "none")

    def test_mpnet(self):
        ids = [int(i) for i in base.random.integers(0, V, 150)]  # distances past the last bucket
        m = Layers()
        m.norm("embeddings.LayerNorm")
        for layer in range(L):
            at = f"encoder.layer.{layer}."
            for part in "qkvo":
                m.linear(f"{at}attention.attn.{part}", C, C)
            m.norm(f"{at}attention.LayerNorm")
            m.linear(f"{at}intermediate.dense", F, C)
            m.linear(f"{at}output.dense", C, F)
            m.norm(f"{at}output.LayerNorm")
        w = {"embeddings.word_embeddings.weight": matrix(V, C, scale=1),
             "embeddings.position_embeddings.weight": matrix(160, C, scale=1),
             "encoder.relative_attention_bias.weight": matrix(32, H, scale=1)}

        def bucket(distance):  # of a key from its query
            n = abs(distance)
            if n >= 8:
                n = min(8 + int(math.log(n / 8) / math.log(128 / 8) * 8), 15)
            return n + (16 if distance > 0 else 0)

        n = len(ids)
        table = np.array([[bucket(key - query) for key in range(n)] for query in range(n)])
        bias = w["encoder.relative_attention_bias.weight"][table].transpose(2, 0, 1)
        x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][2:2 + n]
        x = m.normed(x, "embeddings.LayerNorm", 1e-12)
        for layer in range(L):
            at = f"encoder.layer.{layer}."
            q, k, v = (m.put(x, f"{at}attention.attn.{part}").reshape(n, H, D) for part in "qkv")
            a = m.put(attention(q, k, v, D ** -0.5, causal=False, bias=bias), f"{at}attention.attn.o")
            x = m.normed(x + a, f"{at}attention.LayerNorm", 1e-12)
            x = m.normed(x + m.put(gelu(m.put(x, f"{at}intermediate.dense")), f"{at}output.dense"),
                         f"{at}output.LayerNorm", 1e-12)
        self.ids = ids
        self.check_folder({"model_type": "mpnet", "vocab_size": V, "hidden_size": C, "num_hidden_layers": L,
                           "num_attention_heads": H, "intermediate_size": F, "max_position_embeddings": 160},
                          {f"mpnet.{name}": value for name, value in {**w, **m.weights}.items()}, x, "embed", "--pooling",
                          "none")

    def test_modernbert(self):
        for biased, types in ((True, None), (False, ["sliding_attention", "full_attention"] * (L // 2))):
            m = Layers()
            m.norm("model.embeddings.norm", biased)
            m.norm("model.final_norm", biased)
            w = {"model.embeddings.tok_embeddings.weight": matrix(V, C, scale=1)}
            for layer in range(L):
                at = f"model.layers.{layer}."
                if layer > 0:
                    m.norm(f"{at}attn_norm", biased)
                m.norm(f"{at}mlp_norm", biased)
                for part, rows, columns in (("attn.Wqkv", 3 * C, C), ("attn.Wo", C, C), ("mlp.Wi", 2 * F, C),
                                            ("mlp.Wo", C, F)):
                    m.linear(at + part, rows, columns, biased)
            x = m.normed(w["model.embeddings.tok_embeddings.weight"][IDS], "model.embeddings.norm", 1e-5)
            for layer in range(L):
                at = f"model.layers.{layer}."
                n = m.normed(x, f"{at}attn_norm", 1e-5) if layer > 0 else x
                q, k, v = np.split(m.put(n, f"{at}attn.Wqkv").reshape(T, 3 * H, D), 3, 1)
                near = types[layer][0] == "s" if types else layer % 2 != 0
                turns = frequencies(1e4 if near else 9e4)
                a = attention(rope(q, turns), rope(k, turns), v, D ** -0.5, window=6 if near else None, causal=False)
                x = x + m.put(a, f"{at}attn.Wo")
                both = m.put(m.normed(x, f"{at}mlp_norm", 1e-5), f"{at}mlp.Wi")
                x = x + m.put(gelu(both[:, :F]) * both[:, F:], f"{at}mlp.Wo")
            ropes = {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 9e4},
                                         "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}},
                     "layer_types": types} if types else {"global_rope_theta": 9e4, "local_rope_theta": 1e4}
            self.check_folder({"model_type": "modernbert", "vocab_size": V, "hidden_size": C, "num_hidden_layers": L,
                               "num_attention_heads": H, "intermediate_size": F, "max_position_embeddings": 64,
                               "norm_bias": biased, "attention_bias": biased, "mlp_bias": biased, "local_attention": 12,
                               "global_attn_every_n_layers": 2, **ropes}, {**w, **m.weights},
                              m.normed(x, "model.final_norm", 1e-5), "embed", "--pooling", "none")


if __name__ == "__main__":
    base.run()
