"""What every search of a transducer decoder takes: outputs of the encoder, a predictor, a joint network, the model's arcs."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from warpalign._core import library
from warpalign._core.checks import DTYPES, check_count, check_flag, shape_of, warn_once
from warpalign._core.hypotheses import Predictor, State, axis_of, check_reader, checked_step
from warpalign._transducer.checks import check_lengths
from warpalign._transducer.columns import Columns, check_columns
from warpalign._transducer.decode_ops import scores as scores_operator
from warpalign._transducer.joint_checks import check_joint
from warpalign._transducer.joint_weights import JointFunction, JointWeights
from warpalign._transducer.settings import ACTIVATIONS


class Arcs(NamedTuple):
    """Keyword arguments of the operators."""

    tdt: bool
    blank: int
    durations: tuple[int, ...]
    big_blank_columns: tuple[int, ...]
    max_symbols: int


class Model(NamedTuple):
    """Checked arguments."""

    encoder: Tensor
    """encoder_out: (B, T, H) float32 or float64, the last stride 1."""
    lengths: Tensor | None
    """(B,) int32"""
    predictor: Predictor
    joint: JointWeights | JointFunction
    columns: int | None
    """The joint network's columns; None for a function that has not been called yet."""
    arcs: Arcs
    start: int
    batch_axis: int
    name: str = "predictor"
    """The argument that the predictor came in."""

    @property
    def batch(self) -> int:
        return self.encoder.shape[0]

    @property
    def frames(self) -> int:
        return self.encoder.shape[1]

    def limits(self) -> Tensor:
        """(B,) int32: frames of each utterance."""
        if self.lengths is None:
            return torch.full((self.batch,), self.frames, dtype=torch.int32, device=self.encoder.device)
        return self.lengths.clamp(0, self.frames)

    def joint_keywords(self) -> dict[str, Any]:
        assert isinstance(self.joint, JointWeights)
        return {
            "weight": self.joint.weight,
            "bias": self.joint.bias,
            "activation": ACTIVATIONS.index(self.joint.activation),
        }

    def begin(self, rows: int) -> tuple[Tensor, State]:
        """The predictor's first rows, and its state."""
        state = self.predictor.initial_state(rows)
        tokens = torch.full((rows,), self.start, dtype=torch.int64, device=self.encoder.device)
        return self.step(tokens, state)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        try:
            result = self.predictor.step(tokens, state)
        except IndexError as error:
            raise IndexError(self._why_no_token(tokens, error)) from error
        row, state = checked_step(result, self.name, tokens.shape[0], self.batch_axis)
        if self._feeds_kernels and row.shape[1] != self.encoder.shape[2]:
            raise ValueError(
                f"{self.name}: expected rows of {self.encoder.shape[2]} numbers, as the encoder's, got shape {shape_of(row)}"
            )
        return (row.to(self.encoder.dtype).contiguous() if self._feeds_kernels else row), state

    def _why_no_token(self, tokens: Tensor, error: IndexError) -> str:
        """A predictor that has no row for a token most often belongs to a TDT model that is decoded as RNN-T."""
        columns = "joint's" if self.columns is None else f"joint's {self.columns}"
        came = f" for tokens up to {max(tokens.tolist(), default=0)}" if tokens.device.type == "cpu" else ""
        remedy = (
            ""
            if self.arcs.tdt
            else ": write JointWeights(durations=...) if joint's last columns are TDT's durations"
        )
        return (
            f"{self.name}: expected step() to read the labels of {columns} columns, of which blank is {self.arcs.blank}, "
            f"and start_id = {self.start}, got IndexError{came} ({error}){remedy}"
        )

    @property
    def _feeds_kernels(self) -> bool:
        return isinstance(self.joint, JointWeights) and self.name == "predictor"

    def reading(self, reader: Any, name: str) -> Model:
        """The same with another reader of labels."""
        return self._replace(
            predictor=check_reader(reader, name), batch_axis=axis_of(reader, name), name=name
        )

    def scores(self, frame: Tensor, rows: Tensor, window: int) -> Tensor:
        """(N, window, columns): the joint network at frames frame, frame + 1, ... of N = B·beams hypotheses.

        A hypothesis of frame −1 is not looked at; its scores, and those beyond the last frame, mean nothing.
        """
        beams = rows.shape[0] // max(self.batch, 1)
        if isinstance(self.joint, JointWeights):
            result: Tensor = scores_operator(
                frame,
                self.lengths,
                self.encoder,
                rows,
                beams=max(beams, 1),
                window=window,
                **self.joint_keywords(),
            )
            return result
        ahead = torch.arange(window, device=frame.device)
        at = (frame.view(self.batch, -1, 1) + ahead).clamp(0, self.frames - 1).view(self.batch, -1)
        picked = self.encoder.gather(1, at[..., None].long().expand(-1, -1, self.encoder.shape[2]))
        given = self.joint.function(picked.flatten(0, 1), rows.repeat_interleave(window, dim=0))
        count = rows.shape[0] * window
        if not isinstance(given, Tensor) or given.dim() != 2 or given.shape[0] != count:
            came = f"shape {shape_of(given)}" if isinstance(given, Tensor) else type(given).__name__
            raise ValueError(f"joint: expected scores ({count}, columns), got {came}")
        self._check_columns(given.shape[1])
        return given.to(self.encoder.dtype).contiguous().view(rows.shape[0], window, -1)

    def _check_columns(self, columns: int) -> None:
        """Raises where a function has given too few columns. Its columns show when it is called."""
        labels = columns - (len(self.arcs.durations) if self.arcs.tdt else 0)
        most = max(self.arcs.blank, *self.arcs.big_blank_columns, 0)
        if labels <= most:
            raise ValueError(
                f"joint: expected more than {most} columns of labels, because of blank and big_blanks, got {labels}"
            )


