"""Series in files: .npy, .npz, .csv, and the UCR/UEA archive's .tsv and .ts. Needs NumPy.

Contents of a file:

| suffix | as one series (N, D) | as a data set |
| --- | --- | --- |
| .npy | an array (N,) or (N, D) | an array (B, N) or (B, N, D) |
| .npz | its only array | its only array as in .npy, else one series each |
| .csv | a row per time step, a column per feature | a row per series of one feature |
| .tsv | ``FILE.tsv:INDEX`` | a row per series: its label, then its values |
| .ts | ``FILE.ts:INDEX`` | a row per series: features, then its label |

``FILE:INDEX`` selects one series of a data set, counted from 0. ``FILE.npz:NAME`` selects one array of an archive, and
``FILE.npz:NAME:INDEX`` one series of that array. ``FILE.csv.gz`` is decompressed; so is every other suffix with ``.gz``.
``-`` is standard input, whose format follows from its contents: gzip, .npy and .npz have magic numbers, .ts begins with ``@`` or
``#``, and anything else is .csv.

The separator of a .csv is the first of semicolon, tab and comma that occurs in its first row. With semicolons,
``1,5`` is 1.5. The first row contains column names if no cell is a number, or if the cells are 0, 1, 2, … as pandas numbers
columns. (One or two such cells are names only if the row below contains other values than integers.) A first column without a
name is then an index, as pandas writes it, and is skipped. `header` and `index_column` override the guess: pandas
writes the name of a named index, and, without a header, an index that looks like values.

Missing values (NaN, "?", empty) at the end of a series shorten it, as the archive pads. Elsewhere they are an error, and so
is infinity.

Every error in a file raises :class:`InputError`. Its message begins with the file and, if applicable, the line.
"""

from __future__ import annotations

from pathlib import Path

from warpalign.io import _read
from warpalign.io._series import Dataset, InputError, Layout, Series
from warpalign.io._write import write_array, write_arrays

__all__ = [
    "Dataset",
    "InputError",
    "Series",
    "read_dataset",
    "read_series",
    "write_array",
    "write_arrays",
]


def read_dataset(
    path: str | Path,
    *,
    header: bool | None = None,
    transpose: bool = False,
    index_column: bool | None = None,
) -> Dataset:
    """All series of a file.

    Args:
        path: a .npy, .npz, .csv, .ts or .tsv file, ``FILE.npz:NAME``, or ``-`` for stdin. The table above says how it is
            read. ``FILE:INDEX`` is a data set of one series.
        header: whether the first row of a .csv is column names; None: guessed. Other files have none.
        transpose: the table's columns are the series: a .csv, or an array of two axes. Of an array (B, D, N), channels first, the last
            two axes are exchanged.
        index_column: whether the first column of a .csv is an index, which is passed over; False: it holds values, with or without
            a name. None: it is an index if the first row is column names and has none for it.

    Raises:
        InputError: there is no such file, its contents are not series of numbers with equal numbers of features, or index_column is
            True for what is no .csv or has no other column.
    """
    return _read.dataset(path, Layout(header, transpose, index_column))


def read_series(
    source: str | Path,
    *,
    header: bool | None = None,
    transpose: bool = False,
    index_column: bool | None = None,
) -> Series:
    """One series (N, D), float64.

    Args:
        source: ``FILE``, or ``FILE:KEY`` with the index of a series in a data set or the name of an array in a .npz; ``-``
            is stdin.
        header: as for :func:`read_dataset`.
        transpose: the table has a row per feature and a column per time step. With an index, as for :func:`read_dataset`.
        index_column: as for :func:`read_dataset`.

    Raises:
        InputError: as :func:`read_dataset`, or no series has that key.
    """
    return _read.one(source, Layout(header, transpose, index_column)).series[0]
