"""The raw operators: they refuse what would break the core's contract, for whoever calls them directly."""

from __future__ import annotations

import math
from typing import Any

import torch

from tests.python.bad_calls import BadCall, BadCalls, Given

OPS = torch.ops.warpalign
AXES = "expected every axis of {} below 2^31, and none but the batch empty, got shape {}"
BATCH = "expected (B, M, D) with the B and D of x, which has shape (3, 5, 2), got shape "
PER_PAIR = "expected a contiguous tensor (B,) with B = 3, got shape "


def ints(given: Given, *values: int) -> torch.Tensor:
    return given.ints(*values, dtype=torch.int32)


def long(given: Given, *shape: int) -> torch.Tensor:
    return torch.zeros(1, 1, 1, device=given.device).expand(shape)


# What changes of a good call of soft_dtw, soft_dtw_alignment and soft_dtw_subsequence: arguments, message; the arguments' name.
SERIES: dict[str, tuple[Any, str]] = {
    "x of 0 axes": (lambda g: {"x": g.x.sum()}, "x: expected 3 axes (B, N, D), got shape ()"),
    "x of 2 axes": (lambda g: {"x": g.x[0]}, "x: expected 3 axes (B, N, D), got shape (5, 2)"),
    "x of 4 axes": (lambda g: {"x": g.x[None]}, "x: expected 3 axes (B, N, D), got shape (1, 3, 5, 2)"),
    "y of 2 axes": (lambda g: {"y": g.y[0]}, "y: expected 3 axes (B, M, D), got shape (6, 2)"),
    "y of another batch": (lambda g: {"y": g.y[:2]}, "y: " + BATCH + "(2, 6, 2)"),
    "y of one series": (lambda g: {"y": g.y[:1]}, "y: " + BATCH + "(1, 6, 2)"),
    "y of other features": (lambda g: {"y": g.y[..., :1]}, "y: " + BATCH + "(3, 6, 1)"),
    "x without steps": (lambda g: {"x": g.x[:, :0]}, "x: " + AXES.format("(B, N, D)", "(3, 0, 2)")),
    "y without steps": (lambda g: {"y": g.y[:, :0]}, "y: " + AXES.format("(B, M, D)", "(3, 0, 2)")),
    "x without features": (lambda g: {"x": g.x[..., :0]}, "x: " + AXES.format("(B, N, D)", "(3, 5, 0)")),
    "2^31 steps": (lambda g: {"x": long(g, 1, 2**31, 1)}, "x: " + AXES.format("(B, N, D)", f"(1, {2**31}, 1)")),
    "2^31 features": (lambda g: {"x": long(g, 1, 1, 2**31)}, "x: " + AXES.format("(B, N, D)", f"(1, 1, {2**31})")),
    "2^31 pairs": (lambda g: {"x": long(g, 2**31, 1, 1)}, "x: " + AXES.format("(B, N, D)", f"({2**31}, 1, 1)")),
    "2^31 steps of y": (lambda g: {"y": long(g, 1, 2**31, 1)}, "y: " + AXES.format("(B, M, D)", f"(1, {2**31}, 1)")),
    "integers": (lambda g: {"x": g.x.long()}, "x: expected dtype float32 or float64, got dtype Long"),
    "complex": (lambda g: {"x": g.x.to(torch.complex64)}, "x: expected dtype float32 or float64, got dtype ComplexFloat"),
    "float16": (lambda g: {"x": g.x.half()}, "x: expected dtype float32 or float64, got dtype Half"),
    "two dtypes": (lambda g: {"y": g.y.double()}, "y: expected the dtype of x, dtype Float, got dtype Double"),
    "lengths of int64": (lambda g: {"x_lengths": g.ints(1, 2, 3)}, "x_lengths: expected dtype int32, got dtype Long"),
    "lengths of float": (lambda g: {"y_lengths": ints(g, 1, 2, 3).float()}, "y_lengths: expected dtype int32, got dtype Float"),
    "too few lengths": (lambda g: {"x_lengths": ints(g, 1, 2)}, "x_lengths: " + PER_PAIR + "(2)"),
    "lengths of 0 axes": (lambda g: {"x_lengths": ints(g, 1)[0]}, "x_lengths: " + PER_PAIR + "()"),
    "lengths of 2 axes": (lambda g: {"y_lengths": ints(g, 1, 2, 3)[:, None]}, "y_lengths: " + PER_PAIR + "(3, 1)"),
    "strided lengths": (lambda g: {"x_lengths": ints(g, 1, 2, 3, 4, 5, 6)[::2]}, "x_lengths: " + PER_PAIR + "(3)"),
    "a negative gamma": ({"gamma": -1.5}, "gamma: expected finite and >= 0, got -1.5"),
    "a gamma of NaN": ({"gamma": math.nan}, "gamma: expected finite and >= 0, got nan"),
    "an infinite gamma": ({"gamma": math.inf}, "gamma: expected finite and >= 0, got inf"),
    "a negative step_penalty": ({"step_penalty": -1.0}, "step_penalty: expected finite and >= 0, got -1"),
    "an unknown cost": ({"cost_kind": 9}, "cost_kind: expected one of the kinds of CostKind, got 9"),
    "another device": (lambda g: {"y": g.y.to("meta")}, "y: expected the device of x, DEVICE, got meta"),
    "lengths elsewhere": (lambda g: {"x_lengths": ints(g, 1, 2, 3).to("meta")}, "x_lengths: expected the device of x, DEVICE, got meta"),
}  # fmt: skip
# CUDA takes half types: what soft_dtw and soft_dtw_alignment say there.
_TAKEN = "x: expected dtype float32, float64, float16 or bfloat16, got dtype "
WITH_HALVES = {
    "integers": _TAKEN + "Long",
    "complex": _TAKEN + "ComplexFloat",
    "float16": "y: expected the dtype of x, dtype Half, got dtype Float",
}
CPU_ONLY: dict[str, tuple[Any, str]] = {
    f"{name} {bad}": ({name: torch.tensor([1, 1, bad], dtype=torch.int32)}, f"{name}: expected between 1 and {limit}, got {bad} at index 2")
    for name, limit in (("x_lengths", "N"), ("y_lengths", "M"))
    for bad in (0, -1, 7, 2**31 - 1, -(2**31))
}  # fmt: skip
SETTINGS: dict[str, tuple[Any, str]] = {
    "an unknown band": ({"band": 9}, "band: expected one of the kinds of BandKind, got 9"),
    "a band below them": ({"band": -7}, "band: expected one of the kinds of BandKind, got -7"),
    "a negative radius": ({"band": 1, "radius": -5}, "band: expected a radius of at least 0, got -5"),
    "a radius below int32": ({"band": 1, "radius": -(2**40)}, f"band: expected a radius of at least 0, got {-(2**31)}"),
    "an unknown precision": ({"precision": 3}, "precision: expected one of the values of Precision, got 3"),
    "a flat slope": ({"band": 4, "max_slope": 0.5}, "band: expected a finite max_slope of at least 1, got 0.5"),
    "too few gammas": (lambda g: {"gammas": torch.ones(2)}, "gammas: " + PER_PAIR + "(2)"),
    "a negative gamma among others": (
        lambda g: {"gammas": torch.tensor([1.0, -1.0, 1.0])}, "gammas: expected finite and > 0, got -1 at index 1"
    ),
}  # fmt: skip
MASKS: dict[str, tuple[Any, str]] = {
    "gammas of another dtype": (lambda g: {"gammas": torch.ones(3).double()}, "gammas: expected the dtype of x, dtype Float, got dtype Double"),
    "a mask elsewhere": (
        lambda g: {"y_mask": torch.zeros(3, 6, dtype=torch.bool, device="meta")}, "y_mask: expected the device of x, DEVICE, got meta"
    ),
    "a mask of float": (lambda g: {"x_mask": g.x[..., 0]}, "x_mask: expected dtype bool, got dtype Float"),
    "a mask of another length": (
        lambda g: {"y_mask": g.x[..., 0].bool()},
        "y_mask: expected a contiguous tensor of the first two axes of the series, which has shape (3, 6, 2), got shape (3, 5)",
    ),
}  # fmt: skip
COSTS: dict[str, tuple[Any, str]] = {
    "2 axes": (lambda g: {"cost": g.cost[0]}, "cost: expected 3 axes (B, N, M), got shape (5, 6)"),
    "4 axes": (lambda g: {"cost": g.cost[None]}, "cost: expected 3 axes (B, N, M), got shape (1, 3, 5, 6)"),
    "no rows": (lambda g: {"cost": g.cost[:, :0]}, "cost: " + AXES.format("(B, N, M)", "(3, 0, 6)")),
    "no columns": (lambda g: {"cost": g.cost[..., :0]}, "cost: " + AXES.format("(B, N, M)", "(3, 5, 0)")),
    "2^31 rows": (lambda g: {"cost": long(g, 1, 2**31, 1)}, "cost: " + AXES.format("(B, N, M)", f"(1, {2**31}, 1)")),
    "integers": (lambda g: {"cost": g.cost.long()}, "cost: expected dtype float32 or float64, got dtype Long"),
    "lengths of int64": (lambda g: {"x_lengths": g.ints(1, 2, 3)}, "x_lengths: expected dtype int32, got dtype Long"),
    "too few lengths": (lambda g: {"y_lengths": ints(g, 1)}, "y_lengths: " + PER_PAIR + "(1)"),
    "lengths elsewhere": (lambda g: {"x_lengths": ints(g, 1, 2, 3).to("meta")}, "x_lengths: expected the device of cost, DEVICE, got meta"),
    "a negative gamma": ({"gamma": -0.5}, "gamma: expected finite and >= 0, got -0.5"),
}  # fmt: skip


