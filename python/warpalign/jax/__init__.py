"""The operators for arrays of JAX, on the same kernels as the PyTorch functions, bitwise identical on a CPU. Needs jax, not torch.

Functions have the names, arguments and meanings of the PyTorch functions. They work under jax.jit, jax.grad, jax.vmap, jax.checkpoint,
jax.lax.scan and jax.shard_map, on CPUs and CUDA GPUs. Only gromov_wasserstein waits for a device.
"""

try:
    import jax as _jax  # noqa: F401
except ImportError as error:
    raise ImportError("warpalign.jax needs JAX: pip install 'warpalign[jax]'") from error

from warpalign._transducer.joint_weights import JointWeights
from warpalign._transducer.penalties import TransducerPenalties
from warpalign._transport.options import Annealing
from warpalign.jax._ctc import ctc_loss
from warpalign.jax._ctc_align import CTCAlignment, ctc_align, ctc_posteriors
from warpalign.jax._forward_sum import forward_sum_loss, monotonic_alignment_search
from warpalign.jax._gromov import GromovResult, gromov_wasserstein
from warpalign.jax._plan import TransportPlan
from warpalign.jax._sinkhorn import SinkhornResult, sinkhorn
from warpalign.jax._sinkhorn_divergence import SinkhornDivergenceResult, sinkhorn_divergence
from warpalign.jax._soft_dtw import SoftDTWAlignment, soft_dtw, soft_dtw_alignment, soft_dtw_cost
from warpalign.jax._soft_dtw_sets import DTWPath, cdist_soft_dtw, dtw_path
from warpalign.jax._transducer import tdt_loss, transducer_loss
from warpalign.jax._transducer_align import TransducerAlignment, TransducerPosteriors, transducer_align
from warpalign.jax._transducer_joint import transducer_loss_from_joint

__all__ = [
    "Annealing",
    "CTCAlignment",
    "DTWPath",
    "GromovResult",
    "JointWeights",
    "SinkhornDivergenceResult",
    "SinkhornResult",
    "SoftDTWAlignment",
    "TransducerAlignment",
    "TransducerPenalties",
    "TransducerPosteriors",
    "TransportPlan",
    "cdist_soft_dtw",
    "ctc_align",
    "ctc_loss",
    "ctc_posteriors",
    "dtw_path",
    "forward_sum_loss",
    "gromov_wasserstein",
    "monotonic_alignment_search",
    "sinkhorn",
    "sinkhorn_divergence",
    "soft_dtw",
    "soft_dtw_alignment",
    "soft_dtw_cost",
    "tdt_loss",
    "transducer_align",
    "transducer_loss",
    "transducer_loss_from_joint",
]
