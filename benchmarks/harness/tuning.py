"""How a threshold is derived from times on both sides of it: what is timed, and how the times are judged.

A probe belongs to one entry of tuning/<operator>.json. A `Crossing` is a threshold between two ways: every problem is
timed with the threshold forced below and above its quantity. A `Choice` is a size out of a few values: every problem is
timed with each. What is measured afterwards decides; the value that the file has stays where it loses nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from benchmarks.harness.results import Row, rounded

ROUNDS = 5  # in which both sides are timed in turn
GAIN = 0.03  # a value is replaced where its problems gain so much

Run = Callable[[], object]


@dataclass(frozen=True)
class Machine:
    """What probes ask of the device that they run on."""

    device: torch.device
    multiprocessors: int  # the GPU's number of multiprocessors
    threads: int  # threads that a call on the CPU uses

    @classmethod
    def of(cls, device: torch.device) -> Machine:
        gpu = device.type == "cuda"
        count = torch.cuda.get_device_properties(device).multi_processor_count if gpu else 0
        return cls(device, count, torch.get_num_threads())


@dataclass(frozen=True)
class Problem:
    name: str
    make: Callable[[torch.device], Run]
    """(device) -> a call that is timed."""
    quantity: float | None = None
    """In the threshold's unit. None: found by the threshold at which other kernels are launched (GPU only)."""
    has_graph: bool = True
    """Whether the call can be captured in a CUDA graph, whose replays are timed. Otherwise eager calls are."""


@dataclass(frozen=True)
class Crossing:
    """From a quantity on, the later way is faster. at_most: the threshold is the last quantity of the earlier way."""

    problems: Callable[[Machine], Sequence[Problem]]
    at_most: bool = False
    also: Mapping[str, int] = field(default_factory=dict)
    """Other thresholds that are forced meanwhile, so that the problems come to this one."""
    needs_threads: bool = False
    """Whether it decides something for several threads alone."""


@dataclass(frozen=True)
class Choice:
    """The value with the least time, out of a few."""

    problems: Callable[[Machine], Sequence[Problem]]
    values: Sequence[int]
    also: Mapping[str, int] = field(default_factory=dict)
    needs_threads: bool = False


Probe = Crossing | Choice


@dataclass(frozen=True)
class Times:
    """What one problem took, in ms, by the value that the threshold was forced to."""

    problem: str
    quantity: float
    ms: dict[int, list[float]]  # forced value -> the times of ROUNDS rounds

    def median(self, value: int) -> float:
        return statistics.median(self.ms[value])

    def noise(self) -> float:
        """The largest relative spread of a median among the values."""
        return max(
            statistics.median(abs(ms - statistics.median(times)) for ms in times) / statistics.median(times)
            for times in self.ms.values()
        )


@dataclass(frozen=True)
class Decision:
    value: int
    was: int
    why: str

    @property
    def moved(self) -> bool:
        return self.value != self.was


def sides(quantities: Sequence[float], at_most: bool) -> tuple[int, int]:
    """Values of a threshold with which every problem goes the later way, and the earlier one."""
    if at_most:
        return math.ceil(min(quantities)) - 1, math.ceil(max(quantities))
    return math.floor(min(quantities)), math.floor(max(quantities)) + 1


def candidates(quantities: Sequence[float], at_most: bool) -> list[int]:
    """Values of a threshold: one before all problems, one behind them, and one in the middle of each gap."""
    later, earlier = sides(quantities, at_most)
    found = [later]
    ordered = sorted(set(quantities))
    for low, high in zip(ordered, ordered[1:], strict=False):
        # The least and the largest value that part the two.
        first = math.ceil(low) if at_most else math.floor(low) + 1
        last = math.ceil(high) - 1 if at_most else math.floor(high)
        if first <= last:
            found.append(max(first, min(last, round(math.sqrt(first * last)))))
    return [*found, earlier]


