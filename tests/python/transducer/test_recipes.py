"""The lines that a page writes for recipes of icefall and Lightning: with stand-ins, and with Lightning where it is installed."""

from __future__ import annotations

import re
import sys
import textwrap
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import warpalign
from warpalign.compat import k2 as drop_in

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "migrating.md"


def lines_of(heading: str) -> list[str]:
    """The blocks of code under a heading of the page."""
    text = PAGE.read_text()
    section = text[text.index(f"### {heading}\n") :].split("\n##")[0]
    return re.findall(r"^```py\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def test_k2s_functions_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    package: Any = ModuleType("k2")
    names = set(drop_in.__all__) - {"install", "uninstall"}
    for name in names:
        setattr(package, name, len)
    monkeypatch.setitem(sys.modules, "k2", package)
    monkeypatch.setitem(sys.modules, "warpalign.compat.k2", drop_in)
    with drop_in.install() as installed:
        assert set(installed.replaced) == {f"k2.{name}" for name in names}
        assert all(getattr(package, name) is getattr(drop_in, name) for name in names)
        assert drop_in.install().replaced == ()
    assert all(getattr(package, name) is len for name in names)
    exec(lines_of("icefall")[0], {})
    assert package.rnnt_loss_pruned is drop_in.rnnt_loss_pruned
    drop_in.uninstall()
    assert vars(package)["rnnt_loss_pruned"] is len
    del package.rnnt_loss_smoothed
    with pytest.raises(ImportError, match=r"expected k2\.rnnt_loss_smoothed, got a k2 without it"):
        drop_in.install()
    monkeypatch.setitem(sys.modules, "k2", None)
    with pytest.raises(ImportError, match="install k2"):
        drop_in.install()


class Recipe(nn.Module):
    """The modules of an icefall model that forward_transducer uses, by their names there."""

    def __init__(self, hidden: int, labels: int) -> None:
        super().__init__()
        self.joiner = nn.Module()
        self.joiner.encoder_proj, self.joiner.decoder_proj = nn.Linear(7, hidden), nn.Linear(6, hidden)
        self.joiner.output_linear = nn.Linear(hidden, labels)
        self.simple_am_proj, self.simple_lm_proj = nn.Linear(7, labels), nn.Linear(6, labels)


def by_functions(model: Any, given: SimpleNamespace, blank: int) -> tuple[Tensor, Tensor]:
    """Both losses by k2's functions, in the order of a recipe."""
    boundary = torch.zeros(len(given.y_padded), 4, dtype=torch.int64)
    boundary[:, 2], boundary[:, 3] = given.y_lens, given.encoder_out_lens
    functions: Any = drop_in
    simple, (px, py) = functions.rnnt_loss_smoothed(
        model.simple_lm_proj(given.decoder_out),
        model.simple_am_proj(given.encoder_out),
        given.y_padded,
        blank,
        lm_only_scale=given.lm_scale,
        am_only_scale=0.0,
        boundary=boundary,
        reduction="sum",
        return_grad=True,
    )
    ranges = functions.get_rnnt_prune_ranges(px, py, boundary, given.prune_range)
    joiner = model.joiner
    am, lm = functions.do_rnnt_pruning(
        joiner.encoder_proj(given.encoder_out), joiner.decoder_proj(given.decoder_out), ranges
    )
    logits = joiner.output_linear((am + lm).tanh())
    pruned: Tensor = functions.rnnt_loss_pruned(
        logits, given.y_padded, ranges, blank, boundary=boundary, reduction="sum"
    )
    return simple, pruned


def test_icefalls_lines() -> None:
    """The page's call gives both losses of a recipe, and its gradients."""
    torch.manual_seed(0)
    model, blank = Recipe(5, 9).double(), 0
    given = SimpleNamespace(
        encoder_out=torch.randn(3, 14, 7, dtype=torch.float64),
        decoder_out=torch.randn(3, 7, 6, dtype=torch.float64),
        y_padded=torch.randint(1, 9, (3, 6)),
        encoder_out_lens=torch.tensor([14, 9, 11]),
        y_lens=torch.tensor([6, 2, 5]),
        prune_range=3,
        lm_scale=0.25,
    )
    names: dict[str, Any] = {"self": model, "blank_id": blank, **vars(given)}
    exec(textwrap.dedent(lines_of("icefall")[1]), names)
    found = names["simple_loss"], names["pruned_loss"]
    wanted = by_functions(model, given, blank)
    torch.testing.assert_close(found, wanted)
    gradients = (
        torch.autograd.grad(0.5 * simple + pruned, model.parameters()) for simple, pruned in (found, wanted)
    )
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_lightnings_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's module trains and predicts."""
    pytest.importorskip("lightning")
    monkeypatch.chdir(tmp_path)
    (block,) = lines_of("Lightning")
    torch.manual_seed(0)
    lengths = torch.tensor([12, 9])
    batch = torch.randn(2, 12, 80), lengths, torch.randint(1, 20, (2, 4)), torch.tensor([4, 3])
    loader: Any = torch.utils.data.DataLoader([batch], batch_size=None)  # type: ignore[arg-type]
    sizes = {"hidden=512": "hidden=16", "vocabulary=1025": "vocabulary=20", "max_epochs=10": "max_epochs=2"}
    for written, small in sizes.items():
        assert written in block
        block = block.replace(written, small)
    quiet = "logger=False, enable_progress_bar=False, enable_checkpointing=False, accelerator='cpu'"
    names: dict[str, Any] = {"loader": loader}
    exec(block.replace("lightning.Trainer(", f"lightning.Trainer({quiet}, "), names)
    trainer: Any = names["trainer"]
    assert trainer.global_step == 2 and trainer.callback_metrics["loss"].isfinite()
    model = names["Recogniser"]()
    (found,) = (
        import_module("lightning")
        .Trainer(logger=False, enable_progress_bar=False, accelerator="cpu")
        .predict(model, loader)
    )
    assert isinstance(found, warpalign.transducer.Hypotheses) and found.tokens.shape[0] == 2
