"""elastic_distance: its own arguments, and those that it hands on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tests.python.bad_calls import BadCall, BadCalls, Given
from tests.python.soft_dtw.bad_calls.functional import not_a_number
from warpalign import elastic_distance

WITH = {"penalty": "msm", "stiffness": "twe", "steepness": "wdtw", "gap": "erp"}
KNOWN = '"adtw", "wdtw", "erp", "msm" or "twe"'

Options = dict[str, Any] | Callable[[Given], dict[str, Any]]
WRONG: dict[str, tuple[Options, type[BaseException], str]] = {
    "an unknown metric": ({"metric": "lcss"}, ValueError, f"metric: expected {KNOWN}, got 'lcss'"),
    "no metric": ({"metric": None}, ValueError, f"metric: expected {KNOWN}, got None"),
    "a list as metric": ({"metric": ["msm"]}, ValueError, f"metric: expected {KNOWN}, got ['msm']"),
    "penalty of erp": ({"metric": "erp", "penalty": 1.0}, ValueError, 'penalty: expected None with metric="erp", got 1.0'),
    "gap of msm": ({"gap": 0.0}, ValueError, 'gap: expected None with metric="msm", got 0.0'),
    "stiffness of msm": ({"stiffness": 0.1}, ValueError, 'stiffness: expected None with metric="msm", got 0.1'),
    "steepness of twe": ({"metric": "twe", "steepness": 1}, ValueError, 'steepness: expected None with metric="twe", got 1'),
    "gap NaN": ({"metric": "erp", "gap": math.nan}, ValueError, "gap: expected a finite number, got nan"),
    "gap minus infinite": ({"metric": "erp", "gap": -math.inf}, ValueError, "gap: expected a finite number, got -inf"),
    "gap a str": ({"metric": "erp", "gap": "0"}, TypeError, "gap: expected a float, got str"),
    "gap a bool": ({"metric": "erp", "gap": True}, TypeError, "gap: expected a float, got bool"),
    "y of another batch": (lambda g: {"y": g.y[:2]}, ValueError, "y: expected a batch of 3 as in x, or of 1, got shape (2, 6, 2)"),
    "x of 4 axes": (lambda g: {"x": g.x[None]}, ValueError, "x: expected (B, N, D) or (N, D), got shape (1, 3, 5, 2)"),
    "too few lengths of x": ({"x_lengths": [1, 2]}, ValueError, "x_lengths: expected shape (3,), one length per pair, got (2,)"),
    "too few lengths of y": ({"y_lengths": [1, 2]}, ValueError, "y_lengths: expected shape (3,), one length per pair, got (2,)"),
}  # fmt: skip


def _call(options: Options, given: Given) -> object:
    changed = options(given) if callable(options) else options
    return elastic_distance(**({"x": given.x, "y": given.y, "metric": "msm"} | changed))


def _calls() -> BadCalls:
    wrong = dict(WRONG)
    for name in ("penalty", "stiffness", "steepness"):
        for what, (options, error, message) in not_a_number(name, ">= 0").items():
            wrong[what] = ({"metric": WITH[name], **options}, error, message)
    return {
        f"elastic_distance: {what}": BadCall(lambda g, options=options: _call(options, g), error, message)
        for what, (options, error, message) in wrong.items()
    }


CALLS: BadCalls = _calls()
