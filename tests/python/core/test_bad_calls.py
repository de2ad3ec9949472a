"""Every bad call is refused by its exact error, and the list of them in bad_calls/ is complete."""

from __future__ import annotations

import ast
import inspect
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import warpalign
from tests.python.bad_calls import BadCall, Given
from tests.python.core.bad_calls import files, plans
from tests.python.ctc.bad_calls import command as ctc_command
from tests.python.ctc.bad_calls import compat as ctc_compat
from tests.python.ctc.bad_calls import decoding as ctc_decoding
from tests.python.ctc.bad_calls import functional as ctc
from tests.python.ctc.bad_calls import head as ctc_head
from tests.python.decoding.bad_calls import models as decoding_models
from tests.python.jax.bad_calls import functions as jax_functions
from tests.python.recurrent.bad_calls import modules as recurrent
from tests.python.soft_dtw.bad_calls import compat, elastic, functional, on_top, operators
from tests.python.transducer.bad_calls import align, decoding
from tests.python.transducer.bad_calls import compat as transducer_compat
from tests.python.transducer.bad_calls import functional as transducer
from tests.python.transducer.bad_calls import joint as transducer_joint
from tests.python.transducer.bad_calls import pruned as transducer_pruned
from tests.python.transport.bad_calls import (
    adaptation,
    annotated,
    gromov_transport,
    low_rank,
    normalize,
    torchgw,
)
from tests.python.transport.bad_calls import compat as transport_compat
from tests.python.transport.bad_calls import compat_gromov as transport_compat_gromov
from tests.python.transport.bad_calls import functional as transport
from tests.python.transport.bad_calls import graphs as transport_graphs
from tests.python.transport.bad_calls import gromov as transport_gromov
from warpalign import estimators

PARTS = (
    functional,
    operators,
    elastic,
    on_top,
    files,
    plans,
    ctc,
    ctc_compat,
    ctc_decoding,
    ctc_head,
    ctc_command,
    compat,
    recurrent,
    transducer,
    transducer_joint,
    transducer_pruned,
    transducer_compat,
    align,
    decoding,
    decoding_models,
    transport,
    adaptation,
    annotated,
    gromov_transport,
    low_rank,
    normalize,
    torchgw,
    transport_graphs,
    transport_compat,
    transport_compat_gromov,
    transport_gromov,
    jax_functions,
)
CALLS: dict[str, BadCall] = {name: call for part in PARTS for name, call in part.CALLS.items()}
ON_GPU = [
    name
    for part in (
        functional,
        operators,
        elastic,
        transducer,
        transducer_joint,
        align,
        decoding,
        transport,
        normalize,
    )
    for name, call in part.CALLS.items()
    if not call.cpu_only
]


def refused(name: str, given: Given) -> BaseException:
    """The error, once it is the one expected."""
    call, error, message, _, gpu_message = CALLS[name]
    if gpu_message and given.device.type == "cuda":
        message = gpu_message
    with pytest.raises(error) as caught:
        call(given)
    # The operators' messages are followed by torch's trace.
    came = str(caught.value).split("\n")[0] if error is RuntimeError else str(caught.value)
    assert came == message.replace("FOLDER", str(given.folder)).replace("DEVICE", str(given.device))
    assert type(caught.value) is error
    return caught.value


def test_no_name_is_used_twice() -> None:
    assert len(CALLS) == sum(len(part.CALLS) for part in PARTS)


@pytest.mark.parametrize("name", CALLS)
def test_bad_call(name: str, tmp_path: Path) -> None:
    refused(name, Given(tmp_path, torch.device("cpu")))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_GPU)
def test_bad_call_on_a_gpu(cuda: torch.device, name: str, tmp_path: Path) -> None:
    refused(name, Given(tmp_path, torch.device("cuda:0")))


# Arguments that take anything, by its truth; that are handed on as they are; or whose errors are another package's.
UNCHECKED = {"progress", "verbose", "options", "random_state"}
# Those that modules hand on to torch.nn.
OF_TORCH = {
    (name, argument)
    for name in ("LSTM", "HardLSTM", "LSTMCell", "LSTMPredictor")
    for argument in ("device", "dtype")
} | {("from_anndata", "device")}


