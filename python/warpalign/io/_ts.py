"""The UEA archive's .ts files: https://www.aeon-toolkit.org/en/stable/examples/datasets/data_loading.html"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warpalign.io._series import Dataset, InputError, Series, cut
from warpalign.io._text import lines, number


@dataclass
class _TsHeader:
    labelled: bool = False
    labels: frozenset[str] = frozenset()
    dimensions: int | None = None


def ts_dataset(contents: bytes, name: str) -> Dataset:
    """A row per series: its features, then its label."""
    header, in_data = _TsHeader(), False
    labels, series = [], []
    for line, raw in lines(contents, name):
        text, where = raw.strip(), f"{name}:{line}"
        if text.startswith("#"):
            continue
        if in_data:
            one, label = _ts_case(text, header, where)
            series.append(one)
            labels.append(label)
        elif not text.startswith("@"):
            raise InputError(f"{where}: expected a line that begins with @ or #, as @data has not come yet")
        elif text.lower() == "@data":
            in_data = True
        else:
            _ts_tag(text[1:].split(), header, where)
    if not in_data:
        raise InputError(f"{name}: expected a line @data, got none")
    return Dataset(series, labels if header.labelled else None)


def _ts_tag(words: list[str], header: _TsHeader, where: str) -> None:
    """Takes up what one line of the header says; tags that only describe the file are passed over."""
    tag, values = (words[0].lower() if words else ""), words[1:]
    if tag in ("classlabel", "targetlabel"):
        if _ts_flag(tag, values, where):  # a file may say true of one tag and false of the other
            header.labelled = True
            header.labels = frozenset(values[1:])
    elif tag == "timestamps":
        if _ts_flag(tag, values, where):
            raise InputError(f"{where}: expected @timeStamps false; time stamps are not supported")
    elif tag in ("dimensions", "dimension"):
        if len(values) != 1 or not values[0].isdecimal() or int(values[0]) < 1:
            raise InputError(f"{where}: expected @{tag} with a number of features, got {' '.join(values)!r}")
        header.dimensions = int(values[0])


def _ts_flag(tag: str, values: list[str], where: str) -> bool:
    if not values or values[0].lower() not in ("true", "false"):
        raise InputError(f"{where}: expected @{tag} true or false, got {' '.join(values)!r}")
    return values[0].lower() == "true"


def _ts_case(text: str, header: _TsHeader, where: str) -> tuple[Series, str]:
    features, label = text.split(":"), ""
    if header.labelled:
        label = features.pop().strip()
        if header.labels and label not in header.labels:
            raise InputError(
                f"{where}: expected a class label of {', '.join(sorted(header.labels))} at the end, got {label!r}"
            )
    if header.dimensions is not None and len(features) != header.dimensions:
        raise InputError(
            f"{where}: expected {header.dimensions} features, as @dimensions says, got {len(features)}"
        )
    columns = [
        [
            number(cell, f"{where}: feature {feature}", column)
            for column, cell in enumerate(cells.split(","), 1)
        ]
        for feature, cells in enumerate(features)
    ]
    sizes = {len(column) for column in columns}
    if len(sizes) > 1:
        raise InputError(
            f"{where}: expected features of equal length, got {', '.join(str(len(column)) for column in columns)}"
        )
    return cut(np.array(columns, dtype=np.float64).reshape(len(columns), -1).T, where), label
