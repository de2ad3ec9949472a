"""What a training step of the recogniser costs, by loss: time, memory, and the largest batch in a given memory.

`joint`: the loss from the joint network, whose logits are never in memory. `pruned`: the same within a band. `materialised`:
warpalign's loss on logits in memory, whose gradient takes their place. `torchaudio`: torchaudio's rnnt_loss on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from typing import NamedTuple

import torch
from torch import Tensor

import warpalign
from align_speech_steps.model import LETTERS
from benchmarks.harness.results import Row, rounded
from benchmarks.harness.timing import eager_ms, peak_mib
from benchmarks.transducer.recogniser.jobs import Setup
from recognise_speech_steps.corpus import BANDS, Corpus
from recognise_speech_steps.model import FAMILIES, Recogniser
from recognise_speech_steps.train import Batch, batch_of

LIMIT_GIB = 10.0
LOSSES = ("joint", "pruned", "materialised", "torchaudio")


class Shape(NamedTuple):
    """Utterances of T frames and U labels of V, padded to nothing."""

    name: str
    frames: int
    labels: int
    vocabulary: int
    hidden: int
    layers: int
    batch: int


LONG = Shape("12 s, 1024 labels", 600, 48, 1024, 512, 3, 16)
"""What a recogniser of word pieces is trained with. Weights and frames are random: costs depend on sizes alone."""


def random_batch(shape: Shape, size: int, device: torch.device) -> Batch:
    generator = torch.Generator(device).manual_seed(0)
    return Batch(
        torch.randn(size, shape.frames, BANDS, generator=generator, device=device),
        torch.randint(0, shape.vocabulary - 1, (size, shape.labels), generator=generator, device=device),
        torch.full((size,), shape.frames, device=device),
        torch.full((size,), shape.labels, device=device),
    )


def _torchaudio_loss() -> Callable[..., Tensor] | None:
    try:
        function: Callable[..., Tensor] = import_module("torchaudio.functional").rnnt_loss
    except (ImportError, OSError):
        return None
    return function


def step(
    model: Recogniser, batch: Batch, loss: str, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, ...]:
    """Forward and backward pass to all weights, whose gradients are dropped; nothing is left."""
    half = torch.autocast(batch.frames.device.type, dtype) if dtype != torch.float32 else nullcontext()
    with half:
        if loss in ("joint", "pruned"):
            value = model.loss(*batch)
        else:
            rows, states = model.encode(batch.frames), model.predictor(batch.targets)
            joint = model.transducer.joint
            hidden = (rows[:, :, None] + states[:, None]).tanh()
            logits = torch.nn.functional.linear(hidden, joint.weight, joint.bias)
            given = logits, batch.targets.int(), batch.lengths.int(), batch.counts.int()
            if loss == "torchaudio":
                peer = _torchaudio_loss()
                assert peer is not None
                value = peer(*given, blank=logits.shape[-1] - 1, reduction="sum") / batch.counts.sum()
            else:
                value = warpalign.transducer_loss(*given, inplace_grad=True, reduction="mean_volume")
    value.backward()
    for weight in model.parameters():
        weight.grad = None
    return ()


def fits(make: Callable[[int], Batch], size: int, run: Callable[[Batch], object]) -> bool:
    """Whether a step of so many utterances runs in the memory that the process may use."""
    torch.cuda.empty_cache()
    try:
        run(make(size))
        torch.cuda.synchronize()
    except torch.cuda.OutOfMemoryError:
        return False
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        return False
    finally:
        torch.cuda.empty_cache()
    return True


def largest_batch(make: Callable[[int], Batch], guess: int, run: Callable[[Batch], object]) -> int:
    """The largest batch that fits, to 3 %, searched from a guess on."""
    stride = max(1, guess // 8)
    least = guess
    if fits(make, guess, run):
        while fits(make, least + stride, run):
            least += stride
    else:
        while least > stride and not fits(make, least - stride, run):
            least -= stride
        least = max(least - stride, 0)
    most = least + stride
    while most - least > max(1, guess // 33):
        middle = (least + most) // 2
        least, most = (middle, most) if fits(make, middle, run) else (least, middle)
    return least


def _times(model: Recogniser, batch: Batch, loss: str, dtype: torch.dtype, budget_s: float) -> Row:
    milliseconds = eager_ms(lambda: step(model, batch, loss, dtype), batch.frames.device, budget_s)
    return {
        "step_ms": rounded(milliseconds),
        "utterances_per_s": rounded(1e3 * len(batch.frames) / milliseconds),
        "mib": rounded(peak_mib(lambda: step(model, batch, loss, dtype), batch.frames.device)),
    }


def _limited(share: float) -> None:
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(share)


def measure_families(
    setup: Setup, kinds: list[tuple[str, str]], data: Corpus, budget_s: float
) -> Iterator[Row]:
    """A step of every family and activation on a batch of the corpus."""
    device = torch.device(setup.device)
    some = data.lengths.argsort()[len(data.lengths) // 2 :][: setup.batch]  # of the median length
    batch = batch_of(data, some)
    for family, activation in kinds:
        model = Recogniser(FAMILIES[family], activation, setup.hidden).to(device)
        yield {
            "op": "transducer_recogniser_step",
            "family": family,
            "activation": activation,
            "batch": len(some),
            "frames": batch.frames.shape[1],
            "labels": batch.targets.shape[1],
            **_times(model, batch, "joint", torch.float32, budget_s),
        }


def _makers(setup: Setup, data: Corpus, device: torch.device) -> list[tuple[Shape, Callable[[int], Batch]]]:
    """The shapes, and what makes batches of so many utterances of them."""
    longest, most = data.frames.shape[1], data.targets.shape[1]
    own = Shape("2 s, 28 labels", longest, most, 1 + len(LETTERS), setup.hidden, 2, setup.batch)
    return [
        (own, lambda size: batch_of(data, torch.arange(size) % len(data.lengths))),
        (LONG, lambda size: random_batch(LONG, size, device)),
    ]


def _measure_loss(
    model: Recogniser,
    shape: Shape,
    make: Callable[[int], Batch],
    loss: str,
    dtype: torch.dtype,
    budget_s: float,
) -> Row:
    row = _times(model, make(shape.batch), loss, dtype, budget_s)
    device = next(model.parameters()).device
    if device.type == "cuda":
        _limited(LIMIT_GIB * 2**30 / torch.cuda.get_device_properties(device).total_memory)
        try:
            run = partial(step, model, loss=loss, dtype=dtype)
            guess = int(shape.batch * LIMIT_GIB * 2**10 / row["mib"])
            row["largest_batch"] = largest_batch(make, guess, run)
        finally:
            _limited(1.0)
    return row


def measure_losses(setup: Setup, data: Corpus, budget_s: float, shapes: int = 2) -> Iterator[Row]:
    """Steps of RNN-T by loss and type, and on a GPU the largest batches, of the first `shapes` shapes, the largest first."""
    device = torch.device(setup.device)
    for shape, make in reversed(_makers(setup, data, device)[:shapes]):
        for dtype in (torch.float32, torch.bfloat16):
            for loss in LOSSES:
                if loss == "torchaudio" and (dtype != torch.float32 or _torchaudio_loss() is None):
                    continue  # it has no bfloat16
                family = FAMILIES["pruned" if loss == "pruned" else "RNN-T"]
                model = Recogniser(family, "soft", shape.hidden, shape.layers, shape.vocabulary - 1)
                yield {
                    "op": "transducer_recogniser_loss",
                    "shape": shape.name,
                    "dtype": str(dtype).removeprefix("torch."),
                    "loss": loss,
                    "batch": shape.batch,
                    **_measure_loss(model.to(device), shape, make, loss, dtype, budget_s),
                }
