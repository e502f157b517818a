"""The model's number formats in PyTorch (spec/model.md section 17): values after quantisation, straight-through in training,
and the codes for export."""

from __future__ import annotations

from collections.abc import Callable

import torch

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def ste(x: torch.Tensor, quantiser: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """The quantised value forwards, the identity backwards."""
    return x + (quantiser(x.detach().float()).to(x.dtype) - x.detach())


def pow2_ceil(t: torch.Tensor) -> torch.Tensor:
    """2^ceil(log2 t) of normal positive floats, exactly: a mantissa that is not zero carries into the exponent."""
    return ((t.view(torch.int32) + 0x7FFFFF) & 0x7F800000).view(torch.float32)


def e2m1(x: torch.Tensor) -> torch.Tensor:
    """Nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6, ties to the even code; |x| <= 6."""
    a = x.abs()
    step = torch.where(a < 2, 0.5, torch.where(a < 4, 1.0, 2.0))
    return torch.copysign(torch.round(a / step) * step, x)


def e2m1_codes(x: torch.Tensor) -> torch.Tensor:
    """Magnitude codes 0..7."""
    return (e2m1(x).abs().unsqueeze(-1) == E2M1.to(x.device)).to(torch.uint8).argmax(-1).to(torch.uint8)


def e4m3(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(-448, 448).to(torch.float8_e4m3fn).float()


def act8(x: torch.Tensor) -> torch.Tensor:
    """act_quant8 (17.3): the last dim in blocks of 32."""
    b = x.float().unflatten(-1, (-1, 32))
    s = pow2_ceil(b.abs().amax(-1, keepdim=True).clamp_min(1e-4) * (1 / 448))
    return (e4m3(b / s) * s).flatten(-2)


def kv_fp4(x: torch.Tensor) -> torch.Tensor:
    """Compressed KV (17.4)."""
    b = x.float().unflatten(-1, (-1, 16))
    s = e4m3(b.abs().amax(-1, keepdim=True).clamp_min(6 * 2.0**-9) / 6)
    return (e2m1((b / s).clamp(-6, 6)) * s).flatten(-2)


def index_fp4(x: torch.Tensor) -> torch.Tensor:
    """Index queries and keys (17.5)."""
    b = x.float().unflatten(-1, (-1, 32))
    s = pow2_ceil(b.abs().amax(-1, keepdim=True).clamp_min(6 * 2.0**-126) * (1 / 6))
    return (e2m1((b / s).clamp(-6, 6)) * s).flatten(-2)


def fp8_scale(b: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    return pow2_ceil(b.abs().amax(dims, keepdim=True).clamp_min(1e-12) / 448)


def fp8_block(w: torch.Tensor) -> torch.Tensor:
    """Dense weights (17.7): 32 x 32 blocks."""
    o, i = w.shape
    b = w.float().reshape(o // 32, 32, i // 32, 32)
    s = fp8_scale(b, (1, 3))
    return (e4m3(b / s) * s).reshape(o, i)


def fp8_rows(w: torch.Tensor) -> torch.Tensor:
    """Engram tables (section 12): 32 columns of one row."""
    b = w.float().unflatten(-1, (-1, 32))
    s = fp8_scale(b, (-1,))
    return (e4m3(b / s) * s).flatten(-2)


def fp4_scale(b: torch.Tensor) -> torch.Tensor:
    """Of the two powers of two around amax / 6 the one with the smaller squared error."""
    high = pow2_ceil(b.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 6)
    low = high / 2
    error = lambda s: (e2m1((b / s).clamp(-6, 6)) * s - b).pow(2).sum(-1, keepdim=True)
    return torch.where(error(low) < error(high), low, high)


def fp4_rows(w: torch.Tensor) -> torch.Tensor:
    """Routed experts (17.8): 32 columns of one row."""
    b = w.float().unflatten(-1, (-1, 32))
    s = fp4_scale(b)
    return (e2m1((b / s).clamp(-6, 6)) * s).flatten(-2)


# ---------------------------------------------------------------------------------------------------------------------
# Codes for export.


def scale_codes(s: torch.Tensor) -> torch.Tensor:
    """e8m0 codes of powers of two."""
    return (torch.frexp(s).exponent - 1 + 127).to(torch.uint8)


def export_fp8_block(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    o, i = w.shape
    b = w.float().reshape(o // 32, 32, i // 32, 32)
    s = fp8_scale(b, (1, 3))
    codes = (b / s).clamp(-448, 448).to(torch.float8_e4m3fn).reshape(o, i)
    return codes, scale_codes(s).reshape(o // 32, i // 32).view(torch.float8_e8m0fnu)


def export_fp8_rows(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    b = w.float().unflatten(-1, (-1, 32))
    s = fp8_scale(b, (-1,))
    codes = (b / s).clamp(-448, 448).to(torch.float8_e4m3fn).flatten(-2)
    return codes, scale_codes(s).squeeze(-1).view(torch.float8_e8m0fnu)


def export_fp4_rows(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    b = w.float().unflatten(-1, (-1, 32))
    s = fp4_scale(b)
    x = (b / s).clamp(-6, 6)
    codes = (e2m1_codes(x) | (torch.signbit(x).to(torch.uint8) << 3)).flatten(-2)
    packed = (codes[:, 0::2] | (codes[:, 1::2] << 4)).view(torch.int8)
    return packed, scale_codes(s).squeeze(-1).view(torch.float8_e8m0fnu)


def load_fp8(codes: torch.Tensor, scale: torch.Tensor, rows: int) -> torch.Tensor:
    """Dequantises e4m3 with one scale per `rows` x 32 block."""
    s = torch.ldexp(torch.ones(scale.shape), scale.view(torch.uint8).int() - 127)
    s = s.repeat_interleave(rows, 0)[: codes.shape[0]].repeat_interleave(32, 1)[:, : codes.shape[1]]
    return codes.float() * s


def load_fp4(packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    u = packed.view(torch.uint8)
    codes = torch.stack([u & 15, u >> 4], -1).flatten(-2)
    values = torch.cat([E2M1, -E2M1])[codes.long()]
    s = torch.ldexp(torch.ones(scale.shape), scale.view(torch.uint8).int() - 127)
    return values * s.repeat_interleave(32, 1)
