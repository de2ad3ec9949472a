"""What callers bring: lengths of every kind, models that do not fit the search, parameters that FSDP has sharded."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

import warpalign
from docs_code import ROOT, python_blocks
from warpalign._core import checks
from warpalign.transducer import JointFunction, JointWeights

KINDS: dict[str, Callable[[list[int]], object]] = {
    "list": list,
    "tuple": tuple,
    "array": np.array,
    "int32": lambda values: torch.tensor(values, dtype=torch.int32),
    "uint8": lambda values: torch.tensor(values, dtype=torch.uint8),
}


class Embedded(nn.Module):
    def __init__(self, rows: int, hidden: int = 4) -> None:
        super().__init__()
        self.rows = nn.Embedding(rows, hidden)

    def initial_state(self, batch: int) -> Tensor:
        return self.rows.weight.new_zeros(batch, 0)

    def step(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return self.rows(tokens), state


def calls() -> dict[str, Callable[[Any, Any], Any]]:
    """Functions of the lengths of frames and of labels: B = 3, T = 5, U = 2, V = 6, D = 2, H = 4."""
    torch.manual_seed(3)
    x, z, y = torch.randn(3, 5, 3, 6), torch.randn(3, 5, 3, 2), torch.randint(0, 5, (3, 2))
    f, g, w = torch.randn(3, 5, 4), torch.randn(3, 3, 4), torch.randn(6, 4)
    predictor, joint = Embedded(6), JointWeights(w)
    module = warpalign.TransducerJointLoss(4, 6)
    return {
        "transducer_loss": lambda t, u: warpalign.transducer_loss(x, y, t, u),
        "packed": lambda t, u: warpalign.transducer_loss(x.flatten(0, 2)[:25], y, t, u, packed=True),
        "tdt_loss": lambda t, u: warpalign.tdt_loss(x, z, y, t, u, durations=(0, 1)),
        "TransducerLoss": lambda t, u: warpalign.TransducerLoss()(x, y, t, u),
        "TDTLoss": lambda t, u: warpalign.TDTLoss(durations=(0, 1))(x, z, y, t, u),
        "transducer_loss_from_joint": lambda t, u: warpalign.transducer_loss_from_joint(f, g, y, joint, t, u),
        "TransducerJointLoss": lambda t, u: module(f, g, y, t, u),
        "transducer_align_from_joint": lambda t, u: warpalign.transducer_align_from_joint(f, g, y, joint, t, u).score,
        "transducer_align": lambda t, u: warpalign.transducer_align(x, y, t, u).score,
        "transducer_greedy_decode": lambda t, _: warpalign.transducer_greedy_decode(f, t, predictor, joint).scores,
        "transducer_beam_decode": lambda t, _: warpalign.transducer_beam_decode(f, t, predictor, joint)[0].scores,
    }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", calls())
def test_lengths_may_be_of_every_kind(name: str, kind: str) -> None:
    call, make = calls()[name], KINDS[kind]
    frames, labels = [5, 4, 3], [2, 1, 0]  # 15 + 8 + 3 = 26 packed rows, but for the last one
    if name == "packed":
        frames, labels = [5, 2, 4], [2, 2, 0]
    expected = call(torch.tensor(frames), torch.tensor(labels))
    assert torch.equal(call(make(frames), make(labels)), expected)


def test_alignments_take_the_durations_from_the_last_columns() -> None:
    x, y = torch.randn(3, 5, 3, 8), torch.randint(0, 5, (3, 2))
    expected = warpalign.transducer_align(
        x[..., :6], y, duration_logits=x[..., 6:], durations=(0, 2), posteriors=True
    )
    found = warpalign.transducer_align(x, y, durations=(0, 2), posteriors=True)
    assert all(torch.equal(a, b) for a, b in zip(found[:4], expected[:4], strict=True))  # type: ignore[arg-type]
    assert found.posteriors is not None and expected.posteriors is not None
    assert all(torch.equal(a, b) for a, b in zip(found.posteriors, expected.posteriors, strict=True))


@pytest.mark.parametrize("search", ["transducer_greedy_decode", "transducer_beam_decode"])
def test_a_chunk_without_frames_changes_nothing(search: str, device: torch.device) -> None:
    decode = getattr(warpalign, search)
    torch.manual_seed(1)
    predictor, output = Embedded(6).to(device), nn.Linear(4, 6, device=device)
    rows = torch.randn(2, 5, 4, device=device)

    def joint(frames: Tensor, states: Tensor) -> Tensor:
        result: Tensor = output(frames + states)
        return result

    def scores(found: Any) -> Any:
        return found[0] if isinstance(found, list) else found

    empty = scores(decode(rows[:, :0], None, predictor, JointFunction(joint, 5)))
    assert empty.tokens.shape == (2, 0) and empty.lengths.tolist() == [0, 0]
    behind = scores(decode(rows, None, predictor, JointFunction(joint, 5), state=empty.state))
    whole = scores(decode(rows, None, predictor, JointFunction(joint, 5)))
    assert torch.equal(behind.tokens, whole.tokens) and torch.equal(behind.scores, whole.scores)


def test_a_tdt_model_that_is_decoded_without_durations_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the search begins: on a GPU the embedding's own error would end the process."""
    monkeypatch.setattr(checks, "_warned", set())
    predictor, rows, joint = Embedded(6), torch.zeros(2, 5, 4), JointWeights(torch.zeros(9, 4))
    message = (
        "predictor: expected an Embedding of more than 8 rows, because joint has 9 columns of labels, got 6: "
        "write JointWeights(durations=...) if joint's last columns are TDT's durations"
    )
    with pytest.warns(UserWarning, match=f"^{re.escape(message)}$"):
        warpalign.transducer_greedy_decode(rows, None, predictor, joint._replace(blank=5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tdt = joint._replace(blank=5, durations=(0, 1, 2))
        warpalign.transducer_greedy_decode(rows, None, predictor, tdt)
        # The blank needs no row: a predictor may treat it apart.
        labels = JointWeights(torch.randn(7, 4))
        warpalign.transducer_greedy_decode(rows, None, predictor, labels, start_id=0)


def test_the_cause_of_an_index_error_stays() -> None:
    rows, joint = torch.zeros(2, 5, 4), JointWeights(torch.zeros(9, 4))
    with pytest.raises(IndexError, match=r"^predictor: .*durations=\.\.\.") as caught:
        warpalign.transducer_greedy_decode(rows, None, Embedded(6), joint)
    assert isinstance(caught.value.__cause__, IndexError)


def predictor_of(page: str, name: str, scope: dict[str, Any]) -> type[nn.Module]:
    """The class that a page of the documentation shows."""
    (block,) = (code for _, code in python_blocks(ROOT / "docs" / page) if f"class {name}(" in code)
    exec(block, scope)
    found: type[nn.Module] = scope[name]
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_predictor_of_the_documentation_has_states_of_its_own_dtype_and_device(
    dtype: torch.dtype, device: torch.device
) -> None:
    hidden = 32
    scope: dict[str, Any] = {"torch": torch, "blank": 12, "labels": 12, "H": hidden}
    predictor = predictor_of("howto/decoding.md", "LastTwo", scope)()
    predictor = predictor.to(device, dtype)
    joint = nn.Linear(hidden, 13, device=device, dtype=dtype)
    encoder = torch.randn(3, 6, hidden, device=device, dtype=dtype)
    found = warpalign.transducer_greedy_decode(
        encoder, [6, 4, 5], predictor, JointWeights(joint.weight, joint.bias)
    )
    (best,) = warpalign.transducer_beam_decode(
        encoder, [6, 4, 5], predictor, JointWeights(joint.weight, joint.bias)
    )
    assert torch.isfinite(found.scores).all() and torch.isfinite(best.scores).all()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A group of this process alone."""
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.output = nn.Linear(4, 6)

    def forward(self, f: Tensor, g: Tensor, y: Tensor) -> Tensor:
        return warpalign.transducer_loss_from_joint(
            f, g, y, JointWeights(self.output.weight, self.output.bias)
        )


def test_an_output_layer_that_is_sharded_alone_is_refused(group: None) -> None:
    given = torch.randn(3, 5, 4), torch.randn(3, 3, 4), torch.randint(0, 5, (3, 2))
    expected = Model()(*given)
    alone = Model()
    fully_shard(alone.output)
    message = r"^joint.weight: expected a whole tensor, got a DTensor sharded as .*apply FSDP to the module that calls this"
    with pytest.raises(ValueError, match=message):
        alone(*given)
    with pytest.raises(ValueError, match=r"^joint.weight: expected a whole tensor, got a DTensor"):
        joint = JointWeights(alone.output.weight, alone.output.bias)
        warpalign.transducer_greedy_decode(given[0], None, Embedded(6), joint)
    alone.output.unshard()  # type: ignore[operator]
    assert torch.equal(alone(*given), expected)
    assert (
        alone(given[0][0], given[1][0], given[2][0]).dim() == 0
    )  # one utterance has two axes, and nothing is sharded
    above = Model()
    fully_shard(above)
    assert torch.equal(above(*given), expected)


def _flat_parameters(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", 2), rank=rank, world_size=2)
    given = torch.randn(3, 5, 4), torch.randn(3, 3, 4), torch.randint(0, 5, (3, 2))
    expected = Model()(*given)
    for keep in (True, False):
        options: dict[str, Any] = {"device_id": torch.device("cpu"), "use_orig_params": keep}
        alone = Model()
        alone.output = FullyShardedDataParallel(alone.output, **options)  # type: ignore[assignment]
        with pytest.raises(
            ValueError, match=r"^joint.weight: expected a whole tensor, got .*: apply FSDP to the module"
        ):
            alone(*given)
        assert torch.equal(FullyShardedDataParallel(Model(), **options)(*given), expected)
    dist.destroy_process_group()


def test_a_flat_parameter_of_fsdp_is_refused(tmp_path: Path) -> None:
    mp.spawn(_flat_parameters, args=(str(tmp_path),), nprocs=2)  # type: ignore[no-untyped-call]
