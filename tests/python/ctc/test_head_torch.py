"""CTC's loss with the last layer within it, and what torch has around an operator: gradcheck, compile, func, autocast, graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.python.ctc.test_head import H, Head, fused, gradients, head, materialised
from tests.python.helpers import OPCHECK_OF_SAVED, assert_compiled_equals_eager
from warpalign import CTCHeadLoss, ctc_loss_from_encoder

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "star": {"star": 2},
    "prior": {"label_prior": torch.linspace(-1, 1, 5, dtype=torch.float64)},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_gradcheck(name: str) -> None:
    given = head(2, 6, 5, 3, seed=1)
    assert torch.autograd.gradcheck(
        lambda x, w, b: (
            -1.5
            * ctc_loss_from_encoder(
                x, w, b, *given.labels, reduction="none", workspace_limit=0, **OPTIONS[name]
            )
        ),
        given.leaves,
    )


def test_second_derivatives_are_refused() -> None:
    given = head(2, 6, 5, 3, seed=1)
    (gradient,) = torch.autograd.grad(fused(given), given.weight, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives of ctc_loss_from_encoder"):
        gradient.sum().backward()


def test_opcheck(device: torch.device) -> None:
    ops = torch.ops.warpalign
    for star, dtype in ((-1, torch.float32), (9, torch.bfloat16)):
        given = head(2, 7, 5, 3, seed=4, dtype=dtype, device=device, bias=star < 0)
        layer = [t if t is None else t.detach() for t in given[:3]]
        keywords = {"workspace_limit": 200, "star": star}
        inputs = (*layer, *given.labels)
        torch.library.opcheck(ops.ctc_head_loss.default, (*inputs, None, False), keywords)
        # Frames of the padding have no normaliser.
        torch.library.opcheck(
            ops.ctc_head_loss.default, (*inputs, None, True), keywords, test_utils=OPCHECK_OF_SAVED
        )
        kept = ops.ctc_head_loss(*inputs, None, True, **keywords)
        for needs in ((True, True, True), (False, True, False), (True, False, False)):
            torch.library.opcheck(
                ops.ctc_head_gradient.default, (*inputs, *kept, torch.ones_like(kept[0]), *needs), keywords
            )
        torch.library.opcheck(ops.ctc_head_labels.default, (given.labels[0], given.labels[2], 7, 5))


@pytest.mark.parametrize("wanted", range(3))
def test_gradients_of_some_inputs(wanted: int, device: torch.device) -> None:
    given = head(2, 20, 30, 4, seed=2, device=device)
    every = gradients(fused(given, workspace_limit=0), given)
    leaves = [t.detach().requires_grad_(k == wanted) for k, t in enumerate(given.leaves)]
    value = fused(Head(*leaves, given.labels), workspace_limit=0)  # type: ignore[call-arg]
    assert torch.equal(torch.autograd.grad(value, leaves[wanted])[0], every[wanted])


def test_without_gradients(device: torch.device) -> None:
    given = head(2, 20, 30, 4, seed=2, device=device)
    expected = fused(given)
    with torch.no_grad():
        torch.testing.assert_close(fused(given), expected)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic: bool) -> None:
    def step(encoder: Tensor, weight: Tensor, bias: Tensor, *labels: Tensor) -> Tensor:
        return ctc_loss_from_encoder(encoder * 2, weight, bias, *labels, zero_infinity=True)

    given = [head(2, frames, 9, labels, seed=frames) for frames, labels in ((10, 3), (24, 5))]
    assert_compiled_equals_eager(step, [(one.leaves, one.labels) for one in given], dynamic=dynamic)


def test_vmap_is_a_loop() -> None:
    given = head(6, 9, 5, 3, seed=6)
    parts = [t.detach().unflatten(0, (2, 3)) for t in (given.encoder, *given.labels)]
    weights = torch.stack([given.weight.detach(), 2 * given.weight.detach()])

    def loss(encoder: Tensor, weight: Tensor, *labels: Tensor) -> Tensor:
        return ctc_loss_from_encoder(encoder, weight, None, *labels)

    expected = [loss(parts[0][k], weights[k], *(p[k] for p in parts[1:])) for k in range(2)]
    found = torch.func.vmap(loss)(parts[0], weights, *parts[1:])
    torch.testing.assert_close(found, torch.stack(expected))
    wanted = [
        torch.func.grad(loss, argnums=1)(parts[0][k], weights[k], *(p[k] for p in parts[1:]))
        for k in range(2)
    ]
    by_parts = torch.func.vmap(torch.func.grad(loss, argnums=1))(parts[0], weights, *parts[1:])
    torch.testing.assert_close(by_parts, torch.stack(wanted))


def test_upstream_gradients() -> None:
    given = head(3, 9, 5, 3, seed=7)
    losses = fused(given, reduction="none")
    rows = torch.eye(3, dtype=torch.float64)
    apart = torch.stack(
        [torch.autograd.grad(losses, given.weight, row, retain_graph=True)[0] for row in rows]
    )
    (together,) = torch.autograd.grad(losses, given.weight, rows, is_grads_batched=True)
    torch.testing.assert_close(together, apart)
    assert all(one.any() for one in apart)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_casts_the_layer(dtype: torch.dtype, device: torch.device) -> None:
    given = head(2, 9, 20, 5, seed=10, dtype=torch.float32, device=device)
    module = CTCHeadLoss(H, 20, device=device)
    with torch.autocast(device.type, dtype):
        loss = module(given.encoder, *given.labels)
    halves = [t.detach().to(dtype) for t in (given.encoder, module.weight, module.bias) if t is not None]
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, ctc_loss_from_encoder(*halves, *given.labels))  # type: ignore[call-arg]
    loss.backward()
    for leaf in (module.weight, given.encoder):
        assert leaf.grad is not None and leaf.grad.dtype == torch.float32 and leaf.grad.isfinite().all()


def test_trains_a_network() -> None:
    torch.manual_seed(0)
    targets = torch.randint(1, 12, (4, 3))
    sounds = torch.randn(12, 16)[targets.repeat_interleave(4, 1)]
    layer, loss = nn.Linear(16, 24), CTCHeadLoss(24, 12)
    optimizer = torch.optim.Adam([*layer.parameters(), *loss.parameters()], lr=0.02)
    values = []
    for _ in range(60):
        optimizer.zero_grad()
        value = loss(layer(sounds).tanh(), targets)
        value.backward()
        optimizer.step()
        values.append(float(value.detach()))
    assert values[-1] < values[0] / 5


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cuda_graph_with_changing_lengths(dtype: torch.dtype, cuda: torch.device) -> None:
    given = head(3, 40, 900, 8, seed=11, dtype=dtype, device=cuda)
    options: dict[str, Any] = {"reduction": "none", "zero_infinity": True, "workspace_limit": 2**17}

    def step() -> tuple[Tensor, ...]:
        value = fused(given, **options)
        return value, *gradients(value.sum(), given)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    for share in (1.0, 0.3, 0.7):
        given.labels[1].copy_(torch.linspace(share, 1, 3) * 40)
        given.labels[2].copy_(torch.linspace(1, share, 3) * 8)
        with torch.no_grad():
            given.encoder.normal_()
        graph.replay()
        for captured, wanted in zip(results, step(), strict=True):
            assert torch.equal(captured, wanted)


@pytest.mark.gpu
def test_no_synchronisation(cuda: torch.device) -> None:
    given = head(3, 40, 900, 8, seed=12, dtype=torch.bfloat16, device=cuda)
    expected = gradients(fused(given, workspace_limit=2**17), given)
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = gradients(fused(given, workspace_limit=2**17), given)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(map(torch.equal, found, expected))


@pytest.mark.gpu
def test_an_invalid_label_makes_its_loss_nan(cuda: torch.device) -> None:
    given = head(3, 20, 30, 4, seed=13, device=cuda)
    given.labels[2].fill_(4)
    given.labels[0][1, 2] = 30
    value = fused(given, reduction="none")
    assert value.isnan().tolist() == [False, True, False]
    (gradient,) = torch.autograd.grad(value.sum(), given.encoder)
    assert gradient[1].isnan().any() and gradient[[0, 2]].isfinite().all()
    good = Head(*given[:3], (given.labels[0].clamp(max=29), *given.labels[1:]))
    torch.testing.assert_close(value[[0, 2]], materialised(good, reduction="none")[[0, 2]])