def check_graph(cuda_graph: object, model: Model) -> bool:
    """Whether a search runs in a CUDA graph."""
    wanted = check_flag(cuda_graph, "cuda_graph")
    if wanted and not model.encoder.is_cuda:
        raise ValueError(
            f"cuda_graph: expected False, because encoder_out lies on {model.encoder.device}, got True"
        )
    return wanted


def _check_encoder(encoder: object) -> Tensor:
    name = "encoder_out"
    if not isinstance(encoder, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(encoder).__name__}")
    if encoder.dtype not in DTYPES:
        raise TypeError(f"{name}: expected dtype float64, float32, float16 or bfloat16, got {encoder.dtype}")
    if encoder.is_cuda and not library.has_cuda:
        raise ValueError(
            f"{name}: expected a CPU tensor, because warpalign was installed without its CUDA operators, got one on {encoder.device}"
        )
    if encoder.dim() != 3 or encoder.shape[2] == 0:
        raise ValueError(f"{name}: expected (B, T, H) with H >= 1, got shape {shape_of(encoder)}")
    if encoder.dtype != torch.float64:
        encoder = encoder.float()  # half types are widened once
    return encoder if encoder.stride(2) == 1 else encoder.contiguous()


def _check_joint(given: object, encoder: Tensor) -> tuple[JointWeights | JointFunction, Columns]:
    """The joint network as kernels take it, and the meaning of its columns."""
    if isinstance(given, JointFunction):
        if not callable(given.function):
            raise TypeError(f"joint.function: expected a function, got {type(given.function).__name__}")
        if isinstance(given.blank, int) and given.blank < 0:
            raise ValueError(
                f"joint.blank: expected a column >= 0 of a JointFunction, whose columns are not known, got {given.blank}"
            )
        return given, check_columns(given.blank, given.durations, given.big_blanks, None, "joint.")
    if not isinstance(given, JointWeights):
        remedy = ": write JointFunction(joint, blank)" if callable(given) else ""
        raise TypeError(f"joint: expected JointWeights or JointFunction, got {type(given).__name__}{remedy}")
    joint, _, arcs = check_joint(given)
    if joint.weight.shape[1] != encoder.shape[2]:
        raise ValueError(
            f"joint.weight: expected shape (V, {encoder.shape[2]}), by encoder_out, got {shape_of(joint.weight)}"
        )
    weight = joint.weight.detach().to(encoder.dtype).contiguous()
    bias = None if joint.bias is None else joint.bias.detach().to(encoder.dtype).contiguous()
    return joint._replace(weight=weight, bias=bias), arcs


def _warn_of_few_embeddings(model: Model) -> None:
    """On a GPU a token beyond the embedding ends the process: what can be seen of a module is said before."""
    if model.columns is None or model.arcs.tdt or not isinstance(model.predictor, nn.Module):
        return
    rows = [m.num_embeddings for m in model.predictor.modules() if isinstance(m, nn.Embedding)]
    blanks = (model.arcs.blank, *model.arcs.big_blank_columns)
    most = next((label for label in reversed(range(model.columns)) if label not in blanks), -1)
    if rows and max(rows) <= most:
        warn_once(
            f"predictor: expected an Embedding of more than {most} rows, because joint has {model.columns} columns of labels, "
            f"got {max(rows)}: write JointWeights(durations=...) if joint's last columns are TDT's durations"
        )


def check_model(
    encoder_out: object,
    encoder_lengths: object,
    predictor: Any,
    joint: object,
    *,
    start_id: int | None,
    max_symbols_per_frame: int,
) -> Model:
    rows = _check_encoder(encoder_out)
    checked, of_joint = _check_joint(joint, rows)
    reader = check_reader(predictor, "predictor")
    start = of_joint.blank if start_id is None else check_count(start_id, "start_id", 0)
    most = check_count(max_symbols_per_frame, "max_symbols_per_frame")
    arcs = Arcs(
        of_joint.tdt, of_joint.blank, of_joint.durations, of_joint.big_blank_columns, min(most, 2**29)
    )
    axis = axis_of(predictor, "predictor")
    counts = check_lengths(
        encoder_lengths,
        "encoder_lengths",
        rows.device,
        rows.shape[0],
        rows.shape[1],
        "T",
        whose="encoder_out",
    )
    model = Model(rows, counts, reader, checked, of_joint.labels, arcs, start, axis)
    _warn_of_few_embeddings(model)
    return model
