"""The text backbone of DeepSeek-V4.1 in PyTorch, for training small models (spec/model.md sections 4 to 13).

Parameters carry the released tensor names, except that the routed experts of a layer are stacked
(`layers.N.ffn.experts.w1` [E, I, D]). All experts run in one batched product: at this size that is faster than gathering.
`sparse=False` attends to every visible compressed entry, as training does; `sparse=True` selects as the released model does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import quant


@dataclass
class Config:
    """The fields of text_config that the backbone needs, under their own names."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    head_dim: int
    qk_rope_head_dim: int
    q_lora_rank: int
    o_lora_rank: int
    o_groups: int
    moe_intermediate_size: int
    n_routed_experts: int
    num_experts_per_tok: int
    sliding_window: int
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    hc_mult: int
    hc_sinkhorn_iters: int
    compress_ratios: list[int]
    kv_source_layer_ids: list[int]
    index_source_layer_ids: list[int]
    candidate_source_layer_id: int
    candidate_topk_blocks: int
    candidate_block_size: int
    rope_theta: float
    compress_rope_theta: float
    rope_scaling: dict | None
    routed_scaling_factor: float = 1.5
    swiglu_limit: float = 10.0
    rms_norm_eps: float = 1e-20
    hc_eps: float = 1e-6
    engram_layer_ids: list[int] = field(default_factory=list)  # none: a model without Engram has no more of these
    engram_num_embeddings: list[int] = field(default_factory=list)
    engram_max_ngram_size: int = 0
    engram_n_heads: int = 0
    engram_head_dim: int = 0
    engram_vocab_size: int = 0
    engram_pad_token_id: int = 0
    engram_compressed_vocab_size: int = 0

    @classmethod
    def from_dict(cls, text_config: dict) -> Config:
        return cls(**{k: v for k, v in text_config.items() if k in cls.__dataclass_fields__})


# ---------------------------------------------------------------------------------------------------------------------
# Engram constants (sections 13.1 to 13.4).


def is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1))


def engram_constants(cfg: Config) -> list[dict[str, np.ndarray]]:
    """Primes, offsets and multipliers of every Engram table."""
    tables, prime = [], cfg.engram_vocab_size - 1
    for layer in cfg.engram_layer_ids:
        primes = []
        for _ in range((cfg.engram_max_ngram_size - 1) * cfg.engram_n_heads):
            prime += 1
            while not is_prime(prime):
                prime += 1
            primes.append(prime)
        bound = (2**63 - 1) // cfg.engram_compressed_vocab_size // 2
        draws = np.random.default_rng(10007 * layer).integers(0, bound, cfg.engram_max_ngram_size, dtype=np.int64)
        tables.append(
            {
                "primes": np.array(primes, np.int64),
                "offsets": np.concatenate([[0], np.cumsum(primes)[:-1]]).astype(np.int64),
                "multipliers": 2 * draws + 1,
            }
        )
    return tables


def token_map(tokenizer) -> np.ndarray:
    """Compressed id of every token id; `tokenizer` is a tokenizers.Tokenizer."""
    from tokenizers import Regex, normalizers as nz

    private = "\ue000"
    steps = nz.Sequence(
        [
            nz.NFKC(),
            nz.NFD(),
            nz.StripAccents(),
            nz.Lowercase(),
            nz.Replace(Regex(r"[ \t\r\n]+"), " "),
            nz.Replace(Regex(r"^ $"), private),
            nz.Strip(),
            nz.Replace(private, " "),
        ]
    )
    seen: dict[str, int] = {}
    out = np.zeros(tokenizer.get_vocab_size(), np.int32)
    for i in range(len(out)):
        text = tokenizer.decode([i], skip_special_tokens=False)
        key = tokenizer.id_to_token(i) if "\ufffd" in text else (steps.normalize_str(text) or text)
        out[i] = seen.setdefault(key, len(seen))
    return out


# ---------------------------------------------------------------------------------------------------------------------
# Pieces. Rows are flat: [N, ...] with N = sequences * length, so that the shapes of a run stay the same at every length.


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    x32 = x.float()
    y = x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + eps)
    return y if weight is None else y * weight.float()


