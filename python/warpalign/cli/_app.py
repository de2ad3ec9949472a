"""The command group, and what becomes of errors: one line on stderr and an exit code."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

import click
import torch

from warpalign import __version__
from warpalign.cli._align import align
from warpalign.cli._barycenter import barycenter
from warpalign.cli._bench import bench
from warpalign.cli._cdist import cdist
from warpalign.cli._cluster import cluster
from warpalign.cli._ctc_align import ctc_align
from warpalign.cli._ctc_decode import ctc_decode
from warpalign.cli._explain import explain_command
from warpalign.cli._info import info
from warpalign.cli._transport import transport

WRONG_INPUT, FAILED, STOPPED = 2, 1, 130


@click.group(no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def warpalign() -> None:
    """Differentiable alignment of series, point sets and speech: soft-DTW, optimal transport and CTC on CPUs and GPUs.

    Series come from .npy, .npz, .csv, .ts and .tsv files, also with .gz, and from stdin, which is -. FILE:INDEX is one
    series of a data set, FILE.npz:NAME one array of an archive. What was read is said on stderr.
    """


for command in (
    align,
    cdist,
    barycenter,
    cluster,
    transport,
    ctc_align,
    ctc_decode,
    bench,
    explain_command,
    info,
):
    warpalign.add_command(command)


def run(arguments: Sequence[str] | None) -> int:
    """The exit code of a command line."""
    try:
        with warnings.catch_warnings():
            # The reader has said so of the file, with the command's remedy.
            warnings.filterwarnings("ignore", message=".* series of one time step with ")
            # Without standalone mode click raises what it would print in several lines.
            code = warpalign.main(args=arguments, prog_name="warpalign", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        return _say(error.format_message(), WRONG_INPUT)
    except (click.Abort, KeyboardInterrupt):
        return _say("stopped", STOPPED)
    except NotImplementedError as error:
        return _say(str(error), FAILED)
    except (ValueError, TypeError) as error:
        # The library's checks, and InputError: messages made for users. A bug of ours has a traceback to show.
        if not _is_check(error):
            raise
        return _say(str(error), WRONG_INPUT)
    except OSError as error:
        return _say(_of_file(error), FAILED)
    except (torch.OutOfMemoryError, MemoryError) as error:
        return _say(str(error) or type(error).__name__, FAILED)


def _is_check(error: Exception) -> bool:
    """Whether the error was raised by this package itself, not by something it called."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__", "")).startswith("warpalign")


def _of_file(error: OSError) -> str:
    """The file and what the system says about it, as far as they are known."""
    parts = [str(part) for part in (error.filename, error.strerror) if part]
    return ": ".join(parts) or str(error) or type(error).__name__


def _say(message: str, code: int) -> int:
    print(f"warpalign: {' '.join(message.split())}", file=sys.stderr)
    return code
