"""Drop-in replacements for twenty packages: to migrate, change the import.

| instead of | import from |
| --- | --- |
| softdtw_cuda (softdtw-cuda-torch) | :mod:`warpalign.compat.softdtw_cuda` |
| soft_dtw_cuda.py (Maghoumi) | :mod:`warpalign.compat.soft_dtw_cuda` |
| pysdtw | :mod:`warpalign.compat.pysdtw` |
| tslearn.metrics, tslearn.barycenters | :mod:`warpalign.compat.tslearn` |
| torch.nn.functional.ctc_loss, torch.nn.CTCLoss | :mod:`warpalign.compat.torch` |
| torchaudio's rnnt_loss, RNNTLoss, forced_align, merge_tokens, TokenSpan | :mod:`warpalign.compat.torchaudio` |
| monotonic_align (VITS) | :mod:`warpalign.compat.monotonic_align` |
| monotonic_alignment_search (Glow-TTS, Coqui) | :mod:`warpalign.compat.monotonic_alignment_search` |
| warp_rnnt | :mod:`warpalign.compat.warp_rnnt` |
| fast_rnnt | :mod:`warpalign.compat.fast_rnnt` |
| k2's transducer losses | :mod:`warpalign.compat.k2` |
| apex.contrib.transducer | :mod:`warpalign.compat.apex` |
| rnnt_ext.transducer.loss, rnnt_ext.custom_lstm (CAIMAN-ASR) | :mod:`warpalign.compat.caiman` |
| haste_pytorch's LSTM, LayerNormLSTM | :mod:`warpalign.compat.haste` |
| NeMo's RNNTLossNumba, MultiblankRNNTLossNumba, TDTLossNumba, ForwardSumLoss | :mod:`warpalign.compat.nemo` |
| transformers.loss.loss_rnnt, loss_tdt | :mod:`warpalign.compat.transformers` |
| ot (POT): entropic solvers, linear and Gromov-Wasserstein | :mod:`warpalign.compat.pot` |
| torchgw's sampled_gw | :mod:`warpalign.compat.torchgw` |
| geomloss' SamplesLoss("sinkhorn") | :mod:`warpalign.compat.geomloss` |
| flash_sinkhorn's SamplesLoss | :mod:`warpalign.compat.flash_sinkhorn` |

Names, signatures, defaults, shapes, the cells of a band, and the meaning of ``bandwidth=0`` are those of the originals.
All soft-DTW functions differ from the originals as follows: costs are computed from differences, in the precision of the input; gradients
are finite wherever the value is; a pair without any path has value inf and gradient 0; float16 and bfloat16 are accepted, with
results in float32; ``use_cuda`` warns if it contradicts the device of the tensors, and no data are moved to another device.
"""

from importlib import import_module
from types import ModuleType

__all__ = [
    "apex",
    "caiman",
    "fast_rnnt",
    "flash_sinkhorn",
    "geomloss",
    "haste",
    "k2",
    "monotonic_align",
    "monotonic_alignment_search",
    "nemo",
    "pot",
    "pysdtw",
    "soft_dtw_cuda",
    "softdtw_cuda",
    "torch",
    "torchaudio",
    "torchgw",
    "transformers",
    "tslearn",
    "warp_rnnt",
]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return import_module(f"warpalign.compat.{name}")
    raise AttributeError(f"module 'warpalign.compat' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