def inv_freq(cfg: Config, compress: bool) -> torch.Tensor:
    dim = cfg.qk_rope_head_dim
    theta = cfg.compress_rope_theta if compress else cfg.rope_theta
    f = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    scaling = cfg.rope_scaling
    if compress and scaling and scaling.get("rope_type") == "yarn":
        original = scaling["original_max_position_embeddings"]
        turns = lambda n: dim * math.log(original / (n * 2 * math.pi)) / (2 * math.log(theta))
        low = max(math.floor(turns(scaling["beta_fast"])), 0)
        high = min(math.ceil(turns(scaling["beta_slow"])), dim - 1)
        ramp = ((torch.arange(dim // 2, dtype=torch.float64) - low) / max(high - low, 1e-3)).clamp(0, 1)
        f = f / scaling["factor"] * ramp + f * (1 - ramp)
    return f.float()


def rotate(x: torch.Tensor, angles: torch.Tensor, sign: float = 1.0) -> torch.Tensor:
    """Interleaved rotation of the last dims of x [N, D] or [N, H, D]; angles [N, rope / 2]."""
    rope = 2 * angles.shape[-1]
    keep, turn = x[..., :-rope].float(), x[..., -rope:].float()
    if x.dim() == 3:
        angles = angles.unsqueeze(1)
    a, b = turn[..., 0::2], turn[..., 1::2]
    cos, sin = angles.cos(), angles.sin() * sign
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    return torch.cat([keep, turned], -1)


def top(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k greatest of the last dim, ties to the lowest index (torch.topk promises no order)."""
    values, indices = torch.sort(x, dim=-1, descending=True, stable=True)
    return values[..., :k], indices[..., :k]


def sinkhorn(c: torch.Tensor, iters: int, eps: float) -> torch.Tensor:
    c = c.softmax(-1) + eps
    c = c / (c.sum(-2, keepdim=True) + eps)
    for _ in range(iters - 1):
        c = c / (c.sum(-1, keepdim=True) + eps)
        c = c / (c.sum(-2, keepdim=True) + eps)
    return c


@dataclass(frozen=True)
class Quant:
    """Which values are quantised (straight-through)."""

    weights: bool = False
    act: bool = False  # activations in front of quantised weights
    kv: bool = False  # window KV, compressed KV, index queries and keys


def fp8_linear(x: torch.Tensor, w: torch.Tensor, q: Quant) -> torch.Tensor:
    if q.weights:
        w = quant.ste(w, quant.fp8_block)
    if q.act:
        x = quant.ste(x, quant.act8)
    return F.linear(x, w.to(x.dtype))


def swiglu(g: torch.Tensor, u: torch.Tensor, limit: float) -> torch.Tensor:
    return F.silu(g.float().clamp(max=limit)) * u.float().clamp(-limit, limit)


def hc_mix(x, fn, scale, base, hc: int, iters: int, eps: float, norm_eps: float):
    """Coefficients of a site (section 5): pre [N, hc], post [N, hc], comb [N, hc, hc]."""
    v = x.flatten(-2)
    m = F.linear(v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + norm_eps), fn)
    pre = torch.sigmoid(m[..., :hc] * scale[0] + base[:hc]) + eps
    post = 2 * torch.sigmoid(m[..., hc : 2 * hc] * scale[1] + base[hc : 2 * hc])
    comb = (m[..., 2 * hc :] * scale[2] + base[2 * hc :]).unflatten(-1, (hc, hc))
    return pre, post, sinkhorn(comb, iters, eps)


def collapse(x: torch.Tensor, pre: torch.Tensor, norm: torch.Tensor, eps: float, dtype: torch.dtype):
    """The streams collapsed, and normed."""
    h = (pre.unsqueeze(-1) * x).sum(1)
    return h, rms_norm(h, norm, eps).to(dtype)


def expand(o: torch.Tensor, x: torch.Tensor, post: torch.Tensor, comb: torch.Tensor) -> torch.Tensor:
    mixed = (comb.unsqueeze(-1) * x.unsqueeze(2)).sum(1)
    return mixed + post.unsqueeze(-1) * o.float().unsqueeze(1)


def engram_mix(x, rows, table, wkv, q_weight, k_weight, eps: float, dtype: torch.dtype, q: Quant):
    """Section 12."""
    hc, dim = q_weight.shape
    if q.weights:
        table = quant.ste(table, quant.fp8_rows)
    kv = fp8_linear(F.embedding(rows, table).flatten(-2).to(dtype), wkv, q).unflatten(-1, (hc + 1, dim)).float()
    key, value = kv[..., :-1, :], kv[..., -1:, :]
    dot = (rms_norm(x, q_weight, eps) * rms_norm(key, k_weight, eps)).sum(-1) * dim**-0.5
    gate = torch.sigmoid(torch.copysign(dot.abs().clamp_min(1e-6).sqrt(), dot))
    return x + gate.unsqueeze(-1) * value


def moe(x, gate, bias, experts, shared, topk: int, scaling: float, limit: float, q: Quant):
    """Section 11. Returns the output, the share of the rows that each expert got, the scores with their bias, the experts chosen and their
    weights."""
    score = F.softplus(F.linear(x.float(), gate)).sqrt()
    biased = score.detach() + bias
    chosen = torch.topk(biased, topk, -1).indices
    w = score.gather(-1, chosen)
    w = w / (w.sum(-1, keepdim=True) + 1e-20) * scaling
    weights = torch.zeros_like(score).scatter(-1, chosen, w)
    w1, w3, w2 = (quant.ste(v, quant.fp4_rows) if q.weights else v for v in experts)
    e, inner, d = w1.shape
    xq = quant.ste(x, quant.act8) if q.act else x
    g = F.linear(xq, w1.reshape(e * inner, d).to(x.dtype)).unflatten(-1, (e, inner))
    u = F.linear(xq, w3.reshape(e * inner, d).to(x.dtype)).unflatten(-1, (e, inner))
    h = (swiglu(g, u, limit) * weights.unsqueeze(-1)).to(x.dtype)
    h = quant.ste(h, quant.act8) if q.act else h
    routed = F.linear(h.flatten(-2), w2.permute(1, 0, 2).reshape(d, e * inner).to(x.dtype))
    s1, s3, s2 = shared
    s = swiglu(fp8_linear(x, s1, q), fp8_linear(x, s3, q), limit).to(x.dtype)
    return routed + fp8_linear(s, s2, q), (weights > 0).float().mean(0), biased, chosen, w


def attention_inputs(x, wq_a, q_norm, wq_b, wkv, kv_norm, angles, heads: int, eps: float, q: Quant):
    """Query residual, rotated queries [N, H, D] and window KV [N, D] (section 7)."""
    qr = rms_norm(fp8_linear(x, wq_a, q), q_norm, eps).to(x.dtype)
    query = rotate(fp8_linear(qr, wq_b, q).unflatten(-1, (heads, -1)), angles).to(x.dtype)
    kv = rms_norm(fp8_linear(x, wkv, q), kv_norm, eps).to(x.dtype)
    kv = rotate(kv, angles).to(x.dtype)
    return qr, query, quant.ste(kv, quant.act8) if q.kv else kv


def attention_output(o, wo_a, wo_b, angles, groups: int, q: Quant) -> torch.Tensor:
    """o [N, H, D] rotated back and projected."""
    o = rotate(o, angles, -1.0).to(o.dtype).unflatten(1, (groups, -1)).flatten(2)
    if q.weights:
        wo_a = quant.ste(wo_a, quant.fp8_block)
    low = torch.einsum("ngk,grk->ngr", o, wo_a.to(o.dtype).unflatten(0, (groups, -1)))
    return fp8_linear(low.flatten(1), wo_b, q)


PARTS = ["hc_mix", "collapse", "expand", "engram_mix", "moe", "attention_inputs", "attention_output"]


def compile_parts() -> None:
    """Every piece becomes a few kernels. Compiling the whole model, layer behind layer, takes longer than it saves."""
    import torch._dynamo

    torch._dynamo.config.cache_size_limit = 64
    for name in PARTS:
        globals()[name] = torch.compile(globals()[name], dynamic=False)


class FlexAttention:
    """Dense attention over the window and all visible compressed entries without a score matrix in memory."""

    def __init__(self) -> None:
        from torch.nn.attention import flex_attention as flex

        self.flex = flex
        self.run = torch.compile(flex.flex_attention, dynamic=False)
        self.masks: dict = {}

    def mask(self, length: int, entries: int, ratio: int, window: int, device):
        key = (length, entries, ratio)
        if key not in self.masks:

            def visible(b, h, i, j):
                back = i - j
                entry = j - length
                near = (j < length) & (back >= 0) & (back < window)
                return near | ((j >= length) & (entry < (i + 1) // max(ratio, 1)))

            self.masks[key] = self.flex.create_block_mask(visible, None, None, length, length + entries, device=device)
        return self.masks[key]

    def __call__(self, q, kv, sink, length: int, ratio: int, window: int) -> torch.Tensor:
        """q [B, T, H, D], kv [B, T + S, D], sink [H]."""
        q, kv = q.transpose(1, 2).contiguous(), kv.unsqueeze(1).contiguous()
        mask = self.mask(length, kv.shape[2] - length, ratio, window, q.device)
        o, lse = self.run(q, kv, kv, block_mask=mask, scale=q.shape[-1] ** -0.5, enable_gqa=True, return_lse=True)
        # the sink enlarges the denominator only
        return (o * torch.sigmoid(lse - sink.view(1, -1, 1)).unsqueeze(-1).to(o.dtype)).transpose(1, 2)


# ---------------------------------------------------------------------------------------------------------------------
# The model.


class Backbone(nn.Module):
    def __init__(self, cfg: Config, tokens: np.ndarray | None):
        super().__init__()
        self.cfg = cfg
        self.sparse = False  # select compressed entries as the released model does
        self.quant = Quant()
        self.dtype = torch.float32  # of activations inside a sublayer; streams are float32
        self.flex: FlexAttention | None = None  # for dense attention
        self.index_loss: list[torch.Tensor] | None = None  # if wanted: of every index source, see train_index
        self.record: dict[str, torch.Tensor] | None = None  # inner tensors by the names of docs/trace.md, if wanted
        self.params = nn.ParameterDict()
        self._build()
        self.register_buffer("freq_main", inv_freq(cfg, False), persistent=False)
        self.register_buffer("freq_compress", inv_freq(cfg, True), persistent=False)
        if cfg.engram_layer_ids:
            assert tokens is not None
            self.register_buffer("tokens", torch.from_numpy(tokens.astype(np.int64)), persistent=False)
            for i, c in enumerate(engram_constants(cfg)):
                for key, value in c.items():
                    self.register_buffer(f"engram_{key}_{i}", torch.from_numpy(value), persistent=False)

    def _add(self, name: str, *shape: int, std: float = 0.0, fill: float = 0.0) -> None:
        value = torch.randn(*shape) * std if std else torch.full(shape, fill)
        self.params[name.replace(".", "/")] = nn.Parameter(value)

    def p(self, name: str) -> torch.Tensor:
        return self.params[name.replace(".", "/")]

    def _build(self) -> None:
        c = self.cfg
        d, hd, e, inner, hc = c.hidden_size, c.head_dim, c.n_routed_experts, c.moe_intermediate_size, c.hc_mult
        heads = c.num_attention_heads * hd
        self._add("embed.weight", c.vocab_size, d, std=1.0)
        self._add("head.weight", c.vocab_size, d, std=0.02)
        self._add("norm.weight", d, fill=1.0)
        for i in range(c.num_hidden_layers):
            n = f"layers.{i}."
            for site in ("hc_attn", "hc_ffn"):
                self._add(n + site + "_fn", (2 + hc) * hc, hc * d, std=0.005)
                self._add(n + site + "_scale", 3, fill=1.0)
                base = torch.zeros((2 + hc) * hc)
                base[:hc] = -math.log(hc - 1) if hc > 1 else 4.0  # pre mixes of 1/hc
                base[2 * hc :] = (torch.eye(hc) * 4.0).flatten()  # streams mostly keep to themselves
                self.params[(n + site + "_base").replace(".", "/")] = nn.Parameter(base)
            self._add(n + "attn_norm.weight", d, fill=1.0)
            self._add(n + "ffn_norm.weight", d, fill=1.0)
            self._add(n + "attn.wq_a.weight", c.q_lora_rank, d, std=d**-0.5)
            self._add(n + "attn.q_norm.weight", c.q_lora_rank, fill=1.0)
            self._add(n + "attn.wq_b.weight", heads, c.q_lora_rank, std=c.q_lora_rank**-0.5)
            self._add(n + "attn.wkv.weight", hd, d, std=d**-0.5)
            self._add(n + "attn.kv_norm.weight", hd, fill=1.0)
            self._add(n + "attn.wo_a.weight", c.o_groups * c.o_lora_rank, heads // c.o_groups, std=(heads // c.o_groups) ** -0.5)
            self._add(n + "attn.wo_b.weight", d, c.o_groups * c.o_lora_rank, std=0.3 * (c.o_groups * c.o_lora_rank) ** -0.5)
            self._add(n + "attn.attn_sink", c.num_attention_heads, fill=0.0)
            if i in c.kv_source_layer_ids:
                self._add(n + "attn.compressor.wkv.weight", hd, d, std=d**-0.5)
                if c.compress_ratios[i] > 1:
                    self._add(n + "attn.compressor.wgate.weight", hd, d, std=0.02)
                self._add(n + "attn.compressor.norm.weight", hd, fill=1.0)
                self._add(n + "attn.indexer.wk.weight", c.index_head_dim, hd, std=hd**-0.5)
                self._add(n + "attn.indexer.k_norm.weight", c.index_head_dim, fill=1.0)
            if i in c.index_source_layer_ids:
                self._add(n + "attn.indexer.wq_b.weight", c.index_n_heads * c.index_head_dim, c.q_lora_rank, std=c.q_lora_rank**-0.5)
                self._add(n + "attn.indexer.weights_proj.weight", c.index_n_heads, d, std=d**-0.5)
            if i in c.engram_layer_ids:
                rows = c.engram_num_embeddings[c.engram_layer_ids.index(i)]
                columns = (c.engram_max_ngram_size - 1) * c.engram_n_heads
                self._add(n + "engram.embed.weight", rows, c.engram_head_dim, std=0.5)
                self._add(n + "engram.wkv.weight", (hc + 1) * d, columns * c.engram_head_dim, std=0.3 * (columns * c.engram_head_dim) ** -0.5)
                self._add(n + "engram.q_weight", hc, d, fill=1.0)
                self._add(n + "engram.k_weight", hc, d, fill=1.0)
            self._add(n + "ffn.gate.weight", e, d, std=d**-0.5)
            self._add(n + "ffn.gate.bias", e, fill=0.0)
            self.p(n + "ffn.gate.bias").requires_grad_(False)
            self._add(n + "ffn.experts.w1", e, inner, d, std=d**-0.5)
            self._add(n + "ffn.experts.w3", e, inner, d, std=d**-0.5)
            self._add(n + "ffn.experts.w2", e, d, inner, std=0.3 * inner**-0.5)
            for w, shape, std in (("w1", (inner, d), d**-0.5), ("w3", (inner, d), d**-0.5), ("w2", (d, inner), 0.3 * inner**-0.5)):
                self._add(n + f"ffn.shared_experts.{w}.weight", *shape, std=std)

    def keep(self, name: str, value: torch.Tensor) -> None:
        """Records one tensor; the batch is one sequence then."""
        if self.record is not None:
            self.record[name] = value.detach()

    # -- section 13 ---------------------------------------------------------------------------------------------------

    def engram_ids(self, ids: torch.Tensor, table: int) -> torch.Tensor:
        """Row ids [N, columns] of token ids [B, T]."""
        c = self.cfg
        comp, pad = self.tokens[ids], self.tokens[c.engram_pad_token_id]
        m = getattr(self, f"engram_multipliers_{table}")
        primes, offsets = getattr(self, f"engram_primes_{table}"), getattr(self, f"engram_offsets_{table}")
        roll, out = comp * m[0], []
        for shift in range(1, c.engram_max_ngram_size):
            back = torch.cat([pad.expand(ids.shape[0], shift), comp[:, :-shift]], 1)
            roll = roll ^ (back * m[shift])
            for h in range(c.engram_n_heads):
                k = (shift - 1) * c.engram_n_heads + h
                out.append(roll % primes[k] + offsets[k])
        return torch.stack(out, -1).flatten(0, 1)

    # -- sections 7 to 9 ----------------------------------------------------------------------------------------------

    def compress(self, x: torch.Tensor, i: int, shape: tuple[int, int], shared: dict) -> None:
        """Compressed KV [B, S, D] of a source and, where somebody selects, its index keys [B, S, d]."""
        c, n, r = self.cfg, f"layers.{i}.attn.", self.cfg.compress_ratios[i]
        x = x.unflatten(0, shape)
        value = F.linear(x, self.p(n + "compressor.wkv.weight").to(x.dtype))
        if r > 1:
            gate = F.linear(x, self.p(n + "compressor.wgate.weight").to(x.dtype))
            groups = shape[1] // r
            value = value[:, : groups * r].unflatten(1, (groups, r)).float()
            gate = gate[:, : groups * r].unflatten(1, (groups, r)).float()
            value = (gate.softmax(2) * value).sum(2)
        latent = rms_norm(value, self.p(n + "compressor.norm.weight"), c.rms_norm_eps).to(x.dtype)
        angles = (torch.arange(latent.shape[1], device=x.device) * r).float().unsqueeze(-1) * self.freq_compress
        angles = angles.repeat(shape[0], 1)
        kv = rotate(latent.flatten(0, 1), angles).to(x.dtype).unflatten(0, latent.shape[:2])
        shared["kv"] = quant.ste(kv, quant.kv_fp4) if self.quant.kv else kv
        self.keep(f"layers.{i}.compressed.latent", latent[0])
        self.keep(f"layers.{i}.compressed.kv", shared["kv"][0])
        if self.sparse or self.index_loss is not None:
            key = F.linear(latent.detach(), self.p(n + "indexer.wk.weight").to(x.dtype))
            key = rms_norm(key, self.p(n + "indexer.k_norm.weight"), c.rms_norm_eps)
            key = rotate(key.flatten(0, 1), angles).unflatten(0, latent.shape[:2])
            shared["key"] = quant.ste(key, quant.index_fp4) if self.quant.kv else key
            self.keep(f"layers.{i}.compressed.index_key", shared["key"][0])

    def index_scores(self, x, qr, i: int, visible, shape: tuple[int, int], shared: dict) -> torch.Tensor:
        """Scores [B, T, S], -inf where not visible. The indexer learns from its own loss only: its inputs are detached."""
        c, n = self.cfg, f"layers.{i}.attn.indexer."
        q = fp8_linear(qr.detach(), self.p(n + "wq_b.weight"), self.quant).unflatten(-1, (c.index_n_heads, c.index_head_dim))
        angles = (torch.arange(shape[1], device=x.device).float().unsqueeze(-1) * self.freq_compress).repeat(shape[0], 1)
        q = rotate(q, angles)
        if self.quant.kv:
            q = quant.ste(q, quant.index_fp4)
        w = F.linear(x.detach(), self.p(n + "weights_proj.weight").to(x.dtype)).float().unflatten(0, shape)
        q = q.to(self.dtype).unflatten(0, shape)
        dots = torch.einsum("bthd,bsd->bhts", q, shared["key"].to(self.dtype)).relu()
        score = torch.einsum("bhts,bth->bts", dots, w.to(dots.dtype)).float() * (c.index_head_dim * c.index_n_heads) ** -0.5
        return score.masked_fill(~visible, -math.inf)

    def select(self, score: torch.Tensor, i: int, visible: torch.Tensor, shared: dict) -> torch.Tensor:
        """Mask of the selected entries [B, T, S]; also publishes the candidate mask."""
        c = self.cfg
        if i == c.candidate_source_layer_id:
            size, s = c.candidate_block_size, score.shape[-1]
            blocks = F.pad(score, (0, -s % size), value=-math.inf).unflatten(-1, (-1, size)).amax(-1)
            newest = ((visible.sum(-1) - 1).clamp_min(0) // size).unsqueeze(-1)
            blocks = blocks.scatter(-1, newest.expand(blocks.shape[:2] + (1,)), math.inf)
            values, indices = top(blocks, c.candidate_topk_blocks)
            keep = torch.zeros_like(blocks, dtype=torch.bool).scatter(-1, indices, values > -math.inf)
            shared["candidates"] = keep.repeat_interleave(size, -1)[..., :s]
        elif i > c.candidate_source_layer_id >= 0:
            score = score.masked_fill(~shared["candidates"], -math.inf)
        values, indices = top(score, c.index_topk)
        if self.record is not None:
            more = score.topk(min(c.index_topk + 1, score.shape[-1]), -1).values
            gap = torch.full(more.shape[:-1], math.inf)
            if more.shape[-1] > c.index_topk:
                gap = torch.where(more[..., -1] > -math.inf, more[..., -2] - more[..., -1], gap)
            last = torch.iinfo(torch.int32).max
            ids = torch.where(values > -math.inf, indices, last).sort(-1).values
            ids = F.pad(ids, (0, c.index_topk - ids.shape[-1]), value=last)
            self.keep(f"layers.{i}.index.topk", torch.where(ids == last, -1, ids).int()[0])
            self.keep(f"layers.{i}.index.margin", gap[0])
        return torch.zeros_like(score, dtype=torch.bool).scatter(-1, indices, values > -math.inf)

    def attend(self, q: torch.Tensor, kv: torch.Tensor, mask: torch.Tensor, sink: torch.Tensor, shared: dict) -> torch.Tensor:
        """The score matrix in memory: q [B, T, H, D], kv [B, T + S, D], mask [B, T, T + S]."""
        score = torch.einsum("bthd,bsd->bhts", q, kv).float() * q.shape[-1] ** -0.5
        score = score.masked_fill(~mask.unsqueeze(1), -math.inf)
        column = sink.view(1, -1, 1, 1).expand(*score.shape[:3], 1)
        prob = torch.cat([score, column], -1).softmax(-1)[..., :-1].to(q.dtype)
        if self.index_loss is not None and kv.shape[1] > q.shape[1]:
            shared["target"] = shared["target"] + prob.detach()[..., q.shape[1] :].float().sum(1)
        return torch.einsum("bhts,bsd->bthd", prob, kv)

    def attention(self, x: torch.Tensor, i: int, shape: tuple[int, int], shared: dict) -> torch.Tensor:
        c, n, r = self.cfg, f"layers.{i}.attn.", self.cfg.compress_ratios[i]
        angles = shared["angles_compress" if r else "angles_main"]
        qr, q, kv = attention_inputs(
            x,
            *(self.p(n + w + ".weight") for w in ("wq_a", "q_norm", "wq_b", "wkv", "kv_norm")),
            angles,
            c.num_attention_heads,
            c.rms_norm_eps,
            self.quant,
        )
        q, kv = q.unflatten(0, shape), kv.unflatten(0, shape)
        position = torch.arange(shape[1], device=x.device)
        if r:
            if i in c.kv_source_layer_ids:
                self.compress(x, i, shape, shared)
            entry = torch.arange(shared["kv"].shape[1], device=x.device)
            visible = (entry < ((position + 1) // r).unsqueeze(-1)).unsqueeze(0)
            if i in c.index_source_layer_ids and (self.sparse or self.index_loss is not None):
                self.close_index(shared)
                score = self.index_scores(x, qr, i, visible, shape, shared)
                shared["score"], shared["target"] = score, 0.0
                if self.sparse:
                    shared["mask"] = self.select(score.detach(), i, visible, shared)
            kv = torch.cat([kv, shared["kv"]], 1)
        sink = self.p(n + "attn_sink")
        if self.flex is not None and not self.sparse and self.index_loss is None:
            o = self.flex(q, kv, sink, shape[1], r, c.sliding_window)
        else:
            back = position.unsqueeze(-1) - position
            mask = ((back >= 0) & (back < c.sliding_window)).unsqueeze(0)
            if r:
                far = shared["mask"] if self.sparse else visible
                mask = torch.cat([mask.expand(far.shape[0], -1, -1), far], -1)
            o = self.attend(q, kv, mask, sink, shared)
        return attention_output(
            o.flatten(0, 1), self.p(n + "wo_a.weight"), self.p(n + "wo_b.weight"), angles, c.o_groups, self.quant
        )

    def close_index(self, shared: dict) -> None:
        """KL from the attention of the layers that used the last index source to its scores, over the entries they saw: what
        the indexer learns from. Rows that gave compressed entries no weight to speak of do not count."""
        score = shared.pop("score", None)
        if self.index_loss is None or score is None:
            return
        target, mass = shared["target"], shared["target"].sum(-1, keepdim=True)
        p = target / mass.clamp_min(1e-6)
        logq = (score if not self.sparse else score.masked_fill(~shared["mask"], -math.inf)).log_softmax(-1)
        kl = torch.where(p > 0, p * (p.clamp_min(1e-20).log() - logq), 0.0).sum(-1)
        weight = (mass.squeeze(-1) > 1e-3).float()
        self.index_loss.append((kl * weight).sum() / weight.sum().clamp_min(1.0))

    # -- section 4 ----------------------------------------------------------------------------------------------------

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Final normed rows [N, D] for head() and expert loads [layers, E]; ids [B, T]."""
        c, shape = self.cfg, (ids.shape[0], ids.shape[1])
        x = F.embedding(ids.flatten(), self.p("embed.weight")).unsqueeze(1).expand(-1, c.hc_mult, -1).float()
        pre = torch.zeros(c.hc_mult, device=ids.device)
        pre[0] = 1.0
        pre = pre.expand(x.shape[0], -1)
        position = torch.arange(shape[1], device=ids.device).float().unsqueeze(-1)
        shared: dict = {
            "angles_main": (position * self.freq_main).repeat(shape[0], 1),
            "angles_compress": (position * self.freq_compress).repeat(shape[0], 1),
        }
        loads = []
        for i in range(c.num_hidden_layers):
            n = f"layers.{i}."
            if i in c.engram_layer_ids:
                rows = self.engram_ids(ids, c.engram_layer_ids.index(i))
                weights = [self.p(n + "engram." + w) for w in ("embed.weight", "wkv.weight", "q_weight", "k_weight")]
                x = engram_mix(x, rows, *weights, c.rms_norm_eps, self.dtype, self.quant)
            a_pre, a_post, a_comb = self.mix(x, n + "hc_attn")
            h, normed = collapse(x, pre, self.p(n + "attn_norm.weight"), c.rms_norm_eps, self.dtype)
            self.keep(f"layers.{i}.collapsed", h)
            x = expand(self.attention(normed, i, shape, shared), x, a_post, a_comb)
            f_pre, f_post, f_comb = self.mix(x, n + "hc_ffn")
            _, normed = collapse(x, a_pre, self.p(n + "ffn_norm.weight"), c.rms_norm_eps, self.dtype)
            o, load = self.feed_forward(normed, i)
            loads.append(load)
            x = expand(o, x, f_post, f_comb)
            pre = f_pre
        self.close_index(shared)
        return collapse(x, pre, self.p("norm.weight"), c.rms_norm_eps, self.dtype)[1], torch.stack(loads)

    def mix(self, x: torch.Tensor, name: str):
        c = self.cfg
        weights = (self.p(name + suffix) for suffix in ("_fn", "_scale", "_base"))
        return hc_mix(x, *weights, c.hc_mult, c.hc_sinkhorn_iters, c.hc_eps, c.rms_norm_eps)

    def feed_forward(self, x: torch.Tensor, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Output, and the share of the tokens that each expert got."""
        c, n = self.cfg, f"layers.{i}.ffn."
        experts = tuple(self.p(n + f"experts.{w}") for w in ("w1", "w3", "w2"))
        shared = tuple(self.p(n + f"shared_experts.{w}.weight") for w in ("w1", "w3", "w2"))
        gate, bias = self.p(n + "gate.weight"), self.p(n + "gate.bias")
        o, load, biased, chosen, w = moe(
            x, gate, bias, experts, shared, c.num_experts_per_tok, c.routed_scaling_factor, c.swiglu_limit, self.quant
        )
        if self.record is not None:
            two = biased.topk(min(c.num_experts_per_tok + 1, c.n_routed_experts), -1).values
            self.keep(f"layers.{i}.router.indices", chosen.int())
            self.keep(f"layers.{i}.router.weights", w)
            self.keep(f"layers.{i}.router.margin", two[..., -2] - two[..., -1])
        return o, load

    def head(self, rows: torch.Tensor) -> torch.Tensor:
        return F.linear(rows, self.p("head.weight").to(rows.dtype))
