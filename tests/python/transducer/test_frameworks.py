"""install() of the drop-ins for frameworks: against the packages where they are installed, and NeMo's stand-in everywhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from warpalign.compat import nemo, speechbrain, warprnnt_pytorch
from warpalign.compat import transformers as of_transformers
from warpalign.compat._nemo_joint import why_not_fused
from warpalign.transducer import tdt_loss, transducer_loss

LOSSES = "nemo.collections.asr.losses.rnnt"
JOINT = "nemo.collections.asr.modules.rnnt"
NAMES = ("warprnnt_numba", "multiblank_rnnt", "tdt")


class StandInLoss(nn.Module):
    """NeMo's RNNTLoss as far as a joint network with fuse_loss_wer asks it."""

    def __init__(self, num_classes: int, loss_name: str = "default", **settings: Any) -> None:
        super().__init__()
        losses: Any = sys.modules[LOSSES]
        if not losses.RNNT_LOSS_RESOLVER[loss_name].is_available:
            raise ImportError("Numba")
        kind = {"multiblank_rnnt": "MultiblankRNNTLossNumba", "tdt": "TDTLossNumba"}.get(
            loss_name, "RNNTLossNumba"
        )
        self._loss = getattr(losses, kind)(
            blank=num_classes, reduction="none", **settings.get("loss_kwargs", {})
        )
        self.reduction = settings.get("reduction", "mean_batch")

    def forward(
        self, *, log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor
    ) -> Any:
        losses = self._loss(acts=log_probs, labels=targets, act_lens=input_lengths, label_lens=target_lengths)
        return losses if self.reduction is None else self.reduce(losses, target_lengths)

    def reduce(self, losses: Any, target_lengths: Any) -> Tensor:
        whole = torch.cat(losses) if isinstance(losses, list) else losses
        count = torch.cat(target_lengths) if isinstance(target_lengths, list) else target_lengths
        return whole.mean() if self.reduction == "mean_batch" else whole.sum() / count.sum()


class StandInJoint(nn.Module):
    """NeMo's RNNTJoint, of as few lines."""

    def __init__(self, jointnet: dict[str, Any], num_classes: int, fused_batch_size: int) -> None:
        super().__init__()
        hidden = jointnet["joint_hidden"]
        activation: nn.Module = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}[
            jointnet["activation"]
        ]()
        self.enc = nn.Linear(jointnet["encoder_hidden"], hidden)
        self.pred = nn.Linear(jointnet["pred_hidden"], hidden)
        self.joint_net = nn.Sequential(activation, nn.Linear(hidden, num_classes))
        self.fuse_loss_wer, self.masking_prob, self.temperature = True, -1.0, 1.0
        self.size = fused_batch_size
        self.loss: Any = None

    def set_loss(self, loss: Any) -> None:
        self.loss = loss

    def is_adapter_available(self) -> bool:
        return False

    def project_encoder(self, encoder_output: Tensor) -> Tensor:
        found: Tensor = self.enc(encoder_output)
        return found

    def project_prednet(self, prednet_output: Tensor) -> Tensor:
        found: Tensor = self.pred(prednet_output)
        return found

    def joint_after_projection(self, f: Tensor, g: Tensor) -> Tensor:
        found: Tensor = self.joint_net(f[:, :, None] + g[:, None])
        return found

    def joint(self, f: Tensor, g: Tensor) -> Tensor:
        return self.joint_after_projection(self.project_encoder(f), self.project_prednet(g))

    def forward(self, encoder_outputs: Tensor, decoder_outputs: Tensor | None, **rest: Any) -> Any:
        if decoder_outputs is None:
            return None, 0.5, 1, 2
        reduction, self.loss.reduction = self.loss.reduction, None
        losses, counts = [], []
        for begin in range(0, encoder_outputs.shape[0], self.size):
            part = slice(begin, begin + self.size)
            lengths, labels = rest["encoder_lengths"][part], rest["transcript_lengths"][part]
            most, longest = int(lengths.max()), int(labels.max())
            logits = self.joint(encoder_outputs.mT[part, :most], decoder_outputs.mT[part, : longest + 1])
            targets = rest["transcripts"][part, :longest]
            losses.append(
                self.loss(log_probs=logits, targets=targets, input_lengths=lengths, target_lengths=labels)
            )
            counts.append(labels)
        self.loss.reduction = reduction
        return self.loss.reduce(losses, counts), None, None, None