def parameters() -> list[tuple[str, str]]:
    """(function, parameter) of every public function and class."""
    functions = {name: getattr(warpalign, name) for name in [*warpalign.__all__, *estimators.__all__]}
    # A protocol, and what is not made by hand: the errors of functions that return it have bad calls.
    for name in ("Predictor", "TransportPlan", "LowRankPlan", "GromovResult", "ConvergenceWarning"):
        del functions[name]
    return [
        (name, parameter)
        for name, function in functions.items()
        if callable(function) and not hasattr(function, "_fields")
        for parameter in inspect.signature(function).parameters
        if parameter not in UNCHECKED and (name, parameter) not in OF_TORCH
    ]


@pytest.mark.parametrize(("name", "parameter"), parameters())
def test_every_argument_of_a_function_has_a_bad_call(name: str, parameter: str) -> None:
    messages = [call.message for key, call in CALLS.items() if key.startswith(f"{name}: ")]
    assert any(message.startswith((f"{parameter}: ", f"{parameter}[")) for message in messages)


# Errors that no call here can reach: they are about GPUs, missing packages, derivatives that are not available
# (test_second_order_torch.py), or are no answers to bad calls.
UNREACHED = {
    "cli/__init__.py": {"SystemExit"},
    "jax/__init__.py": {"needs JAX"},
    "jax/_library.py": {"libwarpalign_jax_cpu.so"},
    "jax/_call.py": {"no_derivative"},
    "jax/_derivatives.py": {"no_derivative"},
    "jax/_soft_dtw_pairs.py": {"no_derivative"},
    "_core/losses.py": {"under a vmap that"},
    "_ctc/checks.py": {"expected the device of"},
    "_ctc/head.py": {"expected the device of"},
    "_decoding/errors.py": {"expected the device of"},
    "_soft_dtw/autograd.py": {"no_derivative"},
    "_soft_dtw/pairwise_job.py": {"no_derivative"},
    "_soft_dtw/subsequence_autograd.py": {"no_derivative"},
    "_soft_dtw/second_order.py": {"no_derivative"},
    "_recurrent/checks.py": {"without its CUDA operators", "expected the device of"},
    "_recurrent/functional.py": {"no_derivative"},
    "_transducer/joint_checks.py": {"without its CUDA operators", "expected the device of"},
    "_transport/autograd.py": {"no_derivative"},
    "_transport/graphs.py": {"without its CUDA operators", "expected parts on", "some that are not", "at index {at}"},
    "_transport/gromov.py": {"no_derivative"},
    "_transport/envelope.py": {"no_derivative"},
    "_transport/low_rank/functional.py": {"no_derivative"},
    "_transport/low_rank/gromov.py": {"no_derivative"},
    "_transport/low_rank/plan.py": {"AttributeError"},
    "_transport/gromov_sides.py": {"expected a tensor on {like.device}"},
    "_transport/normalize.py": {"no_derivative"},
    "_transport/plan_autograd.py": {"no_derivative"},
    "_transducer/checks.py": {"without its CUDA operators", "expected the device of"},
    "_transducer/pruned.py": {"expected the device of"},
    "_transducer/replay.py": {"a CUDA graph can hold"},
    "_transducer/decode_model.py": {"without its CUDA operators", "expected the device of"},
    "_core/checks.py": {"without its CUDA operators", "a bool or a ProcessGroup"},
    "_core/lengths.py": {"expected the device of"},
    "_core/randomness.py": {"a torch.Generator on the CPU"},
    "_core/random.py": {"on the CPU, where numbers are drawn"},
    "_core/replay.py": {"the thread's last CUDA graph"},  # tests/python/core/test_replay.py
    "_core/library.py": {"is missing; install the package"},
    "_core/optional.py": {"which is not installed"},
    "compat/nemo.py": {"nemo_toolkit[asr]"},  # tests/python/transducer/test_frameworks.py
    "compat/transformers.py": {"install transformers>=5"},
    "compat/speechbrain.py": {"install speechbrain"},
    "compat/k2.py": {"install k2"},  # tests/python/transducer/test_recipes.py
    "metrics.py": {""},  # abstract methods
    "_core/series.py": {"expected the device of {first_name}"},
    "_soft_dtw/pairwise.py": {"that require no gradient"},
}  # fmt: skip


def raises() -> dict[tuple[str, int, int], str]:
    """Every `raise` of an error with a text of its own in the package: (file, first line, last line) -> source."""
    package = Path(warpalign.__file__).parent
    found = {}
    for path in sorted(package.rglob("*.py")):
        if path.parent.name == "jax" and not jax_functions.HAS_JAX:
            continue
        source = path.read_text()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                text = ast.get_source_segment(source, node) or ""
                found[str(path), node.lineno, node.end_lineno or node.lineno] = text
    return {
        place: text
        for place, text in found.items()
        if not any(part in text for part in UNREACHED.get(str(Path(place[0]).relative_to(package)), ()))
    }


