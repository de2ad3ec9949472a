"""Calls of warpalign.jax. Empty where JAX is not installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from tests.python.bad_calls import BadCall, BadCalls

HAS_JAX = find_spec("jax") is not None
CALLS: BadCalls = {}

FLOATS = "dtype float64, float32, float16 or bfloat16"
COSTS = '"sqeuclidean", "euclidean", "l1", "cosine", "huber"'


def bad(
    function: str, what: str, error: type[BaseException], message: str, *args: str, **kwargs: str
) -> None:
    """Adds a call. Arguments are expressions, which name jnp, np and wj: JAX is imported by the call."""

    def call(_: Any) -> object:
        import jax.numpy as jnp
        import numpy as np

        import warpalign.jax as wj

        names = {"jnp": jnp, "np": np, "wj": wj, "z": jnp.zeros}
        return getattr(wj, function)(
            *(eval(one, names) for one in args), **{k: eval(v, names) for k, v in kwargs.items()}
        )

    CALLS[f"jax.{function}: {what}"] = BadCall(call, error, message, True)


def other(what: str, error: type[BaseException], message: str, call: Callable[[Any], object]) -> None:
    CALLS[f"jax: {what}"] = BadCall(call, error, message, True)


def series() -> None:
    x, y = "z((3, 5, 2))", "z((3, 6, 2))"
    f = "soft_dtw"
    bad(f, "list", TypeError, "x: expected a jax.Array, got list: write jnp.asarray(x)", "[1.0]", y)
    bad(f, "integers", TypeError, f"x: expected {FLOATS}, got int32", "z((3, 5, 2), int)", y)
    bad(f, "one axis", ValueError, "x: expected (B, N, D) or (N, D), got shape (3,)", "z(3)", y)
    bad(
        f,
        "no steps",
        ValueError,
        "y: expected no empty axis in (M, D), got shape (3, 0, 2)",
        x,
        "z((3, 0, 2))",
    )
    bad(
        f,
        "dtypes",
        TypeError,
        "y: expected the dtype of x, float32, got float16: write y.astype(x.dtype)",
        x,
        "z((3, 6, 2), 'float16')",
    )
    bad(
        f,
        "axes",
        ValueError,
        "y: expected as many axes as x, which has shape (3, 5, 2), got shape (6, 2)",
        x,
        "z((6, 2))",
    )
    bad(
        f,
        "features",
        ValueError,
        "y: expected D = 2 features as in x, got shape (3, 6, 1)",
        x,
        "z((3, 6, 1))",
    )
    bad(
        f,
        "batch",
        ValueError,
        "y: expected a batch of 3 as in x, or of 1, got shape (2, 6, 2)",
        x,
        "z((2, 6, 2))",
    )
    bad(
        f,
        "cost",
        ValueError,
        f"cost: expected one of {COSTS}, got 'l2': of other costs write soft_dtw_cost(cost_matrix)",
        x,
        y,
        cost="'l2'",
    )
    bad(f, "gamma", ValueError, "gamma: expected a finite number >= 0, got -1.0", x, y, gamma="-1.0")
    bad(
        f,
        "gammas",
        ValueError,
        "gamma: expected shape () or (3,), got (2,)",
        x,
        y,
        gamma="jnp.ones(2)",
    )
    bad(
        f,
        "dtype of gammas",
        TypeError,
        f"gamma: expected {FLOATS}, got int32",
        x,
        y,
        gamma="jnp.ones(3, int)",
    )
    bad(
        f,
        "lengths",
        TypeError,
        "x_lengths: expected integers (B,), got str",
        x,
        y,
        x_lengths="'a'",
    )
    bad(
        f,
        "lengths of floats",
        TypeError,
        "y_lengths: expected integers, got float32",
        x,
        y,
        y_lengths="jnp.ones(3)",
    )
    bad(
        f,
        "number of lengths",
        ValueError,
        "y_lengths: expected shape (3,), one length per pair, got (2,)",
        x,
        y,
        y_lengths="[1, 2]",
    )
    bad(
        f,
        "long",
        ValueError,
        "y_lengths: expected lengths from 1 to M = 6, got 7 at index 1",
        x,
        y,
        y_lengths="[1, 7, 2]",
    )
    bad(
        f,
        "mask",
        TypeError,
        "x_mask: expected bools (B, N) as a jax.Array, got list",
        x,
        y,
        x_mask="[True]",
    )
    bad(f, "mask of floats", TypeError, "y_mask: expected dtype bool, got float32", x, y, y_mask="z((3, 6))")
    bad(
        f,
        "shape of a mask",
        ValueError,
        "x_mask: expected shape (3, 5), one per time step, got (3, 4)",
        x,
        y,
        x_mask="z((3, 4), bool)",
    )
    bad(
        f,
        "precision",
        TypeError,
        "precision: expected a str or None, got NoneType",
        x,
        y,
        precision="None",
    )
    bad(
        "soft_dtw_cost",
        "one axis",
        ValueError,
        "cost_matrix: expected (B, N, M) or (N, M), got shape (3,)",
        "z(3)",
    )


def sets() -> None:
    X, Y = "z((3, 5, 2))", "z((4, 6, 2))"
    f = "cdist_soft_dtw"
    bad(f, "axes", ValueError, "X: expected (n, N, D) or (n, N), got shape (3,)", "z(3)")
    bad(
        f,
        "no steps",
        ValueError,
        "Y: expected no empty axis in (N, D), got shape (4, 0, 2)",
        X,
        "z((4, 0, 2))",
    )
    bad(
        f,
        "dtypes",
        TypeError,
        "Y: expected the dtype of X, float32, got float16: write Y.astype(X.dtype)",
        X,
        "z((4, 6, 2), 'float16')",
    )
    bad(
        f,
        "features",
        ValueError,
        "Y: expected D = 2 features as in X, got shape (4, 6, 3)",
        X,
        "z((4, 6, 3))",
    )
    bad(f, "gammas", ValueError, "gamma: expected shape (), got (3,)", X, Y, gamma="jnp.ones(3)")
    bad(
        f,
        "lengths alone",
        ValueError,
        "y_lengths: expected None where Y is None, got list",
        X,
        y_lengths="[1]",
    )
    bad(
        f,
        "lengths",
        ValueError,
        "y_lengths: expected shape (4,), one length per series, got (1,)",
        X,
        Y,
        y_lengths="[1]",
    )
    bad(f, "block", ValueError, "block_size: expected at least 1, got 0", X, Y, block_size="0")
    bad("dtw_path", "axes", ValueError, "x: expected (B, N, D) or (N, D), got shape (3,)", "z(3)", Y)


def labels() -> None:
    logits, targets = "z((3, 5, 6))", "jnp.ones((3, 2), int)"
    f = "ctc_loss"
    bad(
        f,
        "list",
        TypeError,
        "targets: expected an integer array (B, U), got list: write jnp.asarray(targets)",
        logits,
        "[[1]]",
    )
    bad(f, "floats", TypeError, "targets: expected an integer dtype, got float32", logits, "z((3, 2))")
    bad(
        f,
        "no class",
        ValueError,
        "logits: expected at least one class, got shape (3, 5, 0)",
        "z((3, 5, 0))",
        targets,
    )
    bad(
        f,
        "shape",
        ValueError,
        "targets: expected shape (3, U), got (2, 2)",
        logits,
        "jnp.ones((2, 2), int)",
    )
    bad(
        f,
        "prior",
        ValueError,
        "label_prior: expected shape (6,), one logarithm of a prior for each class, got (5,)",
        logits,
        targets,
        label_prior="z(5)",
    )
    bad(
        f,
        "blank",
        ValueError,
        "blank: expected a column of 6, from -6 to 5, got 6",
        logits,
        targets,
        blank="6",
    )
    joint, few = "z((3, 4, 3, 6))", "jnp.ones((3, 2), int)"
    f = "transducer_loss"
    bad(
        f,
        "axes",
        ValueError,
        "logits: expected (B, T, U+1, V) or (T, U+1, V), got shape (3, 5)",
        "z((3, 5))",
        few,
    )
    bad(
        f,
        "no label",
        ValueError,
        "logits: expected no empty axis of states or labels, got shape (3, 4, 3, 0)",
        "z((3, 4, 3, 0))",
        few,
    )
    bad(
        f,
        "labels",
        ValueError,
        "targets: expected shape (3, 2), (B, U), as logits (3, 4, 3, 6) have U + 1 = 3, got (3, 3)",
        joint,
        "jnp.ones((3, 3), int)",
    )
    bad(
        "transducer_align",
        "durations",
        ValueError,
        "durations: expected the durations of duration_logits, got None",
        joint,
        few,
        duration_logits="z((3, 4, 3, 2))",
    )
    f = "forward_sum_loss"
    for shape in ("(3, 5)", "(3, 2, 5, 6)"):
        bad(
            f,
            shape,
            ValueError,
            f"attention_logprob: expected (B, T, S) or (B, 1, T, S), got shape {shape}",
            f"z({shape})",
        )
    bad(
        f, "blank", TypeError, "blank_logprob: expected a float, got str", "z((3, 5, 6))", blank_logprob="'a'"
    )
    f = "monotonic_alignment_search"
    bad(f, "axes", ValueError, "scores: expected (B, S, T) or (S, T), got shape (3,)", "z(3)")
    bad(
        f,
        "output",
        ValueError,
        """output: expected "path" or "durations", got 'paths'""",
        "z((3, 5))",
        output="'paths'",
    )
    f = "tdt_loss"
    bad(
        f,
        "columns",
        ValueError,
        "label_logits: expected columns of labels besides those of 6 durations, as duration_logits is None, got 6",
        joint,
        "None",
        few,
        durations="(0, 1, 2, 3, 4, 5)",
    )
    bad(
        f,
        "dtypes",
        TypeError,
        "duration_logits: expected the dtype of label_logits, float32, got float16",
        joint,
        "z((3, 4, 3, 2), 'float16')",
        few,
        durations="(0, 1)",
    )
    bad(
        f,
        "shape",
        ValueError,
        "duration_logits: expected shape (3, 4, 3, 2), got (3, 4, 3, 3)",
        joint,
        "z((3, 4, 3, 3))",
        few,
        durations="(0, 1)",
    )
    bad(
        f,
        "omega",
        ValueError,
        "omega: expected a probability, at most 1, got 2.0",
        joint,
        "None",
        few,
        durations="(0, 1)",
        omega="2.0",
    )
    bad(
        f,
        "key",
        ValueError,
        "key: expected a key of jax.random with omega > 0, got None",
        joint,
        "None",
        few,
        durations="(0, 1)",
        omega="0.5",
    )


def from_joint() -> None:
    f, labels = "transducer_loss_from_joint", "jnp.ones((3, 2), int)"
    encoder, predictor, joint = "z((3, 4, 5))", "z((3, 3, 5))", "wj.JointWeights(z((6, 5)))"
    timed = "wj.JointWeights(z((8, 5)), durations=(0, 1))"
    bad(
        f,
        "weight",
        TypeError,
        "joint: expected JointWeights, got ArrayImpl: write JointWeights(weight, bias)",
        encoder,
        predictor,
        labels,
        "z((6, 5))",
    )
    for what, error, message, network in (
        ("weight's axes", ValueError, "joint.weight: expected (V, H), got shape (6,)", "z(6)"),
        (
            "empty weight",
            ValueError,
            "joint.weight: expected no empty axis in (V, H), got shape (6, 0)",
            "z((6, 0))",
        ),
        (
            "bias",
            ValueError,
            "joint.bias: expected shape (6,), by joint.weight, got (5,)",
            "z((6, 5)), z(5)",
        ),
        (
            "dtype of weight",
            TypeError,
            "joint.weight: expected the dtype of encoder_out, float32, got float16",
            "z((6, 5), 'float16')",
        ),
        (
            "activation",
            ValueError,
            """joint.activation: expected "relu" or "tanh", got 'gelu'""",
            "z((6, 5)), None, 'gelu'",
        ),
    ):
        bad(f, what, error, message, encoder, predictor, labels, f"wj.JointWeights({network})")
    bad(
        f,
        "dtypes",
        TypeError,
        "predictor_out: expected the dtype of encoder_out, float32, got float16",
        encoder,
        "z((3, 3, 5), 'float16')",
        labels,
        joint,
    )
    bad(
        f,
        "hidden",
        ValueError,
        "encoder_out: expected a last axis of 5, by joint.weight, got shape (3, 4, 6)",
        "z((3, 4, 6))",
        predictor,
        labels,
        joint,
    )
    bad(
        f,
        "states",
        ValueError,
        "predictor_out: expected shape (B, U+1, H) with U+1 of at least 1, by encoder_out of shape (3, 4, 5), "
        "got shape (2, 3, 5)",
        encoder,
        "z((2, 3, 5))",
        labels,
        joint,
    )
    bad(
        f,
        "labels",
        ValueError,
        "targets: expected shape (3, 2), (B, U), as predictor_out (3, 3, 5) has U + 1 = 3, got (3, 4)",
        encoder,
        predictor,
        "jnp.ones((3, 4), int)",
        joint,
    )
    bad(
        f,
        "omega",
        ValueError,
        "omega: expected 0 without durations, got 0.5",
        encoder,
        predictor,
        labels,
        joint,
        omega="0.5",
    )
    for name in ("omega", "dropout"):
        bad(
            f,
            f"key of {name}",
            ValueError,
            f"key: expected a key of jax.random with {name} > 0, got None",
            encoder,
            predictor,
            labels,
            timed,
            **{name: "0.5"},
        )


def transport() -> None:
    x, y, epsilon = "z((3, 5, 2))", "z((3, 6, 2))", "0.5"
    f = "sinkhorn"
    bad(
        f,
        "cost",
        ValueError,
        f"cost: expected one of {COSTS}, got 'l2': give other costs as cost_matrix",
        x,
        y,
        epsilon=epsilon,
        cost="'l2'",
    )
    bad(
        f,
        "nothing",
        ValueError,
        "y: expected points, or a cost_matrix in the place of x and y, got None",
        x,
        epsilon=epsilon,
    )
    bad(
        f,
        "both",
        ValueError,
        "x: expected None with a cost_matrix, got ArrayImpl",
        x,
        epsilon=epsilon,
        cost_matrix="z((5, 6))",
    )
    bad(
        f,
        "cost beside costs",
        ValueError,
        "cost: expected none with a cost_matrix, got 'l1'",
        epsilon=epsilon,
        cost_matrix="z((5, 6))",
        cost="'l1'",
    )
    bad(
        f,
        "weights",
        TypeError,
        "a: expected a jax.Array, a list of numbers, or None, got str",
        x,
        y,
        epsilon=epsilon,
        a="'a'",
    )
    bad(
        f,
        "complex weights",
        TypeError,
        "b: expected real numbers, got complex64",
        x,
        y,
        epsilon=epsilon,
        b="z(6, complex)",
    )
    bad(
        f,
        "number of weights",
        ValueError,
        "b: expected shape (6,) or (3, 6), one number per point, got (5,)",
        x,
        y,
        epsilon=epsilon,
        b="z(5)",
    )
    bad(
        f,
        "init",
        TypeError,
        "init: expected a SinkhornResult, potentials (f, g) or None, got int",
        x,
        y,
        epsilon=epsilon,
        init="3",
    )
    bad(
        f,
        "half an init",
        TypeError,
        "init: expected both potentials (f, g), got None as one of them",
        x,
        y,
        epsilon=epsilon,
        init="(None, z(6))",
    )
    bad(f, "epsilon", ValueError, "epsilon: expected a finite number > 0, got 0.0", x, y, epsilon="0.0")


def divergences() -> None:
    x, y = "z((3, 5, 2))", "z((3, 6, 2))"
    f = "sinkhorn_divergence"
    bad(f, "rho", ValueError, "rho: expected a finite number >= 0, got -1.0", x, y, epsilon="0.5", rho="-1.0")
    bad(f, "debias", TypeError, "debias: expected a bool, got int", x, y, epsilon="0.5", debias="1")


def gromov() -> None:
    x, y = "z((5, 2))", "z((6, 3))"
    f = "gromov_wasserstein"

    def bad_gromov(what: str, error: type[BaseException], message: str, *args: str, **kwargs: str) -> None:
        bad(f, what, error, message, *args, **{"epsilon": "0.5", **kwargs})

    bad_gromov(
        "distances",
        TypeError,
        "distances: expected a pair, one for x and one for y, got ArrayImpl",
        distances="z(5)",
    )
    bad_gromov(
        "geometry",
        ValueError,
        """geometry: expected "euclidean" or "sqeuclidean", got 'geodesic'""",
        x,
        y,
        geometry="'geodesic'",
    )
    bad_gromov(
        "dtypes",
        TypeError,
        "distances[1]: expected dtype float64, float32, float16 or bfloat16, got int32",
        x,
        distances="(None, z((6, 6), int))",
    )
    bad_gromov(
        "batch axes",
        ValueError,
        "y: expected a batch axis as x has, or none, got distances of shapes (5, 5) and (2, 6, 6)",
        x,
        "z((2, 6, 3))",
    )
    bad_gromov(
        "batches",
        ValueError,
        "y: expected a batch of 3 as in x, or of 1, got 2",
        "z((3, 5, 2))",
        "z((2, 6, 3))",
    )
    bad_gromov("nothing", ValueError, "y: expected points, or distances[1], got None", x)
    bad_gromov(
        "both",
        ValueError,
        "x: expected None beside distances[0], got ArrayImpl",
        x,
        y,
        distances="(z((5, 5)), None)",
    )
    bad_gromov(
        "no square",
        ValueError,
        "distances[0]: expected a square matrix (N, N), got shape (5, 6)",
        "None",
        y,
        distances="(z((5, 6)), None)",
    )
    bad_gromov(
        "init",
        ValueError,
        """init: expected "eccentricity", "product" or a plan (N, M), got 'multiscale'""",
        x,
        y,
        init="'multiscale'",
    )
    bad_gromov(
        "plan",
        ValueError,
        "init: expected shape (5, 6) or (1, 5, 6), got (6, 5)",
        x,
        y,
        init="z((6, 5))",
    )
    bad_gromov(
        "weight",
        ValueError,
        "feature_weight: expected a number from 0 to 1, got 2.0",
        x,
        y,
        feature_cost="z((5, 6))",
        feature_weight="2.0",
    )
    bad_gromov(
        "features",
        ValueError,
        "feature_cost: expected costs (N, M) with feature_weight = 0.5, got None",
        x,
        y,
        feature_weight="0.5",
    )


def _call_of_an_unknown_argument(_: Any) -> object:
    import jax.numpy as jnp

    from warpalign.jax._call import call

    return call("soft_dtw", x=jnp.zeros((3, 5, 2)), y=jnp.zeros((3, 6, 2)), tau=1.0)


def _call_of_other_shapes(_: Any) -> object:
    import jax.numpy as jnp

    from warpalign.jax._call import call

    return call("sinkhorn_normalize", logits=jnp.zeros((3, 5)), iterations=3, columns_first=True)


if HAS_JAX:
    series()
    sets()
    labels()
    from_joint()
    transport()
    divergences()
    gromov()
    other(
        "an unknown argument of an operator",
        TypeError,
        "soft_dtw: expected no argument tau, got one",
        _call_of_an_unknown_argument,
    )
    other(
        "shapes of an operator",
        ValueError,
        "logits: expected 3 axes (B, N, M), got shape (3, 5)",
        _call_of_other_shapes,
    )
