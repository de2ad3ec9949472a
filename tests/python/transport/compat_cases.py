"""Calls of POT and geomloss: each is made with the original to record its answers, and with the drop-in to be compared.

compat_values.json holds the originals' answers, because POT is too large a requirement for the tests. To record them again:
python -m tests.python.transport.compat_cases, with POT 0.9.7.post1 and geomloss 0.3.1 installed.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

RECORDED = Path(__file__).with_name("compat_values.json")
Answers = dict[str, Any]
Case = Callable[[Any], Any]

_random = np.random.RandomState(0)
X, Y, NEW = _random.randn(7, 2), _random.randn(5, 2) + 1, _random.randn(3, 2)
A, B = _random.dirichlet(np.ones(7)), _random.dirichlet(np.ones(5))
SEVERAL = _random.dirichlet(np.ones(5), 2).T
M = np.square(X[:, None] - Y).sum(-1)
M = M / M.max()
MANY = _random.uniform(size=(2, 4, 3))
YS, YT = np.array([0, 1, 2, 0, 1, 2, 0]), np.array([0, 1, -1, 2, -1])
FINE: dict[str, Any] = {"numItermax": 20000, "stopThr": 1e-14}
REG = 0.1


def of_result(result: Any) -> Answers:
    return {
        "plan": result.plan,
        "value": result.value,
        "value_linear": result.value_linear,
        "potentials": list(result.potentials),
    }


def of_model(model: Any) -> Answers:
    return {
        "coupling": model.coupling_,
        "cost": model.cost_,
        "mu": [model.mu_s, model.mu_t],
        "fitted": model.transform(Xs=X),
        "new": model.transform(Xs=NEW),
        "back": model.inverse_transform(Xt=Y),
        "new back": model.inverse_transform(Xt=NEW),
        "labels": model.transform_labels(YS),
        "labels back": model.inverse_transform_labels(YT),
    }


def adapted(ot: Any, labels: bool = False, **options: Any) -> Answers:
    model = ot.da.SinkhornTransport(reg_e=0.5, max_iter=20000, tol=1e-14, **options)
    return of_model(model.fit(Xs=X, Xt=Y, **({"ys": YS, "yt": YT} if labels else {})))


def tensors(*arrays: Any) -> list[Any]:
    return [torch.from_numpy(array).clone().requires_grad_() for array in arrays]


def gradients(value: Any, inputs: list[Any]) -> list[Any]:
    return list(torch.autograd.grad(value, inputs))


def of_loss(call: Callable[..., Any]) -> Answers:
    a, b, costs = tensors(A, B, M)
    value = call(a, b, costs)
    by_a, by_b, by_costs = gradients(value, [a, b, costs])
    # The weights' sum is fixed, so their gradients are known up to a constant.
    return {"value": value, "by a": by_a - by_a.mean(), "by b": by_b - by_b.mean(), "by M": by_costs}


POT: dict[str, Case] = {
    **{
        f"sinkhorn, {method}": lambda ot, method=method: ot.sinkhorn(
            A, B, M, REG, method=method, log=True, **FINE
        )
        for method in ("sinkhorn", "sinkhorn_log", "sinkhorn_stabilized")
    },
    "sinkhorn, greenkhorn": lambda ot: ot.sinkhorn(
        A, B, M, REG, method="greenkhorn", numItermax=200000, stopThr=1e-14
    ),
    "sinkhorn, sinkhorn_epsilon_scaling": lambda ot: ot.sinkhorn(
        A, B, M, REG, method="sinkhorn_epsilon_scaling", epsilon0=10.0, stopThr=1e-20
    ),
    "sinkhorn of lists": lambda ot: ot.sinkhorn([0.5, 0.5], [0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]], 1),
    "sinkhorn of uniform weights": lambda ot: ot.sinkhorn([], [], M, REG, **FINE),
    "sinkhorn of 7 iterations": lambda ot: ot.sinkhorn(
        A, B, M, 0.01, method="sinkhorn_log", numItermax=7, warn=False, log=True
    ),
    "sinkhorn_knopp of 7 iterations": lambda ot: ot.bregman.sinkhorn_knopp(
        A, B, M, 0.05, numItermax=7, warn=False, log=True
    ),
    "sinkhorn from a start": lambda ot: ot.bregman.sinkhorn_log(
        A, B, M, 0.05, numItermax=3, warn=False, warmstart=(np.log(A), np.log(B))
    ),
    "sinkhorn of several": lambda ot: ot.sinkhorn(A, SEVERAL, M, REG, method="sinkhorn_log", log=True, **FINE),
    "sinkhorn2": lambda ot: ot.sinkhorn2(A, B, M, REG, **FINE),
    "sinkhorn2 of several": lambda ot: ot.sinkhorn2(A, SEVERAL, M, REG, method="sinkhorn_log", **FINE),
    "sinkhorn2, gradients": lambda ot: of_loss(
        lambda a, b, M: ot.sinkhorn2(a, b, M, REG, method="sinkhorn_log", numItermax=600, stopThr=1e-14)
    ),
    "sinkhorn, float32": lambda ot: ot.sinkhorn(
        *(one.astype(np.float32) for one in (A, B, M)), REG, method="sinkhorn_log"
    ).dtype.name,
    "sinkhorn_stabilized": lambda ot: ot.bregman.sinkhorn_stabilized(A, B, M, REG, log=True, **FINE),
    "empirical_sinkhorn": lambda ot: ot.bregman.empirical_sinkhorn(
        X, Y, 1.0, numIterMax=20000, stopThr=1e-14
    ),
    "empirical_sinkhorn, lazy": lambda ot: ot.bregman.empirical_sinkhorn(
        X, Y, 1.0, A, B, metric="euclidean", numIterMax=20000, stopThr=1e-14, isLazy=True
    ),
    "empirical_sinkhorn, 10 lazy iterations": lambda ot: ot.bregman.empirical_sinkhorn(
        X, Y, 0.5, A, B, numIterMax=10, isLazy=True, warn=False
    ),
    "empirical_sinkhorn2": lambda ot: [
        ot.bregman.empirical_sinkhorn2(X, Y, 1.0, A, B, metric=metric, isLazy=lazy, numIterMax=20000, stopThr=1e-14)
        for metric in ("sqeuclidean", "euclidean", "cityblock", "cosine")
        for lazy in (False, True)
    ],
    "empirical_sinkhorn_divergence": lambda ot: ot.bregman.empirical_sinkhorn_divergence(
        X, Y, 1.0, A, B, numIterMax=20000, stopThr=1e-14
    ),
    **{
        f"sinkhorn_unbalanced, {kind}, {reg_m}": lambda ot, kind=kind, reg_m=reg_m: (
            ot.unbalanced.sinkhorn_unbalanced(
                A, B, M, REG, reg_m, reg_type=kind, numItermax=20000, stopThr=1e-15, log=True
            )
        )
        for kind in ("kl", "entropy")
        for reg_m in (0.5, (0.5, 2.0), (float("inf"), 1.0))
    },
    "sinkhorn_unbalanced with c": lambda ot: ot.unbalanced.sinkhorn_unbalanced(
        A, B, M, REG, 1.0, c=M + 0.1, numItermax=20000, stopThr=1e-15, log=True
    ),
    "sinkhorn_unbalanced of 5 iterations": lambda ot: ot.unbalanced.sinkhorn_unbalanced(
        A, B, M, 0.05, 1.0, numItermax=5
    ),
    "sinkhorn_unbalanced, other methods": lambda ot: [
        ot.unbalanced.sinkhorn_unbalanced(A, B, M, REG, 1.0, method=method, numItermax=20000, stopThr=1e-15)
        for method in ("sinkhorn_stabilized", "sinkhorn_translation_invariant")
    ],
    "sinkhorn_unbalanced2": lambda ot: [
        ot.unbalanced.sinkhorn_unbalanced2(A, B, M, REG, 1.0, returnCost=cost, numItermax=20000, stopThr=1e-15)
        for cost in ("linear", "total")
    ],
    "sinkhorn_unbalanced2 of several": lambda ot: ot.unbalanced.sinkhorn_unbalanced2(
        A, SEVERAL, M, REG, 1.0, reg_type="entropy", numItermax=20000, stopThr=1e-15
    ),
    "entropic_partial_wasserstein": lambda ot: ot.partial.entropic_partial_wasserstein(
        A, B, M, REG, m=0.6, numItermax=20000, log=True
    ),
    "entropic_partial_wasserstein, all mass": lambda ot: ot.partial.entropic_partial_wasserstein(
        A, 2 * B, M, REG, numItermax=20000
    ),
    "entropic_partial_wasserstein_logscale": lambda ot: ot.partial.entropic_partial_wasserstein_logscale(
        A, B, M, REG, m=0.6, numItermax=5000, stopThr=1e-15
    ),
    **{
        f"solve, {kind}": lambda ot, kind=kind: of_result(
            ot.solve(M, A, B, reg=REG, reg_type=kind, max_iter=20000, tol=1e-14)
        )
        for kind in ("KL", "entropy")
    },
    "solve, unbalanced": lambda ot: of_result(
        ot.solve(M, A, B, reg=REG, unbalanced=0.7, max_iter=20000, tol=1e-15)
    ),
    "solve, marginals": lambda ot: list(ot.solve(M, reg=REG, max_iter=20000, tol=1e-14).marginals),
    "solve_sample": lambda ot: of_result(ot.solve_sample(X, Y, A, B, reg=1.0, max_iter=20000, tol=1e-14)),
    "solve_sample, debias": lambda ot: ot.solve_sample(
        X, Y, reg=1.0, debias=True, max_iter=20000, tol=1e-14
    ).value,
    **{
        f"solve_batch, {kind}": lambda ot, kind=kind: {
            name: value
            for name, value in of_result(
                ot.batch.solve_batch(MANY, 0.1, reg_type=kind, max_iter=20000, tol=1e-14)
            ).items()
            if name != "potentials"
        }
        for kind in ("entropy", "kl")
    },
    **{
        f"SinkhornTransport, {where}, {norm}": lambda ot, where=where, norm=norm: adapted(
            ot, norm=norm, out_of_sample_map=where
        )
        for where, norm in (
            ("continuous", None),
            ("ferradans", None),
            ("continuous", "max"),
            ("ferradans", "median"),
            ("continuous", "log"),
            ("ferradans", "loglog"),
        )
    },
    "SinkhornTransport, labels": lambda ot: adapted(ot, True, limit_max=3.0, out_of_sample_map="ferradans"),
    "dist": lambda ot: [ot.dist(X, Y, metric=metric) for metric in ("sqeuclidean", "euclidean", "cityblock", "cosine")],
    "unif": lambda ot: ot.unif(4),
}  # fmt: skip


def samples_loss(geomloss: Any, *, double: bool = True, forms: str = "weights", **options: Any) -> Answers:
    """Values, potentials and gradients of SamplesLoss; forms says how it is called."""
    dtype = torch.float64 if double else torch.float32
    given = [torch.from_numpy(one).to(dtype).requires_grad_() for one in (A, X, B, Y)]
    a, x, b, y = given
    arguments: tuple[Any, ...] = (a, x, b, y)
    if forms == "points":
        arguments, given = (x, y), [x, y]
    if forms == "batch":
        arguments = tuple(
            torch.stack([one, one.flip(0) + (0.1 if one.dim() == 2 else 0)]) for one in arguments
        )
    if forms == "columns":
        arguments = (a[:, None], x, b[:, None], y)
    if forms == "labels":
        arguments = (None, a, x, None, b, y)
    options = {"blur": 0.3} | options
    value = geomloss.SamplesLoss(**options)(*arguments)
    f, g = geomloss.SamplesLoss(potentials=True, **options)(*arguments)
    return {"value": value, "f": f, "g": g, "gradients": list(torch.autograd.grad(value.sum(), given))}


GEOMLOSS: dict[str, Case] = {
    "default": lambda geomloss: samples_loss(geomloss),
    "float32": lambda geomloss: samples_loss(geomloss, double=False),
    **{
        f"called with {forms}": lambda geomloss, forms=forms: samples_loss(geomloss, forms=forms)
        for forms in ("points", "batch", "columns", "labels")
    },
    "fine": lambda geomloss: samples_loss(geomloss, blur=0.05, scaling=0.9),
    "biased": lambda geomloss: samples_loss(geomloss, debias=False),
    "distances": lambda geomloss: samples_loss(geomloss, p=1, debias=False),
    "diameter": lambda geomloss: samples_loss(geomloss, diameter=10.0),
    "cost": lambda geomloss: samples_loss(
        geomloss, cost=lambda x, y: (x[:, :, None] - y[:, None]).abs().sum(-1), debias=False
    ),
    # Gradients with reach are not geomloss'.
    "reach": lambda geomloss: without_gradients(samples_loss(geomloss, reach=0.5)),
    "reach 5": lambda geomloss: without_gradients(samples_loss(geomloss, reach=5.0, debias=False)),
}


def without_gradients(answers: Answers) -> Answers:
    return {name: value for name, value in answers.items() if name != "gradients"}


def plain(answer: Any) -> Any:
    """Lists and numbers, and of a dict or tuple its parts; arrays as {"shape", "values"}."""
    if isinstance(answer, dict):
        return {name: plain(value) for name, value in answer.items()}
    if isinstance(answer, (list, tuple)):
        return [plain(one) for one in answer]
    if isinstance(answer, torch.Tensor):
        answer = answer.detach().numpy()
    if isinstance(answer, np.ndarray):
        return {"shape": list(answer.shape), "values": answer.flatten().tolist()}
    return answer.item() if isinstance(answer, np.generic) else answer


# What a log holds about the way there, not the solution: that it is there is all that is compared.
OF_THE_WAY = ("err", "niter", "n_iter")


def numbers(answer: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(where, what) of everything in a plain answer."""
    if isinstance(answer, dict) and set(answer) != {"shape", "values"}:
        for name, value in answer.items():
            if name in OF_THE_WAY:
                yield f"{path}/{name}", "there"
            else:
                yield from numbers(value, f"{path}/{name}")
    elif isinstance(answer, list):
        for index, value in enumerate(answer):
            yield from numbers(value, f"{path}/{index}")
    else:
        yield path, answer


def answers(package: Any, cases: dict[str, Case]) -> Answers:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: plain(case(package)) for name, case in cases.items()}


def record() -> None:
    import geomloss
    import ot

    found = {"POT": answers(ot, POT), "geomloss": answers(geomloss, GEOMLOSS)}
    RECORDED.write_text(json.dumps({"versions": [ot.__version__, geomloss.__version__]} | found) + "\n")


if __name__ == "__main__":
    record()