def frames(error: BaseException | None) -> Iterator[tuple[str, int]]:
    """Files and lines that an error and those behind it came through."""
    while error is not None:
        for frame, line in traceback.walk_tb(error.__traceback__):
            yield frame.f_code.co_filename, line
        error = error.__cause__ or error.__context__


def test_every_error_of_the_package_has_a_bad_call(tmp_path: Path) -> None:
    seen = set()
    for index, name in enumerate(CALLS):
        folder = tmp_path / str(index)
        folder.mkdir()
        seen |= set(frames(refused(name, Given(folder, torch.device("cpu")))))
    missing = [
        f"{file}:{first}: {text}"
        for (file, first, last), text in raises().items()
        if not any(at == file and first <= line <= last for at, line in seen)
    ]
    assert not missing, "\n".join(missing)


# Where what is wrong is not in the arguments.


def test_cuda_without_cuda_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    monkeypatch.setattr("warpalign._core.library.has_cuda", False)
    with FakeTensorMode():
        x = torch.empty(3, 5, 2, device="cuda")
        with pytest.raises(ValueError) as caught:
            warpalign.soft_dtw(x, x)
    message = "x: expected a CPU tensor, because warpalign was installed without its CUDA operators, got one on cuda:0"
    assert str(caught.value) == message


@pytest.mark.gpu
def test_cpu_and_cuda_mixed(cuda: torch.device) -> None:
    x, lengths = torch.zeros(3, 5, 2), torch.tensor([1, 2, 3])
    for call, message in (
        (
            lambda: warpalign.soft_dtw(x, x.to(cuda)),
            "y: expected the device of x, cpu, got cuda:0: write y.to(x.device)",
        ),
        (
            lambda: warpalign.soft_dtw(x.to(cuda), x),
            "y: expected the device of x, cuda:0, got cpu: write y.to(x.device)",
        ),
        (
            lambda: warpalign.soft_dtw(x.to(cuda), x.to(cuda), x_lengths=lengths),
            "x_lengths: expected the device of the series, cuda:0, got cpu: write x_lengths.to('cuda:0')",
        ),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        assert str(caught.value) == message
    raw = torch.ops.warpalign.soft_dtw
    for call in (
        lambda: raw(x, x.to(cuda), None, None, 1.0, True, True),
        lambda: raw(x.to(cuda), x, None, None, 1.0, True, True),
        lambda: raw(x.to(cuda), x.to(cuda), lengths.int(), None, 1.0, True, True),
    ):
        with pytest.raises(RuntimeError, match="expected the device of"):
            call()


@pytest.mark.parametrize(("bad", "came"), [(0, 0), (9, 9), (2**32 + 3, 2**31 - 1)])
def test_lengths_out_of_range_where_python_cannot_look(bad: int, came: int) -> None:
    """Under torch.compile and torch.func.vmap the operator itself refuses them."""
    x, lengths = torch.zeros(3, 5, 2), torch.tensor([1, 2, bad])
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda n: warpalign.soft_dtw(x, x, x_lengths=n), fullgraph=True, backend="aot_eager"
    )
    mapped = torch.func.vmap(lambda n: warpalign.soft_dtw(x, x, x_lengths=n))
    for call in (lambda: compiled(lengths), lambda: mapped(lengths.expand(2, 3))):
        with pytest.raises(RuntimeError) as caught:
            call()
        assert str(caught.value) == f"warpalign: x_lengths: expected between 1 and N, got {came} at index 2"


def test_raw_operators_refuse_what_is_no_tensor() -> None:
    for bad in (None, 1.0, "x", [1.0]):
        with pytest.raises((RuntimeError, TypeError)):
            torch.ops.warpalign.soft_dtw(bad, torch.zeros(3, 5, 2), None, None, 1.0, True, True)


def test_a_bad_call_leaves_no_trace(device: torch.device) -> None:
    x = torch.arange(30.0, device=device).view(2, 5, 3)
    before = warpalign.soft_dtw(x, x)
    with pytest.raises(ValueError, match="^gamma"):
        warpalign.soft_dtw(x, x, gamma=-1.0)
    assert torch.equal(warpalign.soft_dtw(x, x), before)