def stand_in() -> dict[str, ModuleType]:
    names = [".".join(path.split(".")[:n]) for path in (LOSSES, JOINT) for n in range(1, 6)]
    modules = {name: ModuleType(name) for name in names}
    configs = {
        name: SimpleNamespace(is_available=False, min_version="0.53.0", force_float32=True) for name in NAMES
    }
    vars(modules[LOSSES]).update(RNNT_LOSS_RESOLVER=configs, RNNTLoss=StandInLoss)
    configs["default"] = configs["warprnnt_numba"]
    vars(modules[JOINT]).update(RNNTJoint=StandInJoint)
    return modules


@pytest.fixture(params=["stand-in", "package"])
def package(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "package":
        pytest.importorskip(LOSSES)
    else:
        for name in [name for name in sys.modules if name.split(".")[0] == "nemo"]:
            monkeypatch.delitem(sys.modules, name)
        for name, module in stand_in().items():
            monkeypatch.setitem(sys.modules, name, module)
    yield request.param
    nemo.uninstall()


def joint_of(package: str, activation: str, columns: int, size: int) -> Any:
    """A joint network with a fused loss, of 6 features each and 8 hidden ones, for `columns` with the blank."""
    torch.manual_seed(0)
    jointnet = {"encoder_hidden": 6, "pred_hidden": 6, "joint_hidden": 8, "activation": activation}
    make: Any = import_module(JOINT).RNNTJoint
    if package == "stand-in":
        return make(jointnet, columns, size)
    # As on a GPU: a CPU's joint network normalises the logits, and a loss clamps gradients by what it is given.
    made = make(
        jointnet, num_classes=columns - 1, fuse_loss_wer=True, fused_batch_size=size, log_softmax=False
    )
    made._wer = SimpleNamespace()
    return made


def problem() -> dict[str, Tensor]:
    torch.manual_seed(1)
    return {
        "encoder_outputs": torch.randn(3, 6, 9, requires_grad=True),
        "decoder_outputs": torch.randn(3, 6, 5, requires_grad=True),
        "encoder_lengths": torch.tensor([9, 7, 8]),
        "transcripts": torch.randint(0, 5, (3, 4)),
        "transcript_lengths": torch.tensor([4, 2, 3]),
    }


KINDS: dict[str, tuple[dict[str, Any], int]] = {
    "default": ({}, 6),
    "warprnnt_numba": ({"fastemit_lambda": 0.1, "clamp": 0.4}, 6),
    "multiblank_rnnt": ({"big_blank_durations": [2, 3], "sigma": 0.05}, 8),
    "tdt": ({"durations": [0, 1, 2], "sigma": 0.02}, 9),
}


def step(joint: Any, given: dict[str, Tensor]) -> list[Tensor]:
    loss = joint(**given)[0]
    of = [given["encoder_outputs"], given["decoder_outputs"], *joint.parameters()]
    return [loss.detach(), *torch.autograd.grad(loss, of)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid"])
def test_nemo_takes_these_losses_and_the_fused_joint(package: str, kind: str, activation: str) -> None:
    settings, columns = KINDS[kind]
    blank = columns - 1 - len(settings.get("durations", ()))
    with nemo.install(fused_joint=False) as installed:
        assert f"{LOSSES}.TDTLossNumba" in installed.replaced
        loss = import_module(LOSSES).RNNTLoss(
            num_classes=blank, loss_name=kind, reduction="mean_volume", loss_kwargs=dict(settings)
        )
        assert type(loss._loss).__module__ == "warpalign.compat.nemo"
        joint = joint_of(package, activation, columns, 2)
        joint.set_loss(loss)
        given = problem()
        wanted = step(joint, given)
    with nemo.install():
        for value, of_logits in zip(step(joint, given), wanted, strict=True):
            torch.testing.assert_close(value, of_logits, atol=1e-5, rtol=1e-4)


def test_the_fused_joint_holds_no_logits(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with nemo.install():
        base = import_module(JOINT).RNNTJoint
        joint = joint_of(package, "tanh", 6, 2)
        joint.set_loss(import_module(LOSSES).RNNTLoss(num_classes=5))
        monkeypatch.setattr(joint.joint_net, "forward", lambda x: pytest.fail("logits in memory"))
        assert step(joint, problem())[0].isfinite()
        joint.temperature = 2.0
        with pytest.raises(pytest.fail.Exception, match="logits"):
            joint(**problem())
        assert why_not_fused(joint, base) == "its temperature is not 1"


def test_nemo_gets_its_names_back(package: str) -> None:
    losses, joint = import_module(LOSSES), import_module(JOINT).RNNTJoint
    before, forward = dict(vars(losses)), vars(joint)["forward"]
    configs = {name: dict(vars(losses.RNNT_LOSS_RESOLVER[name])) for name in NAMES}
    first = nemo.install()
    assert vars(joint)["forward"] is not forward
    assert nemo.install().replaced == ()  # all names are replaced already
    first.uninstall()
    nemo.uninstall()
    assert vars(losses) == before and vars(joint)["forward"] is forward
    assert {name: vars(losses.RNNT_LOSS_RESOLVER[name]) for name in NAMES} == configs


def test_without_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in ("nemo", "transformers")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nemo", None)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"install nemo_toolkit\[asr\]"):
        nemo.install()
    with pytest.raises(ImportError, match="install transformers>=5"):
        of_transformers.install()


def parakeet(kind: str) -> tuple[Any, dict[str, Tensor]]:
    """A tiny model of random weights, and a batch of two utterances."""
    module: Any = pytest.importorskip("transformers.models.parakeet")
    encoder = module.ParakeetEncoderConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        subsampling_conv_channels=8,
        num_mel_bins=16,
    )
    durations = {"durations": [0, 1, 2]} if kind == "TDT" else {}
    torch.manual_seed(0)
    config = getattr(module, f"Parakeet{kind}Config")(
        vocab_size=12,
        decoder_hidden_size=10,
        num_decoder_layers=1,
        encoder_config=encoder,
        blank_token_id=11,
        pad_token_id=2,
        **durations,
    )
    mask = torch.ones(2, 64, dtype=torch.bool)
    mask[1, 40:] = False
    labels = torch.randint(3, 11, (2, 4))
    labels[1, 3] = 2 if kind == "TDT" else 11
    return getattr(module, f"ParakeetFor{kind}")(config).eval(), {
        "input_features": torch.randn(2, 64, 16),
        "attention_mask": mask,
        "decoder_input_ids": torch.cat([torch.full((2, 1), 11), labels], 1),
        "labels": labels,
    }


@pytest.mark.parametrize("kind", ["RNNT", "TDT"])
def test_parakeet_models_take_these_losses(kind: str) -> None:
    model, given = parakeet(kind)
    wanted = None
    with suppress(ImportError):  # Transformers' own RNN-T loss needs torchaudio
        wanted = model(**given).loss
    with of_transformers.install() as installed:
        assert installed.replaced == (
            "transformers.loss.loss_rnnt.rnnt_loss",
            "transformers.loss.loss_tdt.tdt_loss",
        )
        assert of_transformers.install().replaced == ()
        value = model(**given).loss
    if wanted is not None:
        torch.testing.assert_close(value, wanted)
    fused = of_transformers.joint_loss(model, **given)
    torch.testing.assert_close(fused, value)
    parameters = [*model.joint.parameters(), *model.decoder.parameters()]
    for of_joint, of_logits in zip(
        torch.autograd.grad(fused, parameters, allow_unused=True),
        torch.autograd.grad(value, parameters, allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(of_joint, of_logits, atol=1e-5, rtol=1e-4)
    assert of_transformers.joint_loss(model, **given, reduction="none").shape == (2,)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_speechbrain(reduction: Any, device: torch.device) -> None:
    torch.manual_seed(0)
    logits = torch.randn(3, 7, 5, 6, device=device)
    targets = torch.randint(1, 6, (3, 4), device=device)
    shares = torch.tensor([1.0, 0.7, 0.58], device=device), torch.tensor([1.0, 0.5, 0.76], device=device)
    lengths = torch.tensor([7, 5, 4], device=device), torch.tensor([4, 2, 3], device=device)
    wanted = transducer_loss(logits, targets, *lengths, blank=0, reduction=reduction)
    assert torch.equal(speechbrain.transducer_loss(logits, targets, *shares, 0, reduction), wanted)


def test_speechbrain_takes_this_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        losses = import_module("speechbrain.nnet.losses")
    except ImportError:
        losses = ModuleType("speechbrain.nnet.losses")
        vars(losses)["transducer_loss"] = len
        for name in ("speechbrain", "speechbrain.nnet"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        monkeypatch.setitem(sys.modules, "speechbrain.nnet.losses", losses)
    original = losses.transducer_loss
    with speechbrain.install() as installed:
        assert installed.replaced == ("speechbrain.nnet.losses.transducer_loss",)
        assert losses.transducer_loss is speechbrain.transducer_loss
        assert speechbrain.install().replaced == ()
    assert losses.transducer_loss is original
    speechbrain.install()
    speechbrain.uninstall()
    assert losses.transducer_loss is original
    monkeypatch.setitem(sys.modules, "speechbrain.nnet.losses", ModuleType("speechbrain.nnet.losses"))
    with pytest.raises(ImportError, match="install speechbrain"):
        speechbrain.install()


def test_espnet_finds_warprnnt_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "warprnnt_pytorch", raising=False)
    with warprnnt_pytorch.install() as installed:
        assert installed.replaced == ("warprnnt_pytorch",)
        loss = import_module("warprnnt_pytorch").RNNTLoss(blank=0, fastemit_lambda=0.1)
        assert isinstance(loss, warprnnt_pytorch.RNNTLoss)
    assert "warprnnt_pytorch" not in sys.modules
    other = ModuleType("warprnnt_pytorch")
    monkeypatch.setitem(sys.modules, "warprnnt_pytorch", other)
    with warprnnt_pytorch.install():
        assert sys.modules["warprnnt_pytorch"] is warprnnt_pytorch
    assert sys.modules["warprnnt_pytorch"] is other


@pytest.mark.parametrize(("reduction", "shape"), [("mean", (1,)), ("sum", (1,)), ("none", (3,))])
def test_warprnnt_pytorch(reduction: Any, shape: tuple[int, ...], device: torch.device) -> None:
    torch.manual_seed(0)
    logits = torch.randn(3, 7, 5, 6, device=device, requires_grad=True)
    targets = torch.randint(1, 6, (3, 4), device=device)
    lengths = torch.tensor([7, 5, 4], device=device), torch.tensor([4, 2, 3], device=device)
    loss = warprnnt_pytorch.RNNTLoss(reduction=reduction, fastemit_lambda=0.2)(logits, targets, *lengths)
    wanted = transducer_loss(logits, targets, *lengths, blank=0, fastemit_lambda=0.2, reduction=reduction)
    assert loss.shape == shape
    torch.testing.assert_close(loss.squeeze(), wanted.squeeze())
    for own, other in zip(
        torch.autograd.grad(loss.sum(), logits), torch.autograd.grad(wanted.sum(), logits), strict=True
    ):
        torch.testing.assert_close(own, other)


def test_the_losses_are_those_of_the_operators() -> None:
    torch.manual_seed(0)
    logits, targets = torch.randn(2, 5, 4, 8), torch.randint(0, 4, (2, 3))
    lengths = torch.tensor([5, 4]), torch.tensor([3, 2])
    plain = nemo.RNNTLossNumba(blank=7, reduction="none")(logits, targets, *lengths)
    assert torch.equal(plain, transducer_loss(logits, targets, *lengths, blank=7, reduction="none"))
    timed = nemo.TDTLossNumba(blank=4, durations=[0, 1, 2], reduction="none")(logits, targets, *lengths)
    assert torch.equal(
        timed, tdt_loss(logits, None, targets, *lengths, durations=[0, 1, 2], blank=4, reduction="none")
    )