HARD: dict[str, tuple[Any, str]] = {
    "a gamma of 0": ({"gamma": 0.0}, "gamma: hard DTW (gamma = 0) has no second derivatives"),
}
NO_PATHS: dict[str, tuple[Any, str]] = {
    "a gamma of 0": ({"gamma": 0.0}, "gamma: expected > 0, as hard DTW (gamma = 0) has one path, got 0"),
    "-1 paths": ({"count": -1}, "count: expected 0 to 2^31 - 1 paths, got -1"),
    "2^31 paths": ({"count": 2**31}, f"count: expected 0 to 2^31 - 1 paths, got {2**31}"),
}
TANGENTS: dict[str, tuple[Any, str]] = {
    "a tangent of another shape": (
        lambda g: {"x_tangent": g.y}, "x_tangent: expected the shape of x, shape (3, 5, 2), got shape (3, 6, 2)"
    ),
    "a tangent of 2 axes": (
        lambda g: {"y_tangent": g.y[0]}, "y_tangent: expected the shape of y, shape (3, 6, 2), got shape (6, 2)"
    ),
    "a tangent of another dtype": (
        lambda g: {"y_tangent": g.y.double()}, "y_tangent: expected the dtype of y, dtype Float, got dtype Double"
    ),
    "a tangent elsewhere": (
        lambda g: {"y_tangent": g.y.to("meta")}, "y_tangent: expected the device of x, DEVICE, got meta"
    ),
}  # fmt: skip
COST_TANGENTS: dict[str, tuple[Any, str]] = {
    "a tangent of another shape": (
        lambda g: {"cost_tangent": g.cost.mT}, "cost_tangent: expected the shape of cost, shape (3, 5, 6), got shape (3, 6, 5)"
    ),
    "a tangent of another dtype": (
        lambda g: {"cost_tangent": g.cost.half()}, "cost_tangent: expected the dtype of cost, dtype Float, got dtype Half"
    ),
    "a tangent elsewhere": (
        lambda g: {"cost_tangent": g.cost.to("meta")}, "cost_tangent: expected the device of cost, DEVICE, got meta"
    ),
}  # fmt: skip