def found_quantity(launched: Callable[[int], object], at_most: bool, most: int = 1 << 20) -> int | None:
    """A problem's quantity, from the values of the threshold with which it goes the later way.

    launched: (value) -> what a call launches if the threshold is forced to it. None: the same with every value.
    """
    later, earlier = 0, most  # the later way is that of small values
    of_later = launched(later)
    if launched(earlier) == of_later:
        return None
    while earlier - later > 1:
        middle = (later + earlier) // 2
        if launched(middle) == of_later:
            later = middle
        else:
            earlier = middle
    return earlier if at_most else later


def _advantage(times: Times, later: int, earlier: int) -> float:
    """log of the earlier way's time over the later one's; 0 where noise hides which is faster."""
    ratio = math.log(times.median(earlier) / times.median(later))
    return ratio if abs(ratio) > 2 * times.noise() else 0.0


def _less(gain: float) -> str:
    """A difference of logs of times in words: 0.105 is 10 % less time."""
    return f"{-100 * math.expm1(-gain):.1f} % less time"


def decide_crossing(measured: Sequence[Times], was: int, at_most: bool) -> Decision:
    """The threshold that loses least over all problems.

    Every problem was timed with the threshold forced to its later side and to its earlier one, the two values of `ms`.
    """
    gains = [(times.quantity, _advantage(times, min(times.ms), max(times.ms))) for times in measured]

    def goes_later(quantity: float, value: int) -> bool:
        return quantity > value if at_most else quantity >= value

    def loss(value: int) -> float:
        """The sum of logs of what problems take longer than on their faster side."""
        return sum(abs(gain) for quantity, gain in gains if goes_later(quantity, value) != (gain > 0))

    best = min(candidates([quantity for quantity, _ in gains], at_most), key=loss)
    notes = []
    faster = [
        side for side, sign in (("later", 1), ("earlier", -1)) if any(sign * gain > 0 for _, gain in gains)
    ]
    if len(faster) < 2:
        notes.append(
            f"no crossing: the {faster[0]} way always wins" if faster else "no crossing: equal times"
        )
    elif loss(best) > GAIN:
        notes.append(f"not monotone: the best threshold, {best}, still loses at some problems")
    changed = sum(goes_later(quantity, best) != goes_later(quantity, was) for quantity, _ in gains)
    gained = (loss(was) - loss(best)) / max(changed, 1)
    if gained < GAIN:
        return Decision(was, was, "; ".join(["stays", *notes]))
    return Decision(best, was, "; ".join([f"moves: {changed} problems take {_less(gained)}", *notes]))


def decide_choice(measured: Sequence[Times], was: int) -> Decision:
    """The value with the least geometric mean of times. Every problem was timed with every value."""

    def mean(value: int) -> float:
        return statistics.mean(math.log(times.median(value)) for times in measured)

    values = sorted(set.intersection(*(set(times.ms) for times in measured)))
    best = min(values, key=lambda value: (mean(value), value))
    noise = max(times.noise() for times in measured) / math.sqrt(len(measured))
    gained = mean(was) - mean(best)
    if gained < max(GAIN, 2 * noise):
        return Decision(was, was, f"stays; {best} takes {_less(gained)}")
    return Decision(best, was, f"moves: problems take {_less(gained)}")


def rows_of(operator: str, name: str, measured: Sequence[Times]) -> list[Row]:
    """A row for each problem and forced value."""
    return [
        {
            "op": "tuning",
            "operator": operator,
            "threshold": name,
            "problem": times.problem,
            "quantity": rounded(times.quantity),
            "forced": value,
            "ms": rounded(times.median(value)),
            "noise": rounded(times.noise(), 2),
        }
        for times in measured
        for value in times.ms
    ]


def timed_in_turn(runs: Mapping[int, Callable[[], float]]) -> dict[int, list[float]]:
    """ROUNDS times of each value, in turn, so that a slow spell of the machine meets every value."""
    times: dict[int, list[float]] = {value: [] for value in runs}
    for _ in range(ROUNDS):
        for value, run in runs.items():
            times[value].append(run())
    return times
