"""Runs every transducer kernel on small odd shapes: meant to be run under compute-sanitizer, and so kept short.

Inputs are made on the CPU and results are checked there, so that nearly all device work is warpalign's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.harness.sanitizer_cases import Case, main
from benchmarks.transducer.sanitize_decode import DECODE_CASES, decode_wrong
from tests.python.transducer.cases import FAMILIES as TESTED_FAMILIES
from tests.python.transducer.cases import PENALTIES, loss
from tests.python.transducer.joint_cases import joint_of
from tests.python.transducer.reference import Options, keywords
from tests.python.transducer.reference import loss as reference
from warpalign import (
    JointWeights,
    transducer_align,
    transducer_loss,
    transducer_loss_from_joint,
    transducer_loss_pruned,
)
from warpalign._core.checks import Precision

DTYPES = (torch.float32, torch.float16, torch.float64, torch.bfloat16)
# Each has a kernel of its own for the lattice: 2, 4, 7, 4 and 12 arcs.
FAMILIES = TESTED_FAMILIES | {"tdt_many": Options(blank=6, durations=(1, 2, 3, 4, 5, 6))}
# B, T, U+1, V: below, at and above the widths of lanes and strips.
SHAPES = [(1, 1, 1, 7), (2, 3, 2, 29), (2, 20, 34, 64), (1, 9, 5, 4097)]
LIMIT = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float64: 1e-10}


class Inputs(NamedTuple):
    """A batch: logits (B, T, U+1, V), duration logits or None, labels, and lengths of frames and labels."""

    x: Tensor
    z: Tensor | None
    y: Tensor
    lengths: tuple[Tensor, Tensor]


def wrong(
    shape: tuple[int, int, int, int], family: str, penalty: str, dtype: torch.dtype, device: torch.device
) -> str | None:
    """What is wrong with one batch's results, if anything is."""
    generator = torch.Generator().manual_seed(0)
    b, t, s, v = shape
    changed = PENALTIES[penalty]
    options = FAMILIES[family]._replace(blank=min(FAMILIES[family].blank, v - 1))
    options = options._replace(
        **{k: x for k, x in changed.items() if options.durations is None or not k.startswith("star")}
    )
    x = torch.randn(b, t, s, v, generator=generator).to(dtype)
    z = (
        None
        if options.durations is None
        else torch.randn(b, t, s, len(options.durations), generator=generator).to(dtype)
    )
    y = torch.randint(1, 4, (b, s - 1), generator=generator)
    lengths = torch.tensor([t, max(t - 2, 1)][:b]), torch.tensor([s - 1, max(s - 3, 0)][:b])
    inputs = Inputs(x, z, y, lengths)
    return wrong_losses(inputs, options, device) or wrong_alignments(inputs, options, device)


def wrong_losses(inputs: Inputs, options: Options, device: torch.device) -> str | None:
    """What is wrong with losses and gradients."""
    x, z, y, lengths = inputs
    on_device = [None if a is None else a.to(device, copy=True).requires_grad_() for a in (x, z)]
    assert on_device[0] is not None
    value = loss(on_device[0], on_device[1], y.to(device), options, *(n.to(device) for n in lengths))
    value.sum().backward()
    for k in range(len(x)):
        frames, states = int(lengths[0][k]), int(lengths[1][k]) + 1
        wide: list[Tensor | None] = [
            None if a is None else a[k, :frames, :states].to(torch.float64, copy=True).requires_grad_()
            for a in (x, z)
        ]
        assert wide[0] is not None
        expected = reference(wide[0], y[k, : states - 1].tolist(), options, wide[1])
        if not bool(torch.isfinite(expected.detach())):
            if not bool(torch.isinf(value[k].detach())):
                return f"utterance {k}: {float(value[k].detach())} instead of inf"
            continue
        expected.backward()
        if abs(float(value[k].detach()) - float(expected.detach())) > 1e-6 * (
            10 + abs(float(expected.detach()))
        ):
            return f"utterance {k}: loss {float(value[k].detach())} instead of {float(expected.detach())}"
        for name, source, own in zip(("logits", "durations"), wide, on_device, strict=True):
            if source is None or own is None:
                continue
            assert source.grad is not None and own.grad is not None
            found = own.grad[k, :frames, :states].cpu().double()
            if not (found - source.grad).norm() <= LIMIT[x.dtype] * source.grad.norm():
                return f"utterance {k}: gradient by {name}"
    return None


