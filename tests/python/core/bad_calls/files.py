"""Files of series, and the command, which says in one line what is wrong and ends with exit code 2."""

from __future__ import annotations

import contextlib
import gzip
import io as streams
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from tests.python.bad_calls import BadCall, BadCalls, Given
from warpalign.cli import _app
from warpalign.io import InputError, read_dataset, read_series, write_array, write_arrays


class Refused(Exception):
    """What the command says."""


def command(*arguments: object) -> None:
    out, err = streams.StringIO(), streams.StringIO()
    errors: list[BaseException | None] = []

    def say(message: str, code: int, said: Callable[[str, int], int] = _app._say) -> int:
        errors.append(sys.exc_info()[1])
        return said(message, code)

    with (
        mock.patch.object(_app, "_say", say),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = _app.run([str(argument) for argument in arguments])
    said = err.getvalue().splitlines(keepends=True)
    assert (code, out.getvalue()) == (2, ""), (code, said)
    # Lines before the last one may say what was read, and nothing else.
    assert all(re.search(r": \d+ series of ", line) for line in said[:-1]), said
    line = said[-1]
    assert line.startswith("warpalign: ") and line.count("\n") == 1 and line.endswith("\n"), line
    raise Refused(line[len("warpalign: ") : -1]) from errors[0]


def ts(header: str, *rows: str) -> str:
    return "\n".join(["@timeStamps false", header, "@data", *rows, ""])


NO_ARRAY = (  # numpy's words
    "This file contains pickled (object) data. If you trust the file you can load it unsafely using the `allow_pickle=` "
    "keyword argument or `pickle.load()`."
)
NOTHING = "expected a series with at least one value, got none"
# Files that hold no series: name, contents, message after the path (and line).
SERIES: dict[str, tuple[str, str | bytes, str]] = {
    "a word": ("a.csv", "1,2\n3,four\n", ":2: expected a number in column 2, got 'four'"),
    "Python's underscore": ("a.csv", "1,2\n3,4_0\n", ":2: expected a number in column 2, got '4_0'"),
    "half a header": ("a.csv", "x,2\n", ":1: expected a number in column 1, got 'x'"),
    "semicolons": ("a.csv", "1;5\n2;5\n3\n", ":3: expected 2 columns, as in the first row, got 1"),
    "thousands": ("a.csv", "1;5\n2;5.000,1\n", ":2: expected a number in column 2, got '5.000,1'"),
    "no gzip": ("a.csv.gz", "1,2\n", ": cannot be decompressed (Not a gzipped file (b'1,'))"),
    "half a gzip": ("a.csv.gz", gzip.compress(b"1,2", mtime=0)[:-4], ": cannot be decompressed (Compressed file ended before the end-of-stream marker was reached)"),
    "only a header": ("a.csv", "x,y\n", ": " + NOTHING),
    "an empty file": ("a.csv", "", ": " + NOTHING),
    "a long row": ("a.csv", "1,2\n3,4\n5,6,7\n", ":3: expected 2 columns, as in the first row, got 3"),
    "infinity": ("a.csv", "1\ninf\n", ": expected finite values, got inf at time step 1, feature 0"),
    "a hole": ("a.csv", "1\nnan\n3\n", ": expected finite values, got nan at time step 1, feature 0"),
    "half a step": ("a.csv", "1,2\n3,\n", ": expected finite values, got nan at time step 1, feature 1"),
    "a quote": ("a.csv", '1,2\n"3,4\n', ": unexpected end of data"),
    "Latin-1": ("a.csv", b"1,2\n3,\xe9\n", ": expected text in UTF-8, got byte 0xe9"),
    "no numpy file": ("a.npy", b"hello", ": " + NO_ARRAY),
    "gzip": ("a.npz", gzip.compress(b"1", mtime=0), ": " + NO_ARRAY),
    "half an archive": ("a.npz", b"PK\x03\x04", ": cannot be read (BadZipFile: File is not a zip file)"),
    "an empty numpy file": ("a.npy", b"", ": No data left in file"),
    "a data set": ("a.tsv", "1\t2\n", ": expected one series, got a data set; {}:INDEX picks one, counted from 0"),
    "another suffix": ("a.txt", "1", ": expected a name that ends in .npy, .npz, .csv, .ts or .tsv, or in one of these and .gz"),
}  # fmt: skip
DATASETS: dict[str, tuple[str, str, str]] = {
    "nothing": ("a.csv", "\n\n", ": expected at least one series, got none"),
    "an empty series": ("a.csv", "1,2\nnan,nan\n", ":2: " + NOTHING),
    "a hole": ("a.csv", "1,2\n1,,3\n", ":2: expected finite values, got nan at time step 1, feature 0"),
    "spaces for tabs": ("a.tsv", "1 2 3\n", ":1: " + NOTHING),
    "a word": ("a.tsv", "1\t2\n1\tx\n", ":2: expected a number in column 2, got 'x'"),
    "no @data": ("a.ts", "@timeStamps false\n", ": expected a line @data, got none"),
    "early data": ("a.ts", "1,2:1\n", ":1: expected a line that begins with @ or #, as @data has not come yet"),
    "time stamps": ("a.ts", "@timeStamps true\n", ":1: expected @timeStamps false; time stamps are not supported"),
    "a flag": ("a.ts", "@timeStamps maybe\n", ":1: expected @timestamps true or false, got 'maybe'"),
    "dimensions": ("a.ts", "@dimensions none\n", ":1: expected @dimensions with a number of features, got 'none'"),
    "a label": ("a.ts", ts("@classLabel true a b", "1,2:a", "1,2:c"), ":5: expected a class label of a, b at the end, got 'c'"),
    "features": ("a.ts", ts("@dimensions 2", "1,2:3,4", "1,2"), ":5: expected 2 features, as @dimensions says, got 1"),
    "lengths": ("a.ts", ts("@classLabel false", "1,2:3"), ":4: expected features of equal length, got 2, 1"),
    "a number": ("a.ts", ts("@classLabel false", "1,2:3,x"), ":4: feature 1: expected a number in column 2, got 'x'"),
    "unequal features": ("a.ts", ts("@classLabel false", "1,2:3,4", "1,2"), ": expected 2 features in every series, as in the first, got 1 in series 1"),
    "no case": ("a.ts", ts("@classLabel false"), ": expected at least one series, got none"),
}  # fmt: skip
ARRAYS: dict[str, tuple[np.ndarray[Any, Any], str]] = {
    "1 axis": (np.zeros(3), "expected series of shape (B, N) or (B, N, D), got (3,)"),
    "4 axes": (np.zeros((2, 3, 4, 5)), "expected series of shape (B, N) or (B, N, D), got (2, 3, 4, 5)"),
    "complex": (np.zeros((2, 3), dtype=complex), "series 0: expected real numbers, got dtype complex128"),
    "text": (np.array([["a"]]), "series 0: expected real numbers, got dtype <U1"),
    "no steps": (np.zeros((2, 0)), "series 0: " + NOTHING),
    "no features": (np.zeros((2, 3, 0)), "series 0: " + NOTHING),
}


def saved(given: Given, name: str, array: np.ndarray[Any, Any]) -> Path:
    np.save(given.folder / name, array)
    return given.folder / name


def archive(given: Given, name: str = "a.npz", **arrays: np.ndarray[Any, Any]) -> Path:
    path = given.folder / "archive.npz"
    np.savez(path, **arrays)
    return path.rename(given.folder / name)


def folder(given: Given, name: str) -> Path:
    (given.folder / name).mkdir()
    return given.folder / name


def xy(g: Given) -> Path:
    return archive(g, x=np.zeros(3), y=np.zeros(3))


def without_stdin(given: Given) -> None:
    with mock.patch.object(sys, "stdin", None):
        read_series("-")


KEYS: dict[str, tuple[Callable[[Given], object], str]] = {
    "no key in an archive": (lambda g: read_series(xy(g)), "FOLDER/a.npz: expected one array, or FOLDER/a.npz:NAME with one of x, y"),
    "another key": (lambda g: read_series(f"{xy(g)}:z"), "FOLDER/a.npz: expected an array named x, y, got z"),
    "an index too high": (lambda g: read_series(f"{g.file('a.tsv', '1	2')}:1"), "FOLDER/a.tsv: expected an index from 0 to 0, got '1'"),
    "a negative index": (lambda g: read_series(f"{g.file('a.tsv', '1	2')}:-1"), "FOLDER/a.tsv: expected an index from 0 to 0, got '-1'"),
    "no index": (lambda g: read_series(f"{g.file('a.tsv', '1	2')}:x"), "FOLDER/a.tsv: expected an index from 0 to 0, got 'x'"),
    "no file": (lambda g: read_series(g.folder / "none.csv"), "FOLDER/none.csv: no such file"),
    "no file with an index": (lambda g: read_series(f"{g.folder}/none.csv:1"), "FOLDER/none.csv: no such file"),
    "a folder": (lambda g: read_series(folder(g, "a.csv")), "FOLDER/a.csv: Is a directory"),
    "three axes": (lambda g: read_series(saved(g, "a.npy", np.zeros((2, 3, 4)))), "FOLDER/a.npy: expected one series of shape (N,) or (N, D), got (2, 3, 4)"),
    "an archive as an array": (lambda g: read_series(archive(g, "a.npy", x=np.zeros(3))), "FOLDER/a.npy: expected a .npy file, got a .npz archive"),
    "an array as an archive": (lambda g: read_series(saved(g, "b.npy", np.zeros(3)).rename(g.folder / "a.npz")), "FOLDER/a.npz: expected a .npz archive, got a .npy file"),
    "a list that is to be transposed": (lambda g: read_series(saved(g, "a.npy", np.zeros(3)), transpose=True), "FOLDER/a.npy: expected two or three axes to transpose, got shape (3,)"),
    "an archive's cases to be transposed": (lambda g: read_dataset(g.file("a.tsv", "1	2"), transpose=True), "FOLDER/a.tsv: expected a table to transpose, .csv or .npy, got .tsv"),
    "an index column of an array": (lambda g: read_series(saved(g, "a.npy", np.zeros((3, 2))), index_column=True), "FOLDER/a.npy: expected a .csv, as other files have no index column, got .npy: leave out --index-column (index_column=True)"),
    "an index column alone": (lambda g: read_dataset(g.file("a.csv", "x\n0\n1\n"), index_column=True), "FOLDER/a.csv:1: expected values next to the index column, got one column: leave out --index-column (index_column=True)"),
    "dates in the first column": (lambda g: read_series(g.file("a.csv", "day,x\n2026-01-01,1\n2026-01-02,2\n")), "FOLDER/a.csv:2: expected a number in column 1, got '2026-01-01': if the first column is an index, --index-column (index_column=True) passes over it"),
    "two keys": (lambda g: read_series(f"{g.file('a.tsv', '1	2')}:0:0"), "FOLDER/a.tsv: expected an index from 0 to 0, got '0:0'"),
    "an index of a named array": (lambda g: read_series(f"{archive(g, x=np.zeros((2, 3)), y=np.zeros(3))}:x:2"), "FOLDER/a.npz:x: expected an index from 0 to 1, got '2'"),
    "no stdin": (without_stdin, "stdin: expected a file or a pipe, got none"),
    "an empty archive": (lambda g: read_series(archive(g)), "FOLDER/a.npz: expected at least one array, got none"),
}  # fmt: skip


# The command: a line of a.csv (7, 2), b.npy (9, 2), and of the data set waves.npy (4, 8), one feature.
WAVES = "waves.npy"
COMMANDS: dict[str, tuple[str, str]] = {
    "no command": ("", "Missing command."),
    "an unknown command": ("aling", "No such command 'aling'. Did you mean 'align'?"),
    "align: one file": ("align a.csv", "Missing argument 'B'."),
    "align: features": ("align a.csv one.csv", "FOLDER/one.csv: expected 2 features, as FOLDER/a.csv has, got 1"),
    "align: no file": ("align a.csv none.csv", "FOLDER/none.csv: no such file"),
    "align: a negative gamma": ("align a.csv b.npy --gamma -1", "gamma: expected a finite number >= 0, got -1.0"),
    "align: gamma NaN": ("align a.csv b.npy --gamma nan", "gamma: expected a finite number >= 0, got nan"),
    "align: gamma a word": ("align a.csv b.npy --gamma one", "Invalid value for '--gamma': 'one' is not a valid float."),
    "align: a band without a path": ("align a.csv b.npy --bandwidth 1 --band abs", "band: expected a radius that leaves a path between the pair's ends, got 1"),
    "align: a slope without its band": ("align a.csv b.npy --max-slope 3", 'max_slope: expected None without band="itakura", got 3.0'),
    "align: a band without its radius": ("align a.csv b.npy --band slanted", "--band slanted: expected --bandwidth too"),
    "align: a negative bandwidth": ("align a.csv b.npy --bandwidth -1", "Invalid value for '--bandwidth': -1 is not in the range x>=0."),
    "align: an unknown band": ("align a.csv b.npy --band round", "Invalid value for '--band': 'round' is not one of 'sakoe_chiba', 'abs', 'slanted', 'itakura'."),
    "align: an unknown cost": ("align a.csv b.npy --cost l2", "Invalid value for '--cost': 'l2' is not one of 'sqeuclidean', 'euclidean', 'l1', 'cosine', 'huber'."),
    "align: a negative penalty": ("align a.csv b.npy --step-penalty -1", "step_penalty: expected a finite number >= 0, got -1.0"),
    "align: an output of another kind": ("align a.csv b.npy -o e.txt", "Invalid value for '-o' / '--output': expected a name that ends in .npy or .csv, got 'FOLDER/e.txt'"),
    "align: an output nowhere": ("align a.csv b.npy -o nowhere/e.npy", "Invalid value for '-o' / '--output': FOLDER/nowhere is not a folder"),
    "align: a folder as output": ("align a.csv b.npy -o folder.npy", "Invalid value for '-o' / '--output': FOLDER/folder.npy is a folder"),
    "align: a plot of another kind": ("align a.csv b.npy --plot e.pdf", "Invalid value for '--plot': expected a name that ends in .png, got 'FOLDER/e.pdf'"),
    "cluster: one file written twice": ("cluster waves.npy -k 2 -o l.npy --centers l.npy", "Invalid value for '--centers': FOLDER/l.npy is written twice"),
    "align: twice stdin": ("align - -", "B: expected a file, because A is stdin, got -"),
    "align: an index column of no .csv": ("align a.csv b.npy --index-column", "FOLDER/b.npy: expected a .csv, as other files have no index column, got .npy: leave out --index-column (index_column=True)"),
    "transport: an index column alone": ("transport one.csv one.csv --index-column", "FOLDER/one.csv:1: expected values next to the index column, got one column: leave out --index-column (index_column=True)"),
    "align: two scales": ("align a.csv b.npy --standardize --min-max", "--min-max: expected one of --standardize and --min-max, got both"),
    "align: an unknown device": ("align a.csv b.npy --device tpu", "Invalid value for '--device': expected cpu, cuda or cuda:N, got 'tpu'"),
    "align: no such device": ("align a.csv b.npy --device cuda:99", "Invalid value for '--device': expected a device of this machine, which has DEVICES, got 'cuda:99'"),
    "align: an unknown dtype": ("align a.csv b.npy --dtype int", "Invalid value for '--dtype': 'int' is not one of 'float32', 'float64'."),
    "align: an unknown option": ("align a.csv b.npy --bandwith 3", "No such option '--bandwith'. (Did you mean one of: '--band', '--bandwidth'?)"),
    "transport: features": ("transport a.csv one.csv", "FOLDER/one.csv: expected 2 features, as FOLDER/a.csv has, got 1"),
    "cdist: features": ("cdist waves.npy wide.npy", "FOLDER/wide.npy: expected 1 features, as FOLDER/waves.npy has, got 3"),
    "cdist: no file": ("cdist none.npy", "FOLDER/none.npy: no such file"),
    "cdist: a negative gamma": ("cdist waves.npy --gamma -1", "gamma: expected a finite number >= 0, got -1.0"),
    "cdist: a band without a path": ("cdist waves.npy long.npy --bandwidth 1 --band abs", "band: expected a radius that leaves a path between the pair's ends, got 1"),
    "barycenter: a slope without its band": ("barycenter waves.npy --max-slope 3", 'max_slope: expected None without band="itakura", got 3.0'),
    "cluster: a negative penalty": ("cluster waves.npy -k 2 --step-penalty -1", "step_penalty: expected a finite number >= 0, got -1.0"),
    "barycenter: gamma 0": ("barycenter waves.npy --gamma 0", "gamma: expected a finite number > 0, got 0.0"),
    "barycenter: no steps": ("barycenter waves.npy --size 0", "Invalid value for '--size': 0 is not in the range x>=1."),
    "barycenter: an unknown method": ("barycenter waves.npy --method sgd", "Invalid value for '--method': 'sgd' is not one of 'lbfgs', 'adam', 'dba'."),
    "barycenter: negative iterations": ("barycenter waves.npy --max-iter -1", "Invalid value for '--max-iter': -1 is not in the range x>=0."),
    "cluster: no number of clusters": ("cluster waves.npy", "Missing option '-k' / '--clusters'."),
    "cluster: too many clusters": ("cluster waves.npy -k 5", "-k: expected at most the 4 series of FOLDER/waves.npy, got 5"),
    "cluster: too large a seed": ("cluster waves.npy -k 2 --seed 4294967296", "Invalid value for '--seed': 4294967296 is not in the range 0<=x<=4294967295."),
    "cluster: no iterations": ("cluster waves.npy -k 2 --max-iter 0", "Invalid value for '--max-iter': 0 is not in the range x>=1."),
    "cluster: centers of another kind": ("cluster waves.npy -k 2 --centers c.csv", "Invalid value for '--centers': expected a name that ends in .npy, got 'FOLDER/c.csv'"),
    "bench: no pairs": ("bench --pairs 0", "Invalid value for '--pairs': 0 is not in the range x>=1."),
    "bench: gamma NaN": ("bench --gamma nan", "gamma: expected a finite number >= 0, got nan"),
    "info: an argument": ("info now", "Got unexpected extra argument (now)"),
}  # fmt: skip


def run_command(given: Given, line: str) -> None:
    """Words with a point are files of the folder."""
    np.savetxt(given.folder / "a.csv", np.ones((7, 2)), delimiter=",")
    given.file("one.csv", "1\n2\n")
    saved(given, "b.npy", np.zeros((9, 2)))
    saved(given, WAVES, np.arange(32.0).reshape(4, 8) % 5)
    saved(given, "wide.npy", np.zeros((4, 8, 3)))
    saved(given, "long.npy", np.zeros((1, 10)))
    folder(given, "folder.npy")
    before = sorted(given.folder.iterdir())
    try:
        command(*(given.folder / word if "." in word else word for word in line.split()))
    finally:
        assert sorted(given.folder.iterdir()) == before  # nothing is written


def devices() -> str:
    import torch

    return ", ".join(["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))])


CALLS: BadCalls = {
    **{
        f"{function}: {what}": BadCall(
            lambda g, r=read, n=name, c=contents: r(g.file(n, c)),
            InputError,
            f"FOLDER/{name}" + message.replace("{}", f"FOLDER/{name}"),
        )
        for function, read, cases in (
            ("io.read_series", read_series, SERIES),
            ("io.read_dataset", read_dataset, DATASETS),
        )
        for what, (name, contents, message) in cases.items()
    },
    **{
        f"io.read_dataset: an array of {what}": BadCall(
            lambda g, a=array: read_dataset(saved(g, "a.npy", a)), InputError, f"FOLDER/a.npy: {message}"
        )
        for what, (array, message) in ARRAYS.items()
    },
    **{f"io.read_series: {what}": BadCall(call, InputError, message) for what, (call, message) in KEYS.items()},
    "io.write_array: another suffix": BadCall(
        lambda g: write_array(g.folder / "a.txt", np.zeros(3)), ValueError,
        "FOLDER/a.txt: expected a name that ends in .npy or .csv",
    ),
    "io.write_array: three axes": BadCall(
        lambda g: write_array(g.folder / "a.csv", np.zeros((1, 2, 3))), ValueError,
        "FOLDER/a.csv: expected at most 2 axes for .csv, got shape (1, 2, 3)",
    ),
    "io.write_array: no such folder": BadCall(
        lambda g: write_array(g.folder / "nowhere" / "a.npy", np.zeros(3)), FileNotFoundError,
        "[Errno 2] No such file or directory: 'FOLDER/nowhere/a.npy'",
    ),
    "io.write_arrays: another suffix": BadCall(
        lambda g: write_arrays(g.folder / "a.npy", {}), ValueError, "FOLDER/a.npy: expected a name that ends in .npz"
    ),
    **{
        f"warpalign: {what}": BadCall(
            lambda g, line=line: run_command(g, line), Refused, message.replace("DEVICES", devices())
        )
        for what, (line, message) in COMMANDS.items()
    },
}  # fmt: skip
