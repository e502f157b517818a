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
# Pieces.


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
    """Interleaved rotation of the last dims of x [B, T, D] or [B, T, H, D]; angles [T, rope / 2]."""
    rope = 2 * angles.shape[-1]
    keep, turn = x[..., :-rope].float(), x[..., -rope:].float()
    if x.dim() == 4:
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


# ---------------------------------------------------------------------------------------------------------------------
# The model.


class Backbone(nn.Module):
    def __init__(self, cfg: Config, tokens: np.ndarray | None):
        super().__init__()
        self.cfg = cfg
        self.sparse = False  # select compressed entries as the released model does
        self.weight_quant = False  # straight-through quantisation of weights
        self.act_quant = False  # ... of the activations in front of quantised weights
        self.kv_quant = False  # ... of window KV, compressed KV, index queries and keys
        self.dropout = 0.0
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

    # -- linear layers ------------------------------------------------------------------------------------------------

    def lin(self, x: torch.Tensor, name: str, act: bool = True) -> torch.Tensor:
        """A product with an FP8 weight; act: the activation in front of it is quantised too."""
        w = self.p(name)
        if self.weight_quant:
            w = quant.ste(w, quant.fp8_block)
        if self.act_quant and act:
            x = quant.ste(x, quant.act8)
        return F.linear(x, w)

    def plain(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, self.p(name))

    def drop(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x

    # -- sections 5, 12, 11 -------------------------------------------------------------------------------------------

    def mixes(self, x: torch.Tensor, name: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        c, hc = self.cfg, self.cfg.hc_mult
        with torch.autocast(x.device.type, enabled=False):
            v = x.float().flatten(-2)
            m = F.linear(v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + c.rms_norm_eps), self.p(name + "_fn"))
            scale, base = self.p(name + "_scale"), self.p(name + "_base")
            pre = torch.sigmoid(m[..., :hc] * scale[0] + base[:hc]) + c.hc_eps
            post = 2 * torch.sigmoid(m[..., hc : 2 * hc] * scale[1] + base[hc : 2 * hc])
            comb = (m[..., 2 * hc :] * scale[2] + base[2 * hc :]).unflatten(-1, (hc, hc))
            return pre, post, sinkhorn(comb, c.hc_sinkhorn_iters, c.hc_eps)

    def engram_ids(self, ids: torch.Tensor, table: int) -> torch.Tensor:
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
        return torch.stack(out, -1)

    def engram(self, x: torch.Tensor, ids: torch.Tensor, i: int) -> torch.Tensor:
        c, n = self.cfg, f"layers.{i}.engram."
        rows = self.engram_ids(ids, c.engram_layer_ids.index(i))
        table = self.p(n + "embed.weight")
        if self.weight_quant:
            table = quant.ste(table, quant.fp8_rows)
        kv = self.lin(F.embedding(rows, table).flatten(-2), n + "wkv.weight").unflatten(-1, (c.hc_mult + 1, c.hidden_size))
        key, value = kv[..., :-1, :].float(), kv[..., -1:, :].float()
        x32 = x.float()
        dot = (rms_norm(x32, self.p(n + "q_weight"), c.rms_norm_eps) * rms_norm(key, self.p(n + "k_weight"), c.rms_norm_eps)).sum(-1)
        dot = dot * c.hidden_size**-0.5
        gate = torch.sigmoid(torch.copysign(dot.abs().clamp_min(1e-6).sqrt(), dot))
        return (x32 + gate.unsqueeze(-1) * value).to(x.dtype)

    def moe(self, x: torch.Tensor, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Output, and the share of the tokens that each expert got."""
        c, n = self.cfg, f"layers.{i}.ffn."
        with torch.autocast(x.device.type, enabled=False):
            z = F.linear(x.float(), self.p(n + "gate.weight").float())
            score = F.softplus(z).sqrt()
            biased = score + self.p(n + "gate.bias")
            chosen = top(biased, c.num_experts_per_tok)[1]
            w = score.gather(-1, chosen)
            w = w / (w.sum(-1, keepdim=True) + 1e-20) * c.routed_scaling_factor
            weights = torch.zeros_like(score).scatter(-1, chosen, w)
            load = (weights > 0).float().mean((0, 1)).detach()
            if self.record is not None:
                two = biased.topk(min(c.num_experts_per_tok + 1, c.n_routed_experts), -1).values
                self.keep(f"layers.{i}.router.indices", chosen.int())
                self.keep(f"layers.{i}.router.weights", w)
                self.keep(f"layers.{i}.router.margin", two[..., -2] - two[..., -1])
        xq = quant.ste(x, quant.act8) if self.act_quant else x
        w1, w3, w2 = (self.p(n + f"experts.{k}") for k in ("w1", "w3", "w2"))
        if self.weight_quant:
            w1, w3, w2 = (quant.ste(v, quant.fp4_rows) for v in (w1, w3, w2))
        e, inner, d = w1.shape
        g = F.linear(xq, w1.reshape(e * inner, d)).unflatten(-1, (e, inner))
        u = F.linear(xq, w3.reshape(e * inner, d)).unflatten(-1, (e, inner))
        h = self.swiglu(g, u) * weights.unsqueeze(-1)
        h = quant.ste(h.to(x.dtype), quant.act8) if self.act_quant else h.to(x.dtype)
        routed = F.linear(h.flatten(-2), w2.permute(1, 0, 2).reshape(d, e * inner))
        s = self.swiglu(self.lin(x, n + "shared_experts.w1.weight"), self.lin(x, n + "shared_experts.w3.weight"))
        return routed + self.lin(s.to(x.dtype), n + "shared_experts.w2.weight"), load

    def keep(self, name: str, value: torch.Tensor) -> None:
        """Records one tensor of the first sequence."""
        if self.record is not None:
            self.record[name] = value[0].detach()

    def swiglu(self, g: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        limit = self.cfg.swiglu_limit
        return F.silu(g.float().clamp(max=limit)) * u.float().clamp(-limit, limit)

    # -- sections 7 to 9 ----------------------------------------------------------------------------------------------

    def compress(self, x: torch.Tensor, i: int, shared: dict) -> None:
        c, n, r = self.cfg, f"layers.{i}.attn.", self.cfg.compress_ratios[i]
        value = self.plain(x, n + "compressor.wkv.weight")
        if r > 1:
            gate = self.plain(x, n + "compressor.wgate.weight")
            groups = x.shape[1] // r
            value = value[:, : groups * r].unflatten(1, (groups, r)).float()
            gate = gate[:, : groups * r].unflatten(1, (groups, r)).float()
            value = (gate.softmax(2) * value).sum(2)
        latent = rms_norm(value, self.p(n + "compressor.norm.weight"), c.rms_norm_eps).to(x.dtype)
        angles = (torch.arange(latent.shape[1], device=x.device) * r).float().unsqueeze(-1) * self.freq_compress
        kv = rotate(latent, angles).to(x.dtype)
        shared["kv"] = quant.ste(kv, quant.kv_fp4) if self.kv_quant else kv
        self.keep(f"layers.{i}.compressed.latent", latent)
        self.keep(f"layers.{i}.compressed.kv", shared["kv"])
        key = rms_norm(self.plain(latent, n + "indexer.wk.weight"), self.p(n + "indexer.k_norm.weight"), c.rms_norm_eps)
        key = rotate(key, angles)
        shared["key"] = quant.ste(key, quant.index_fp4) if self.kv_quant else key
        self.keep(f"layers.{i}.compressed.index_key", shared["key"])

    def select(self, x: torch.Tensor, qr: torch.Tensor, i: int, visible: torch.Tensor, shared: dict) -> torch.Tensor:
        """Mask of the selected entries [B, T, S]; also publishes the candidate mask."""
        c, n = self.cfg, f"layers.{i}.attn.indexer."
        q = self.lin(qr, n + "wq_b.weight").unflatten(-1, (c.index_n_heads, c.index_head_dim))
        angles = torch.arange(x.shape[1], device=x.device).float().unsqueeze(-1) * self.freq_compress
        q = rotate(q, angles)
        if self.kv_quant:
            q = quant.ste(q, quant.index_fp4)
        w = self.plain(x, n + "weights_proj.weight").float()
        dots = torch.einsum("bthd,bsd->bths", q.float(), shared["key"].float()).relu()
        score = (dots * w.unsqueeze(-1)).sum(2) * (c.index_head_dim * c.index_n_heads) ** -0.5
        score = score.masked_fill(~visible, -math.inf)
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
            self.keep(f"layers.{i}.index.topk", torch.where(ids == last, -1, ids).int())
            self.keep(f"layers.{i}.index.margin", gap)
        return torch.zeros_like(score, dtype=torch.bool).scatter(-1, indices, values > -math.inf)

    def attention(self, x: torch.Tensor, i: int, shared: dict) -> torch.Tensor:
        c, n, r = self.cfg, f"layers.{i}.attn.", self.cfg.compress_ratios[i]
        t = x.shape[1]
        freq = self.freq_compress if r else self.freq_main
        position = torch.arange(t, device=x.device)
        angles = position.float().unsqueeze(-1) * freq
        qr = rms_norm(self.lin(x, n + "wq_a.weight"), self.p(n + "q_norm.weight"), c.rms_norm_eps).to(x.dtype)
        q = self.lin(qr, n + "wq_b.weight").unflatten(-1, (c.num_attention_heads, c.head_dim))
        q = rotate(q, angles).to(x.dtype)
        kv = rms_norm(self.lin(x, n + "wkv.weight"), self.p(n + "kv_norm.weight"), c.rms_norm_eps)
        kv = rotate(kv.to(x.dtype), angles).to(x.dtype)
        if self.kv_quant:
            kv = quant.ste(kv, quant.act8)
        back = position.unsqueeze(-1) - position
        mask = ((back >= 0) & (back < c.sliding_window)).unsqueeze(0)
        if r:
            if i in c.kv_source_layer_ids:
                self.compress(x, i, shared)
            entry = torch.arange(shared["kv"].shape[1], device=x.device)
            visible = (entry < ((position + 1) // r).unsqueeze(-1)).unsqueeze(0)
            if i in c.index_source_layer_ids:
                shared["mask"] = self.select(x, qr, i, visible, shared) if self.sparse else visible
            kv = torch.cat([kv, shared["kv"]], 1)
            mask = torch.cat([mask.expand(shared["mask"].shape[0], -1, -1), shared["mask"]], -1)
        score = torch.einsum("bthd,bsd->bhts", q, kv).float() * c.head_dim**-0.5
        score = score.masked_fill(~mask.unsqueeze(1), -math.inf)
        sink = self.p(n + "attn_sink").view(1, -1, 1, 1).expand(score.shape[0], -1, t, 1)
        prob = torch.cat([score, sink], -1).softmax(-1)[..., :-1].to(x.dtype)
        o = rotate(torch.einsum("bhts,bsd->bthd", prob, kv), angles, -1.0).to(x.dtype)
        o = o.unflatten(2, (c.o_groups, -1)).flatten(3)
        wo_a = self.p(n + "wo_a.weight")
        if self.weight_quant:
            wo_a = quant.ste(wo_a, quant.fp8_block)
        low = torch.einsum("btgk,grk->btgr", o, wo_a.unflatten(0, (c.o_groups, c.o_lora_rank)))
        return self.lin(low.flatten(2), n + "wo_b.weight")

    # -- section 4 ----------------------------------------------------------------------------------------------------

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits [B, T, V] and expert loads [layers, E]."""
        c = self.cfg
        x = F.embedding(ids, self.p("embed.weight")).unsqueeze(2).expand(-1, -1, c.hc_mult, -1)
        pre = torch.zeros(c.hc_mult, device=ids.device)
        pre[0] = 1.0
        pre = pre.expand(*ids.shape, -1)
        shared: dict = {}
        loads = []
        dtype = torch.bfloat16 if torch.is_autocast_enabled(ids.device.type) else torch.float32
        for i in range(c.num_hidden_layers):
            n = f"layers.{i}."
            if i in c.engram_layer_ids:
                x = self.engram(x, ids, i)
            a_pre, a_post, a_comb = self.mixes(x, n + "hc_attn")
            h = (pre.unsqueeze(-1) * x.float()).sum(2)
            self.keep(f"layers.{i}.collapsed", h)
            o = self.attention(rms_norm(h, self.p(n + "attn_norm.weight"), c.rms_norm_eps).to(dtype), i, shared)
            x = self.expand(self.drop(o), x, a_post, a_comb)
            f_pre, f_post, f_comb = self.mixes(x, n + "hc_ffn")
            h = (a_pre.unsqueeze(-1) * x.float()).sum(2)
            o, load = self.moe(rms_norm(h, self.p(n + "ffn_norm.weight"), c.rms_norm_eps).to(dtype), i)
            loads.append(load)
            x = self.expand(self.drop(o), x, f_post, f_comb)
            pre = f_pre
        h = (pre.unsqueeze(-1) * x.float()).sum(2)
        logits = F.linear(rms_norm(h, self.p("norm.weight"), c.rms_norm_eps).to(dtype), self.p("head.weight"))
        return logits, torch.stack(loads)

    @staticmethod
    def expand(o: torch.Tensor, x: torch.Tensor, post: torch.Tensor, comb: torch.Tensor) -> torch.Tensor:
        mixed = torch.einsum("btjk,btjd->btkd", comb, x.float())
        return mixed + post.unsqueeze(-1) * o.float().unsqueeze(2)