def _call(name: str, change: Any, given: Given) -> object:
    options = change(given) if callable(change) else change
    operator = getattr(OPS, name)
    if name.startswith("soft_dtw_cost"):
        good = {"cost": given.cost, "x_lengths": None, "y_lengths": None, "gamma": 1.0, "needs_grad": True}
    else:
        good = {"x": given.x, "y": given.y, "x_lengths": None, "y_lengths": None, "gamma": 1.0}
        good |= {"needs_grad_x": True, "needs_grad_y": True}
    if name.endswith("_sample"):
        good = {key: value for key, value in good.items() if not key.startswith("needs")} | {
            "count": 2,
            "seed": 0,
        }
    changed = good | options
    if name == "soft_dtw_cost_jvp":  # a tangent as the input is, if not given
        changed = {"cost_tangent": changed["cost"]} | changed
    elif name == "soft_dtw_jvp":
        changed = {"x_tangent": changed["x"], "y_tangent": changed["y"]} | changed
    return operator(**changed)


# Packed series: what is wrong of a good call of soft_dtw_packed.
PACKED: dict[str, tuple[Any, str]] = {
    "a batch": (lambda g: {"x": g.x, "y": g.y}, "x: expected (1, steps, D), got shape (3, 5, 2)"),
    "x of 2 axes": (lambda g: {"x": g.x[0]}, "x: expected 3 axes (B, N, D), got shape (5, 2)"),
    "offsets of int32": (lambda g: {"x_offsets": ints(g, 0, 5, 10)}, "x_offsets: expected dtype int64, got dtype Int"),
    "offsets of 2 axes": (lambda g: {"y_offsets": g.ints(0, 6, 12)[None]}, "y_offsets: expected a contiguous tensor (B,), got shape (1, 3)"),
    "too few offsets": (lambda g: {"y_offsets": g.ints(0, 6)}, "y_offsets: expected (B,) with the B of x_offsets, which has shape (3), got shape (2)"),
    "offsets elsewhere": (lambda g: {"x_offsets": g.ints(0, 5, 10).to("meta")}, "x_offsets: expected the device of x, DEVICE, got meta"),
    "too few lengths": (lambda g: {"x_lengths": ints(g, 1, 2)}, "x_lengths: " + PER_PAIR + "(2)"),
    "a longest length of 0": ({"n": 0}, "n: expected at least 1 time step in x, got 0"),
    "an unknown cost": ({"cost_kind": 9}, "cost_kind: expected one of the kinds of CostKind, got 9"),
    "the cosine": ({"cost_kind": 3}, "x_offsets: the cosine takes padded series"),
    "gammas of another dtype": (lambda g: {"gammas": g.x[:, 0, 0].double()}, "gammas: expected the dtype of the value, got dtype Double"),
}  # fmt: skip
PACKED_ON_THE_CPU: dict[str, tuple[Any, str]] = {
    "a negative offset": (lambda g: {"x_offsets": g.ints(0, -1, 10)}, "x_offsets: expected a first step whose series ends within all steps, got -1 at index 1"),
    "an offset after the last step": (lambda g: {"y_offsets": g.ints(0, 6, 13)}, "y_offsets: expected a first step whose series ends within all steps, got 13 at index 2"),
    "a length of 0": (lambda g: {"x_lengths": ints(g, 5, 0, 5)}, "x_lengths: expected between 1 and N, got 0 at index 1"),
}  # fmt: skip