def wrong_alignments(inputs: Inputs, options: Options, device: torch.device) -> str | None:
    """What is wrong with scores and posteriors of alignments."""
    x, z, y, lengths = inputs
    given = (y, *lengths)
    ours = transducer_align(
        x.to(device),
        *(n.to(device) for n in given),
        duration_logits=None if z is None else z.to(device),
        posteriors=True,
        **keywords(options),
    )
    exact = transducer_align(
        x.double(),
        *given,
        duration_logits=None if z is None else z.double(),
        posteriors=True,
        **keywords(options),
    )
    if not torch.allclose(ours.score.cpu().double(), exact.score, rtol=1e-6, atol=1e-5):
        return f"scores {ours.score.tolist()} instead of {exact.score.tolist()}"
    assert ours.posteriors is not None and exact.posteriors is not None
    for name, found, expected in zip(ours.posteriors._fields, ours.posteriors, exact.posteriors, strict=True):
        if not torch.allclose(found.cpu().double(), expected, rtol=0, atol=2e-5):
            return f"posteriors: {name}"
    return None


def packed_wrong(dtype: torch.dtype, device: torch.device) -> str | None:
    """Packed rows have the bits of padded ones."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([9, 0, 4]), torch.tensor([33, 2, 0])
    y = torch.randint(1, 4, (3, 33), generator=generator).to(device)
    padded = torch.randn(3, 9, 34, 29, generator=generator).to(device, dtype)
    rows = [
        padded[b, : int(t), : int(u) + 1].flatten(0, 1) for b, (t, u) in enumerate(zip(*lengths, strict=True))
    ]
    found = []
    for logits, packed in ((padded, False), (torch.cat(rows), True)):
        own = logits.clone().requires_grad_()
        value = transducer_loss(
            own, y, *(n.to(device) for n in lengths), packed=packed, blank=0, reduction="none"
        )
        (gradient,) = torch.autograd.grad(value[value.isfinite()].sum(), own)
        found.append((value.detach(), gradient))
    (value, gradient), (packed_value, packed_gradient) = found
    if not torch.equal(value, packed_value):
        return f"losses {packed_value.tolist()} instead of {value.tolist()}"
    apart = [
        gradient[b, : int(t), : int(u) + 1].flatten(0, 1)
        for b, (t, u) in enumerate(zip(*lengths, strict=True))
    ]
    return None if torch.equal(torch.cat(apart), packed_gradient) else "gradient"


# B, T, U+1, V, H: below, at and above a product's tiles of 64 and 128.
JOINT_SHAPES = [(1, 1, 1, 7, 1), (2, 9, 5, 63, 17), (1, 33, 4, 129, 64), (2, 70, 3, 40, 131)]
# Warpgroups multiply 8 labels or more, by tiles of 216 and of 256 columns.
WIDE_SHAPES = [(2, 33, 5, 130, 17), (1, 9, 5, 260, 240)]
FEW_SHAPE = (2, 9, 5, 7, 17)  # blocks multiply
PRUNED_SHAPE = (2, 45, 9, 41, 17)


def joint_wrong(
    shape: tuple[int, int, int, int, int],
    family: str,
    dtype: torch.dtype,
    device: torch.device,
    precision: Precision = "highest",
) -> str | None:
    """The same of the loss fused with its joint network, whose losses are compared with those of its logits."""
    generator = torch.Generator().manual_seed(0)
    b, t, s, v, h = shape
    options = FAMILIES[family]._replace(blank=0)
    columns = v + len(options.durations or ())
    tensors = [
        torch.randn(*size, generator=generator).to(dtype)
        for size in ((b, t, h), (b, s, h), (columns, h), (columns,))
    ]
    y = torch.randint(1, 4, (b, s - 1), generator=generator)
    lengths = torch.tensor([t, max(t - 2, 1)][:b]), torch.tensor([s - 1, max(s - 3, 0)][:b])
    results = []
    for place, kind in ((device, dtype), (torch.device("cpu"), torch.float64)):
        own = [a.to(place, kind, copy=True).requires_grad_() for a in tensors]
        encoder, predictor, weight, bias = own
        if place == device:
            joint, rest = joint_of(weight, bias, options)
            value = transducer_loss_from_joint(
                encoder,
                predictor,
                y.to(place),
                joint,
                lengths[0].to(place),
                lengths[1].to(place),
                precision=precision,
                reduction="none",
                **rest,
            )
        else:
            rows = torch.nn.functional.linear((encoder[:, :, None] + predictor[:, None]).relu(), weight, bias)
            durations = None if options.durations is None else rows[..., v:]
            value = loss(rows[..., :v], durations, y, options, *lengths)
        finite = value.isfinite()
        gradients = torch.autograd.grad(value[finite].sum(), own) if bool(finite.any()) else ()
        results.append([value.detach().cpu().double(), *(g.cpu().double() for g in gradients)])
    # "medium" rounds factors to 11 bits, as float16 has; "high", by warpgroups, to two bfloat16 parts of 16 bits.
    eps = torch.finfo(torch.float16 if precision == "medium" else dtype).eps
    by_warpgroups = v >= 8 and device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)
    if precision == "high" and by_warpgroups:
        eps = 2.0**-16
    limit = 4 * eps * h**0.5
    for name, mine, wanted in zip(("loss", "encoder", "predictor", "weight", "bias"), *results, strict=False):
        known = wanted.isfinite()
        error = (mine - wanted)[known].norm()
        if not error <= limit * (wanted[known].norm() + (t + s) ** 0.5):
            return f"{name}: off by {float(error)}"
    return None


def pruned_wrong(
    shape: tuple[int, int, int, int, int], dtype: torch.dtype, in_place: bool, device: torch.device
) -> str | None:
    """What is wrong with a pruned loss and its gradients; its band is that of the CPU."""
    generator = torch.Generator().manual_seed(0)
    b, t, s, v, h = shape
    # The additive network knows the labels of each frame, so that no two bands are nearly equal.
    y = torch.randint(1, 4, (b, s - 1), generator=generator)
    shown = torch.linspace(0, s - 1.5, t).long()[None] if s > 1 else torch.zeros(1, t).long()
    of_encoder = 4 * torch.nn.functional.one_hot(torch.nn.functional.pad(y, (0, 1))[:, shown[0]], v).double()
    tensors = [
        torch.randn(*size, generator=generator).to(dtype) for size in ((b, t, h), (b, s, h), (v, h), (v,))
    ]
    tensors += [of_encoder.to(dtype), torch.randn(b, s, v, generator=generator).to(dtype)]
    lengths = torch.tensor([t, max(t - 2, 1)][:b]), torch.tensor([s - 1, max(s - 3, 0)][:b])
    results = []
    for place, kind in ((device, dtype), (torch.device("cpu"), torch.float64)):
        own = [a.to(place, kind, copy=True).requires_grad_() for a in tensors]
        encoder, predictor, weight, bias, *additive = own
        result = transducer_loss_pruned(
            encoder,
            predictor,
            y.to(place),
            JointWeights(weight, bias, activation="relu", blank=0),
            *(a * 1 if in_place else a for a in additive),
            *(n.to(place) for n in lengths),
            prune_range=3,
            inplace_grad=in_place,
            reduction="none",
        )
        gradients = torch.autograd.grad(result.loss.sum(), own)
        results.append([a.cpu().double() for a in (result.loss.detach(), *gradients, result.first_states)])
    limit = 8 * torch.finfo(dtype).eps * h**0.5
    names = "loss", "encoder", "predictor", "weight", "bias", "encoder_logits", "predictor_logits", "band"
    for name, mine, wanted in zip(names, *results, strict=True):
        error = float((mine - wanted).norm())
        if not error <= limit * float(wanted.norm() + (t + s) ** 0.5):
            return f"{name}: off by {error}"
    return None


def cases(device: torch.device) -> Iterator[Case]:
    """Losses, alignments, joints, packed logits and decoding."""
    # Each family meets each dtype at some shape.
    for number, shape in enumerate(SHAPES):
        for turn, family in enumerate(FAMILIES):
            penalty = list(PENALTIES)[(number + turn) % len(PENALTIES)]
            dtype = DTYPES[(number + turn) % len(DTYPES)]
            yield f"{shape} {family} {penalty} {dtype}", partial(wrong, shape, family, penalty, dtype, device)
    joints = list(zip(JOINT_SHAPES, FAMILIES, DTYPES, strict=False))
    halves = (torch.float16, torch.bfloat16)
    for turn, joint_shape in enumerate(WIDE_SHAPES):
        joints += [(joint_shape, list(FAMILIES)[2 * turn], dtype) for dtype in halves]
    joints += [(FEW_SHAPE, "rnnt", dtype) for dtype in halves]
    for joint_shape, family, dtype in joints:
        name = f"joint {joint_shape} {family} {dtype}"
        yield name, partial(joint_wrong, joint_shape, family, dtype, device)
    precisions: tuple[Precision, ...] = ("high", "medium")
    for precision in precisions:
        check = partial(joint_wrong, JOINT_SHAPES[-1], "rnnt", torch.float32, device, precision)
        yield f"joint {JOINT_SHAPES[-1]} {precision}", check
    for dtype in DTYPES:
        for in_place in (False, True):
            check = partial(pruned_wrong, PRUNED_SHAPE, dtype, in_place, device)
            yield f"pruned {PRUNED_SHAPE} {dtype} in place {in_place}", check
        yield f"packed {dtype}", partial(packed_wrong, dtype, device)
    for decode_case in DECODE_CASES:
        yield f"decoding {decode_case}", partial(decode_wrong, *decode_case, device)


if __name__ == "__main__":
    sys.exit(main(__doc__, cases))
