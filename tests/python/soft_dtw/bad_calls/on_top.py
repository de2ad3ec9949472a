"""What is built on top: all pairs, barycenters, estimators, the metric, plots."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas
import torch
from sklearn.exceptions import NotFittedError

from tests.python.bad_calls import BadCall, BadCalls, Given
from tests.python.soft_dtw.bad_calls.functional import jagged, made, not_a_number
from warpalign import (
    GammaScheduler,
    SoftDTW,
    SoftDTWKMeans,
    SoftDTWKNeighborsClassifier,
    SoftDTWKNeighborsRegressor,
    cdist_soft_dtw,
    cdist_soft_dtw_normalized,
    dtw_path,
    plot,
    soft_dtw_barycenter,
)
from warpalign.metrics import SoftDTWMetric

FORMS = "expected (n, N, D), (n, N) for univariate series, or a list of series (N, D) or (N,), got "

REMEDY = ": a numpy.ma.masked_array says which time steps are missing, and NaN at a series' end is padding"
AUTO = 'gamma: expected a number where "auto" finds none, as the median distance between time steps is 0'

Wrong = tuple[Any, type[BaseException], str]


def with_value(at: tuple[int, ...], value: float) -> torch.Tensor:
    x = torch.zeros(3, 5, 2)
    x[at] = value
    return x


# Two series of three time steps below each other.
PANEL = pandas.DataFrame(
    {"value": range(6)}, index=pandas.MultiIndex.from_product([range(2), range(3)], names=["case", "time"])
)
# Sets of series, whatever takes them; {X} is the argument's name.
SETS: dict[str, Wrong] = {
    "1 axis": (torch.zeros(4), ValueError, "{X}: " + FORMS + "shape (4,)"),
    "4 axes": (torch.zeros(1, 3, 5, 2), ValueError, "{X}: " + FORMS + "shape (1, 3, 5, 2)"),
    "an empty list": ([], ValueError, "{X}: " + FORMS + "an empty list"),
    "integers": (torch.ones(3, 5, 2).long(), TypeError, "{X}: expected dtype float64, float32, float16 or bfloat16, got torch.int64: write {X}.float()"),
    "no steps": (torch.zeros(3, 0, 2), ValueError, "{X}: expected no empty axis in (N, D), got shape (3, 0, 2)"),
    "nested without features": (jagged((3,), (4,)), ValueError, "{X}: expected a nested tensor of series (length, D), got 1 axes"),
    "an array of objects": (np.array([1.0, None]), ValueError, "{X}[0]: expected (N, D) or (N,), got shape ()"),
    "an array in a list": ([torch.zeros(5, 2), torch.zeros(3, 5, 2)], ValueError, "{X}[1]: expected (N, D) or (N,), got shape (3, 5, 2)"),
    "numbers in a list": ([1.0, 2.0], ValueError, "{X}[0]: expected (N, D) or (N,), got shape ()"),
    "an empty series": ([torch.zeros(5, 2), torch.zeros(0, 2)], ValueError, "{X}[1]: expected no empty axis in (N, D), got shape (0, 2)"),
    "features of a list": ([torch.zeros(5, 2), torch.zeros(4, 1)], ValueError, "{X}[1]: expected D = 2 features as in {X}[0], got 1"),
    "dtypes of a list": ([torch.zeros(5, 2), torch.zeros(4, 2).double()], TypeError, "{X}[1]: expected the dtype of {X}[0], torch.float32, got torch.float64"),
    "devices of a list": ([torch.zeros(5, 2), torch.zeros(4, 2, device="meta")], ValueError, "{X}[1]: expected the device of {X}[0], cpu, got meta"),
    "steps masked in part": (np.ma.masked_array(np.zeros((3, 5, 2)), with_value((1, 2, 0), 1.0).numpy() > 0), ValueError, "{X}: expected time steps that are masked in all features or in none, got some in between"),
    "channels first in a list": ([torch.zeros(2, 5), torch.zeros(2, 4)], ValueError, "{X}[1]: expected D = 5 features as in {X}[0], got 4: time comes first: write [a.T for a in {X}]"),
    "a frame with two levels of rows": (PANEL, ValueError, "{X}: expected a row per series, got a data frame with 2 levels of row labels, as sktime's: write [one.to_numpy() for _, one in {X}.groupby(level=0)], or {X}.to_numpy() if each row is a series"),
    "a long frame": (PANEL.reset_index(), ValueError, "{X}: expected a row per series, got a long data frame, in which 'time' starts again for each 'case': write [one.sort_values('time')[['value']].to_numpy() for _, one in {X}.groupby('case')], or {X}.to_numpy() if each row is a series"),
    "series in the cells of a frame": (pandas.DataFrame({"a": [pandas.Series([1.0, 2.0])]}), ValueError, "{X}: expected numbers, got a data frame with series in its cells: write [np.stack(row, axis=1) for row in {X}.to_numpy()]"),
    "only NaN": (with_value((1,), math.nan), ValueError, "{X}: expected a time step in every series, got only NaN in series 1"),
}  # fmt: skip
# Where arrays have no judge of their own.
ARRAYS: dict[str, Wrong] = {
    "a str": ("x", TypeError, "{X}: expected floating-point numbers or integers, got str of <U1"),
    "complex": (np.ones((2, 3)) * 1j, TypeError, "{X}: expected floating-point numbers or integers, got ndarray of complex128"),
    "a ragged array": (({"a": [[1.0], [1.0, 2.0]]}["a"],), ValueError, "{X}[0]: " + FORMS + "list: setting an array element with a sequence. The requested array has an inhomogeneous shape after 1 dimensions. The detected shape was (2,) + inhomogeneous part."),
}  # fmt: skip
LENGTHS: dict[str, Wrong] = {
    "an int": (3, TypeError, "expected integers (B,) as a tensor, list, tuple or array, got int"),
    "floats": (
        torch.ones(3),
        TypeError,
        "expected integers of dtype int64, int32, int16, int8 or uint8, got torch.float32: multiply fractions in [0, 1] by the number of steps, "
        "N = 5, and round to integers, ({lengths} * N).round().long()",
    ),
    "too few": (torch.ones(2).long(), ValueError, "expected shape (3,), one length per pair, got (2,)"),
    "beyond N": (torch.tensor([1, 2, 9]), ValueError, "expected lengths from 1 to N = 5, got 9 at index 2"),
    "elsewhere": (
        torch.ones(3, device="meta").long(),
        ValueError,
        "expected the device of the series, cpu, got meta: write {lengths}.to('cpu')",
    ),
}
POSITIVE = not_a_number("gamma", "> 0") | {
    "gamma 0": ({"gamma": 0}, ValueError, "gamma: expected a finite number > 0, got 0"),
    "gamma a tensor": ({"gamma": torch.ones(())}, TypeError, "gamma: expected a float, got Tensor"),
}
NOT_NEGATIVE = not_a_number("gamma", ">= 0") | {
    "gamma a tensor": ({"gamma": torch.ones(())}, TypeError, "gamma: expected a float, got Tensor")
}
METRIC: dict[str, Wrong] = {
    "metric_params a list": ({"metric_params": ["cost"]}, TypeError, "metric_params: expected a dict or None, got list"),
    "metric_params that there are not": ({"metric_params": {"normalize": True}}, ValueError, "metric_params: expected only cost, bandwidth, band, max_slope, step_penalty, precision, got 'normalize'"),
    "metric_params with a bad cost": ({"metric_params": {"cost": "l2"}}, ValueError, 'cost: expected one of "sqeuclidean", "euclidean", "l1", "cosine", "huber", or a function, got \'l2\''),
}  # fmt: skip
OPTIONS: dict[str, Wrong] = {
    "a negative bandwidth": ({"bandwidth": -1}, ValueError, "bandwidth: expected a radius >= 0, or None for no band, got -1"),
}  # fmt: skip


def count(name: str, least: int, bad: int) -> dict[str, Wrong]:
    return {
        f"{name} {bad}": ({name: bad}, ValueError, f"{name}: expected at least {least}, got {bad}"),
        f"{name} a float": ({name: 1.5}, TypeError, f"{name}: expected an int, got float"),
        f"{name} a bool": ({name: True}, TypeError, f"{name}: expected an int, got bool"),
        f"{name} a str": ({name: "3"}, TypeError, f"{name}: expected an int, got str"),
    }


def bad_calls(name: str, function: Callable[..., object], cases: dict[str, Wrong]) -> BadCalls:
    """Bad calls of a function that takes X (3, 5, 2) and options."""
    return {
        f"{name}: {what}": BadCall(lambda g, o=options: function(g.x, **made(o, g)), error, message)
        for what, (options, error, message) in cases.items()
    }


def sets(name: str, function: Callable[[Any], object], X: str, cases: dict[str, Wrong]) -> BadCalls:
    return {
        f"{name}: {X} {what}": BadCall(lambda g, v=value: function(v), error, message.replace("{X}", X))
        for what, (value, error, message) in cases.items()
    }


CDIST: dict[str, Wrong] = {
    "an option that there is not": ({"gama": 1.0}, TypeError, "gama: expected no such argument of cdist_soft_dtw, got one"),
    "an option of soft_dtw alone": ({"reduction": "mean"}, TypeError, "reduction: expected no such argument of cdist_soft_dtw, got one"),
    "lengths of a nested tensor": (lambda g: {"Y": jagged((3, 2)), "y_lengths": torch.tensor([3])}, ValueError, "y_lengths: expected None with a nested tensor as Y, which has its lengths"),
    **NOT_NEGATIVE, **OPTIONS, **count("block_size", 1, 0),
    **{f"x_lengths {what}": ({"x_lengths": value}, error, "x_lengths: " + message.replace("{lengths}", "x_lengths")) for what, (value, error, message) in LENGTHS.items()},
    **{f"y_lengths {what}": (lambda g, v=value: {"Y": g.x, "y_lengths": v}, error, "y_lengths: " + message.replace("{lengths}", "y_lengths")) for what, (value, error, message) in LENGTHS.items()},
    "normalize a str": ({"normalize": "no"}, TypeError, "normalize: expected a bool, got str"),
    "y_lengths without Y": ({"y_lengths": torch.tensor([1, 2, 3])}, ValueError, "y_lengths: expected None where Y is None, got Tensor"),
    "y_mask without Y": ({"y_mask": [[True]]}, ValueError, "y_mask: expected None where Y is None, got list"),
    "x_mask too long": ({"x_mask": torch.zeros(3, 6).bool()}, ValueError, "x_mask: expected shape (3, 5), one per time step, got (3, 6)"),
    "y_mask of floats": (lambda g: {"Y": g.x, "y_mask": g.x[..., 0]}, TypeError, "y_mask: expected dtype torch.bool, got torch.float32"),
    "two masks": (lambda g: {"Y": np.ma.masked_array(np.zeros((3, 5, 2)), True), "y_mask": [[True] * 5] * 3}, ValueError, "y_mask: expected None with a masked array as Y, which has its mask"),
    "NaN within a series": (lambda g: {"Y": with_value((2, 3), math.nan)}, ValueError, "Y: expected numbers, got NaN in series 2 at time step 3: y_mask, or" + REMEDY[1:]),
    "auto for equal time steps": ({"gamma": "auto"}, ValueError, AUTO),
    "Y of another dtype": (lambda g: {"Y": g.x.double()}, TypeError, "Y: expected the dtype of X, torch.float32, got torch.float64: write Y.to(X.dtype)"),
    "Y of other features": (lambda g: {"Y": g.x[..., :1]}, ValueError, "Y: expected D = 2 features as in X, got 1"),
    "devices a str": ({"devices": "cpu"}, TypeError, "devices: expected a sequence of devices, got str"),
    "no devices": ({"devices": []}, ValueError, "devices: expected at least one device, got none"),
    "devices that torch does not know": ({"devices": ["cpu", "tpu"]}, ValueError, "devices: expected a torch.device, or its name, got 'tpu'"),
    "devices of another kind": ({"devices": ["meta"]}, ValueError, "devices: expected a CPU or CUDA device, got 'meta'"),
    "devices that are not there": ({"devices": ["cuda:99"]}, ValueError, f"devices: expected a device of this machine, where torch sees {torch.cuda.device_count()} GPUs, got 'cuda:99'"),
    "distributed without processes": ({"distributed": True}, ValueError, "distributed: expected torch.distributed to be initialised (init_process_group), which it is not"),
}  # fmt: skip

BARYCENTER: dict[str, Wrong] = {
    "an option that there is not": ({"y_lengths": None}, TypeError, "y_lengths: expected no such argument of soft_dtw_barycenter, got one"),
    **POSITIVE, **OPTIONS, **count("block_size", 1, 0), **count("barycenter_size", 1, 0), **count("max_iter", 0, -1),
    **not_a_number("tol", ">= 0"), **not_a_number("lr", ">= 0"),
    **{f"x_lengths {what}": ({"x_lengths": value}, error, "x_lengths: " + message.replace("{lengths}", "x_lengths")) for what, (value, error, message) in LENGTHS.items()},
    "x_mask too long": ({"x_mask": torch.zeros(3, 6).bool()}, ValueError, "x_mask: expected shape (3, 5), one per time step, got (3, 6)"),
    "auto for equal time steps": ({"gamma": "auto"}, ValueError, AUTO),
    "too few groups": ({"groups": [0, 1]}, ValueError, "groups: expected shape (3,), one group per series, got (2,)"),
    "groups of words": ({"groups": ["a", "b", "c"]}, TypeError, "groups: expected integers, got list of others"),
    "weights of words": ({"weights": ["a", "b", "c"]}, TypeError, "weights: expected numbers, got list of others"),
    "init of words": ({"init": ["a", "b"]}, TypeError, "init: expected floating-point numbers or integers, got list of <U1"),
    "annealing a number": ({"annealing": 10}, TypeError, "annealing: expected a sequence of factors, got int"),
    "a negative group": ({"groups": [0, 1, -1]}, ValueError, "groups: expected numbers from 0, got -1"),
    "a group without series": ({"groups": [0, 2, 3]}, ValueError, "groups: expected every number from 0 to 3, got none of 1"),
    "groups of floats": ({"groups": [0.0, 1.0, 2.0]}, TypeError, "groups: expected integers, got torch.float32"),
    "too few weights": ({"weights": [1, 2]}, ValueError, "weights: expected shape (3,), one weight per series, got (2,)"),
    "a negative weight": ({"weights": [1, -1, 1]}, ValueError, "weights: expected finite numbers >= 0, got others"),
    "a group without weight": ({"weights": [0, 1, 1], "groups": [0, 1, 1]}, ValueError, "weights: expected a positive one in every group, got only zeros in one"),
    "an unknown init": ({"init": "mean"}, ValueError, "init: expected \"euclidean\" or a tensor, got 'mean'"),
    "init of 1 axis": ({"init": torch.zeros(4)}, ValueError, "init: expected shape (sz, 2), got (4,)"),
    "init of other features": ({"init": torch.zeros(4, 1), "barycenter_size": 4}, ValueError, "init: expected shape (4, 2), got (4, 1)"),
    "one init for two groups": ({"init": torch.zeros(4, 2), "groups": [0, 1, 1]}, ValueError, "init: expected shape (2, sz, 2), got (4, 2)"),
    "infinite init": ({"init": torch.full((4, 2), math.inf)}, ValueError, "init: expected finite values, got NaN or infinity"),
    "another size than init's": ({"init": torch.zeros(4, 2), "barycenter_size": 5}, ValueError, "barycenter_size: expected the 4 time steps of init, got 5"),
    "an unknown method": ({"method": "sgd"}, ValueError, 'method: expected "lbfgs", "adam" or "dba", got \'sgd\''),
    "annealing of dba": ({"method": "dba", "annealing": (10,)}, ValueError, 'annealing: expected none with method="dba", which has no gamma, got [10.0]'),
    "another cost with dba": ({"method": "dba", "cost": "l1"}, ValueError, 'cost: expected "sqeuclidean" with method="dba", whose means minimise no other, got \'l1\''),
    "an option that dba does not have": ({"method": "dba", "normalize": True}, TypeError, 'normalize: expected no such argument with method="dba", got one'),
    "annealing to 0": ({"annealing": (0,)}, ValueError, "gamma: expected a finite number > 0, got 0.0"),
    "negative annealing": ({"annealing": (10, -1)}, ValueError, "annealing: expected a finite number >= 0, got -1"),
}  # fmt: skip
FINITE: dict[str, Wrong] = {
    "a hole": (with_value((1, 2, 0), math.nan), ValueError, "{X}: expected finite values, got NaN or infinity in series 1" + REMEDY),
    "infinity": (with_value((2, 0, 1), -math.inf), ValueError, "{X}: expected finite values, got NaN or infinity in series 2" + REMEDY),
    "nothing but missing steps": (np.ma.masked_array(np.zeros((3, 5, 2)), with_value((1,), 1.0).numpy() > 0), ValueError, "{X}: expected a time step in every series, got only missing ones in series 1"),
    "no series": (torch.zeros(0, 5, 2), ValueError, "{X}: expected at least one series, got none"),
}  # fmt: skip

BANDWIDTH: dict[str, Wrong] = {
    **OPTIONS,
    "a bandwidth of float": ({"bandwidth": 0.1}, TypeError, "bandwidth: expected an int or None, got float"),
    "two bandwidths": ({"bandwidth": 2, "metric_params": {"bandwidth": 3}}, ValueError, "bandwidth: expected None with metric_params={'bandwidth': 3}, got 2"),
    "a bandwidth with a slope": ({"bandwidth": 2, "metric_params": {"band": "itakura"}}, ValueError, 'bandwidth: expected None with band="itakura", which has max_slope, got 2'),
    "a band without a bandwidth": ({"metric_params": {"band": "abs"}}, ValueError, 'bandwidth: expected a radius with band="abs", got None'),
}  # fmt: skip
KMEANS: dict[str, Wrong] = {
    **NOT_NEGATIVE, **METRIC, **BANDWIDTH,
    "means of another cost": ({"gamma": 0, "metric_params": {"cost": "l1"}}, ValueError, "metric_params: expected cost \"sqeuclidean\" with gamma=0, whose centers are means, got 'l1': write gamma > 0"),
    **not_a_number("tol", ">= 0"),
    **count("n_clusters", 1, 0), **count("max_iter", 1, 0), **count("n_init", 1, 0), **count("max_iter_barycenter", 0, -1),
    "too many clusters": ({"n_clusters": 4}, ValueError, "n_samples=3 should be >= n_clusters=4."),
    "an unknown init": ({"init": "best"}, ValueError, 'init: expected "k-means++", "random" or an array, got \'best\''),
    "too few centers": ({"init": np.zeros((2, 5, 2))}, ValueError, "init: expected finite centers (3, sz, 2), got shape (2, 5, 2)"),
    "infinite centers": ({"init": np.full((3, 5, 2), np.inf)}, ValueError, "init: expected finite centers (3, sz, 2), got shape (3, 5, 2) with NaN or infinity"),
    "a device that torch does not know": ({"device": "tpu"}, ValueError, "device: expected a torch.device, or its name, got 'tpu'"),
}  # fmt: skip
NEIGHBORS: dict[str, Wrong] = {
    **NOT_NEGATIVE, **BANDWIDTH, **count("n_neighbors", 1, 0), **{what: case for what, case in METRIC.items() if "bad" not in what},
    "normalize a str": ({"normalize": "no"}, TypeError, "normalize: expected a bool, got str"),
    "unknown weights": ({"weights": "equal"}, ValueError, 'weights: expected "uniform", "distance" or a function, got \'equal\''),
    "weights of values that can be negative": ({"weights": "distance"}, ValueError, 'weights: expected distances that are not negative for "distance", which normalize=True and gamma=0 give'),
    "a device that torch does not know": ({"device": 3.5}, ValueError, "device: expected a torch.device, or its name, got 3.5"),
}  # fmt: skip


def fit_neighbors(X: Any, **options: Any) -> SoftDTWKNeighborsClassifier:
    return SoftDTWKNeighborsClassifier(**options).fit(X, np.arange(len(X)) % 2)


def fit_regressor(X: Any, **options: Any) -> SoftDTWKNeighborsRegressor:
    return SoftDTWKNeighborsRegressor(**options).fit(X, np.arange(len(X)))


def metric(g: Given, **options: Any) -> None:
    SoftDTWMetric(**options).update(g.x, g.y)


X, Y = torch.zeros(12, 2), torch.zeros(9, 2)
CALLS: BadCalls = {
    **bad_calls("cdist_soft_dtw", cdist_soft_dtw, CDIST),
    **bad_calls("cdist_soft_dtw_normalized", cdist_soft_dtw_normalized, NOT_NEGATIVE | OPTIONS),
    **sets("cdist_soft_dtw", cdist_soft_dtw, "X", SETS | ARRAYS),
    **sets("cdist_soft_dtw", lambda Y: cdist_soft_dtw(torch.zeros(3, 5, 2), Y), "Y", SETS | ARRAYS),
    **sets("cdist_soft_dtw_normalized", cdist_soft_dtw_normalized, "X", SETS | ARRAYS),
    **sets(
        "cdist_soft_dtw_normalized", lambda Y: cdist_soft_dtw_normalized(torch.zeros(3, 5, 2), Y), "Y", ARRAYS
    ),
    **bad_calls("soft_dtw_barycenter", soft_dtw_barycenter, BARYCENTER),
    **sets("soft_dtw_barycenter", soft_dtw_barycenter, "X", SETS | ARRAYS | FINITE),
    **bad_calls("SoftDTWKMeans", lambda X, **options: SoftDTWKMeans(**options).fit(X), KMEANS),
    **sets("SoftDTWKMeans", lambda X: SoftDTWKMeans(1).fit(X), "X", FINITE),
    "SoftDTWKMeans: features of a list": BadCall(
        lambda g: SoftDTWKMeans(1).fit([g.x[0], g.x[0, :4, :1]]), ValueError, "X[1]: expected D = 2 features as in X[0], got 1"
    ),
    "SoftDTWKMeans: other features than fitted": BadCall(
        lambda g: SoftDTWKMeans(1).fit(g.x).predict(g.x[..., :1]), ValueError, "X: expected d = 2 features as in fit, got 1"
    ),
    "SoftDTWKMeans: not fitted": BadCall(
        lambda g: SoftDTWKMeans().transform(g.x), NotFittedError,
        "This SoftDTWKMeans instance is not fitted yet. Call 'fit' with appropriate arguments before using this estimator.",
    ),
    **bad_calls("SoftDTWKNeighborsClassifier", fit_neighbors, NEIGHBORS),
    **bad_calls("SoftDTWKNeighborsRegressor", fit_regressor, NEIGHBORS),
    "SoftDTWKNeighborsRegressor: no numbers": BadCall(
        lambda g: SoftDTWKNeighborsRegressor().fit(g.x, None), ValueError,
        "SoftDTWKNeighborsRegressor requires y to be passed, but the target y is None",
    ),
    **sets("SoftDTWKNeighborsClassifier", fit_neighbors, "X", FINITE),
    "SoftDTWKNeighborsClassifier: not fitted": BadCall(
        lambda g: SoftDTWKNeighborsClassifier().predict(g.x), NotFittedError,
        "This SoftDTWKNeighborsClassifier instance is not fitted yet. Call 'fit' with appropriate arguments before using this estimator.",
    ),
    "SoftDTWKNeighborsClassifier: no classes": BadCall(
        lambda g: SoftDTWKNeighborsClassifier().fit(g.x, None), ValueError,
        "SoftDTWKNeighborsClassifier requires y to be passed, but the target y is None",
    ),
    "SoftDTWKNeighborsClassifier: too few classes": BadCall(
        lambda g: SoftDTWKNeighborsClassifier().fit(g.x, [0, 1]), ValueError,
        "Found input variables with inconsistent numbers of samples: [3, 2]",
    ),
    "SoftDTWKNeighborsClassifier: more neighbours than series": BadCall(
        lambda g: fit_neighbors(g.x).kneighbors(g.x, 4), ValueError,
        "Expected n_neighbors <= n_samples_fit, but n_neighbors = 4, n_samples_fit = 3",
    ),
    "SoftDTWKNeighborsClassifier: more neighbours than other series": BadCall(
        lambda g: fit_neighbors(g.x, n_neighbors=3).kneighbors(), ValueError,
        "Expected n_neighbors <= n_samples_fit, but n_neighbors = 3, n_samples_fit = 3, none of which is its own neighbour",
    ),
    **{
        f"SoftDTWMetric: {what}": BadCall(lambda g, o=options: metric(g, **o), error, message)
        for what, (options, error, message) in (NOT_NEGATIVE | METRIC).items()
    },
    "SoftDTWMetric: normalize a str": BadCall(
        lambda g: SoftDTWMetric(normalize="no"), TypeError, "normalize: expected a bool, got str"  # type: ignore[arg-type]
    ),
    "SoftDTWMetric: words": BadCall(
        lambda g: SoftDTWMetric().update(np.array(["a"]), g.y), TypeError,
        "preds: expected floating-point numbers or integers, got ndarray of <U1",
    ),
    "SoftDTWMetric: preds_lengths": BadCall(
        lambda g: SoftDTWMetric().update(g.x, g.y, [1, 2, 9]), ValueError,
        "preds_lengths: expected lengths from 1 to N = 5, got 9 at index 2",
    ),
    "SoftDTWMetric: target_lengths": BadCall(
        lambda g: SoftDTWMetric().update(g.x, g.y, target_lengths=[1, 2]), ValueError,
        "target_lengths: expected shape (3,), one length per pair, got (2,)",
    ),
    "SoftDTWMetric: features": BadCall(
        lambda g: SoftDTWMetric().update(g.x, g.y[..., :1]), ValueError, "target: expected D = 2 features as in preds, got shape (3, 6, 1)"
    ),
    "plot.alignment: transposed": BadCall(
        lambda g: plot.alignment(X, Y, torch.zeros(9, 12)), ValueError, "alignment: expected shape (12, 9), got (9, 12)"
    ),
    "plot.alignment: a batch": BadCall(
        lambda g: plot.alignment(X[None], Y), ValueError, "x: expected (N, D) or (N,), got shape (1, 12, 2)"
    ),
    "plot.alignment: features": BadCall(
        lambda g: plot.alignment(X, Y[:, :1]), ValueError, "y: expected D = 2 features as in x, got shape (9, 1)"
    ),
    "plot.cost_matrix: integers": BadCall(
        lambda g: plot.cost_matrix(X, Y.long()), TypeError, "y: expected dtype float64, float32, float16 or bfloat16, got torch.int64: write y.float()"
    ),
    "plot.cost_matrix: a path of 1 axis": BadCall(
        lambda g: plot.cost_matrix(X, Y, path=torch.zeros(3)), ValueError, "path: expected shape (L, 2), got (3,)"
    ),
    "plot.cost_matrix: a path that leaves": BadCall(
        lambda g: plot.cost_matrix(X, Y, path=torch.tensor([[0, 9]])), ValueError, "path: expected index pairs within (12, 9), got others"
    ),
    "plot.cost_matrix: the paths of a batch": BadCall(
        lambda g: plot.cost_matrix(X, Y, path=dtw_path(X[None].expand(2, -1, -1), Y[None])), ValueError,
        "path: expected that of one pair, got those of 2",
    ),
    "plot.matching: every 0": BadCall(
        lambda g: plot.matching(X, Y, every=0), ValueError, "every: expected at least 1, got 0"
    ),
    "plot.distances: 1 axis": BadCall(
        lambda g: plot.distances(torch.zeros(3)), ValueError, "table: expected shape (n, n), got (3,)"
    ),
    "plot.distances: one way only": BadCall(
        lambda g: plot.distances(torch.tensor([[0.0, 1.0], [2.0, 0.0]])), ValueError,
        "table: expected finite distances, as far one way as the other, got others",
    ),
    "plot.distances: too few names": BadCall(
        lambda g: plot.distances(torch.zeros(2, 2), names=["a"]), ValueError, "names: expected 2, one per series, got 1"
    ),
    "plot.clusters: too few labels": BadCall(
        lambda g: plot.clusters(g.x, [0, 1]), ValueError, "labels: expected 3 numbers from 0, one per series, got shape (2,)"
    ),
    "plot.clusters: too few centers": BadCall(
        lambda g: plot.clusters(g.x, [0, 1, 2], torch.zeros(2, 5, 2)), ValueError, "centers: expected one per cluster, 3, got 2"
    ),
    "plot.clusters: features of centers": BadCall(
        lambda g: plot.clusters(g.x, [0, 1, 1], torch.zeros(2, 5, 1)), ValueError, "centers: expected D = 2 features as in X, got 1"
    ),
    "plot.clusters: too few names": BadCall(
        lambda g: plot.clusters(g.x, [0, 0, 0], names=["a"]), ValueError, "names: expected 2, one per feature, got 1"
    ),
    "plot.barycenter: features": BadCall(
        lambda g: plot.barycenter(X[None], Y[:, :1]), ValueError, "barycenter: expected D = 2 features as in X, got 1"
    ),
    "plot.barycenter: too few labels": BadCall(
        lambda g: plot.barycenter(X[None], Y, labels=["one"]), ValueError, "labels: expected 2, one per feature, got 1"
    ),
    **{
        f"GammaScheduler: {what}": BadCall(
            lambda g, loss=loss, options=options: GammaScheduler(loss(), **({"end": 0.1, "steps": 5} | options)), error, message
        )
        for what, loss, options, error, message in (
            ("a loss that is none", lambda: torch.nn.MSELoss(), {}, TypeError, "loss: expected a SoftDTW, got MSELoss"),
            ("a learned gamma", lambda: SoftDTW(torch.nn.Parameter(torch.ones(()))), {}, ValueError,
             "loss: expected a gamma that is a number or a buffer, got a parameter, which an optimizer changes"),
            ("a gamma for each pair", lambda: SoftDTW(torch.ones(3)), {}, ValueError,
             "loss: expected one gamma for all pairs, got a buffer of shape (3,)"),
            ("an unknown curve", SoftDTW, {"curve": "step"}, ValueError,
             'curve: expected "linear", "cosine" or "exponential", got \'step\''),
            ("an end of 0", SoftDTW, {"end": 0}, ValueError, "end: expected a finite number > 0, got 0"),
            ("a negative end", SoftDTW, {"end": -1, "curve": "linear"}, ValueError, "end: expected a finite number >= 0, got -1"),
            ("an end of 0 of a buffer", lambda: SoftDTW(torch.ones(())), {"end": 0, "curve": "linear"}, ValueError,
             "end: expected a finite number > 0, got 0"),
            ("a start of 0", SoftDTW, {"start": 0.0}, ValueError, "start: expected a finite number > 0, got 0.0"),
            ("no steps", SoftDTW, {"steps": 0}, ValueError, "steps: expected at least 1, got 0"),
            ("steps of float", SoftDTW, {"steps": 2.0}, TypeError, "steps: expected an int, got float"),
            ("last_epoch -2", SoftDTW, {"last_epoch": -2}, ValueError, "last_epoch: expected at least -1, got -2"),
            ("no start when resumed", SoftDTW, {"last_epoch": 3}, ValueError,
             "start: expected a number with last_epoch = 3, got None: the loss has a later gamma"),
        )
    },
}  # fmt: skip