def _call_packed(change: Any, given: Given) -> Any:
    good = {"x": given.x.reshape(1, 15, 2), "y": given.y.reshape(1, 18, 2), "n": 5, "m": 6, "gamma": 1.0}
    good |= {"x_offsets": given.ints(0, 5, 10), "y_offsets": given.ints(0, 6, 12)}
    good |= {"x_lengths": ints(given, 5, 5, 5), "y_lengths": ints(given, 6, 6, 6)}
    good |= {"needs_grad_x": True, "needs_grad_y": True}
    return OPS.soft_dtw_packed(**(good | (change(given) if callable(change) else change)))


def _calls() -> BadCalls:
    calls: BadCalls = {}
    for name, changes, cpu_only in (
        ("soft_dtw", SERIES, False),
        ("soft_dtw", CPU_ONLY | SETTINGS | MASKS, True),
        ("soft_dtw_alignment", SERIES, False),
        ("soft_dtw_alignment", CPU_ONLY | SETTINGS | MASKS, True),
        ("soft_dtw_subsequence", SERIES | CPU_ONLY, True),
        ("soft_dtw_cost", COSTS, False),
        ("soft_dtw_cost", SETTINGS, True),
        ("soft_dtw_jvp", SERIES | TANGENTS | HARD, False),
        ("soft_dtw_jvp", CPU_ONLY | SETTINGS | MASKS, True),
        ("soft_dtw_cost_jvp", COSTS | COST_TANGENTS | HARD, False),
        ("soft_dtw_cost_jvp", SETTINGS, True),
        ("soft_dtw_sample", SERIES | NO_PATHS, False),
        ("soft_dtw_sample", CPU_ONLY | SETTINGS | MASKS, True),
        ("soft_dtw_cost_sample", COSTS | NO_PATHS, False),
        ("soft_dtw_cost_sample", SETTINGS, True),
    ):
        halves = WITH_HALVES if name in ("soft_dtw", "soft_dtw_alignment") else {}
        for what, (change, message) in changes.items():
            calls[f"torch.ops.warpalign.{name}: {what}"] = BadCall(
                lambda g, name=name, change=change: _call(name, change, g),
                RuntimeError,
                "warpalign: " + message,
                cpu_only,
                "warpalign: " + halves[what] if what in halves else None,
            )
    for cpu_only, packed in ((False, PACKED), (True, PACKED_ON_THE_CPU)):
        for what, (change, message) in packed.items():
            calls[f"torch.ops.warpalign.soft_dtw_packed: {what}"] = BadCall(
                lambda g, change=change: _call_packed(change, g),
                RuntimeError,
                "warpalign: " + message,
                cpu_only,
            )
    for name, limit in (("x_lengths", "N"), ("y_lengths", "M")):
        for bad in (0, 7, -(2**31)):
            calls[f"torch.ops.warpalign.soft_dtw_cost: {name} {bad}"] = BadCall(
                lambda g, name=name, bad=bad: _call("soft_dtw_cost", {name: ints(g, 1, 1, bad)}, g),
                RuntimeError,
                f"warpalign: {name}: expected between 1 and {limit}, got {bad} at index 2",
                True,
            )
    return calls


CALLS: BadCalls = _calls()
