"""Series in files: what every format means, every fault with the file and the line, and writing all or nothing."""

from __future__ import annotations

import gzip
import io as streams
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpalign.io import (
    InputError,
    read_dataset,
    read_series,
    write_array,
    write_arrays,
)
from warpalign.io._write import atomic_path

TS = """# two features, unequal lengths
@problemName Toy
@timeStamps false
@missing true
@univariate false
@dimensions 2
@equalLength false
@classLabel true up down
@data
1,2,3:4,5,6:up
1,2:3,4.5:down

-1e3,?:2,NaN:up
"""


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_csv_is_one_series_of_several_features(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "\ufefftime,value\r\n1, 2\r\n\r\n3,4e-1\r\n")
    assert read_series(path).tolist() == [[1, 2], [3, 0.4]]
    assert read_series(str(path)).dtype == np.float64


def test_csv_is_a_data_set_of_one_feature(tmp_path: Path) -> None:
    data = read_dataset(write(tmp_path / "a.csv", "1,2,3\n4,5,\n6,,NaN\n"))
    assert [one.tolist() for one in data.series] == [[[1], [2], [3]], [[4], [5]], [[6]]]
    assert data.labels is None


def test_pandas_index_is_no_feature(tmp_path: Path) -> None:
    """Its first column has no name; columns that have none are numbered."""
    assert read_series(write(tmp_path / "a.csv", ",x,y\n0,1,3\n1,2,4\n")).tolist() == [[1, 3], [2, 4]]
    data = read_dataset(write(tmp_path / "b.csv", ",0,1\na,5.0,6.0\nb,7.0,\n"))
    assert [one.tolist() for one in data.series] == [[[5], [6]], [[7]]]
    with pytest.raises(InputError, match="b.csv:3: expected a number in column 2, got 'x'"):
        read_series(write(tmp_path / "b.csv", ",a,b\n0,1,2\n1,x,3\n"))
    with pytest.raises(InputError, match="c.csv:1: expected finite values, got nan at time step 0"):
        read_dataset(write(tmp_path / "c.csv", ",2,3\n4,5,6\n"))  # no names


def test_ts_with_targets_of_a_regression(tmp_path: Path) -> None:
    head = "@targetLabel true\n@classLabel false\n@data\n"
    data = read_dataset(write(tmp_path / "a.ts", head + "1,2,3:0.5\n"))
    assert data.series[0].ravel().tolist() == [1, 2, 3] and data.labels == ["0.5"]


def test_tsv_has_labels_in_front(tmp_path: Path) -> None:
    path = write(tmp_path / "Toy_TRAIN.tsv", "1\t0.5\t-1\t2\n-1\t7\t8\tNaN\n")
    data = read_dataset(path)
    assert [one.ravel().tolist() for one in data.series] == [[0.5, -1, 2], [7, 8]]
    assert data.labels == ["1", "-1"]
    assert read_series(f"{path}:1").tolist() == [[7], [8]]


def test_ts_has_features_and_labels(tmp_path: Path) -> None:
    data = read_dataset(write(tmp_path / "Toy.ts", TS))
    assert [one.tolist() for one in data.series] == [
        [[1, 4], [2, 5], [3, 6]],
        [[1, 3], [2, 4.5]],
        [[-1000, 2]],
    ]
    assert data.labels == ["up", "down", "up"]


def test_ts_without_labels(tmp_path: Path) -> None:
    data = read_dataset(write(tmp_path / "Toy.ts", "@classLabel false\n@data\n1,2\n3\n"))
    assert [one.ravel().tolist() for one in data.series] == [[1, 2], [3]]
    assert data.labels is None


def test_the_data_of_tslearn(tmp_path: Path) -> None:
    """A real archive file: the one that tslearn ships, read by tslearn and by us."""
    datasets = pytest.importorskip("tslearn.datasets")
    x, y, _, _ = datasets.CachedDatasets().load_dataset("Trace")
    rows = [
        "\t".join([str(label), *map(repr, one.ravel().tolist())]) for one, label in zip(x, y, strict=True)
    ]
    data = read_dataset(write(tmp_path / "Trace_TRAIN.tsv", "\n".join(rows)))
    assert np.array_equal(np.stack(data.series), x)
    assert data.labels == [str(label) for label in y]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "uint8", "bool"])
def test_npy(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "a.npy"
    array = np.arange(12).reshape(2, 3, 2).astype(dtype)
    np.save(path, array)
    data = read_dataset(path)
    assert np.array_equal(np.stack(data.series), array.astype(np.float64))
    assert np.array_equal(read_series(f"{path}:1"), array[1].astype(np.float64))
    np.save(path, array[:, 0, :])
    assert read_series(path).shape == (2, 2)
    assert [one.shape for one in read_dataset(path).series] == [(2, 1), (2, 1)]
    np.save(path, array[0, :, 0])
    assert read_series(path).shape == (3, 1)


def test_npz(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.zeros((4, 2)), y=np.ones((3, 2)))
    assert read_series(f"{path}:y").tolist() == np.ones((3, 2)).tolist()
    assert [one.shape for one in read_dataset(path).series] == [(4, 2), (3, 2)]
    assert read_series(f"{path}:0").shape == (4, 2)
    assert [one.shape for one in read_dataset(f"{path}:x").series] == [(2, 1)] * 4
    np.savez(path, z=np.zeros((4, 5, 2)), y=np.ones(3))
    assert [one.shape for one in read_dataset(f"{path}:z").series] == [(5, 2)] * 4
    assert read_series(f"{path}:z:3").shape == (5, 2)
    np.savez(path, np.zeros((4, 5, 2)))
    assert len(read_dataset(path).series) == 4
    np.savez_compressed(path, np.zeros((4, 2)))
    assert read_series(path).shape == (4, 2)


def test_a_name_with_a_colon_is_a_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a:1.csv", "1,2\n")
    assert read_series(path).tolist() == [[1, 2]]


def valid_bytes(suffix: str, folder: Path) -> bytes:
    path = folder / f"valid{suffix}"
    if suffix == ".npy":
        np.save(path, np.arange(6.0).reshape(2, 3))
    elif suffix == ".npz":
        np.savez(path, a=np.arange(6.0).reshape(2, 3), b=np.zeros(4))
    else:
        path.write_text({".csv": "x,y\n1,2\n3,\n", ".tsv": "1\t2\t3\n2\t4\tNaN\n", ".ts": TS}[suffix])
    return path.read_bytes()


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".ts", ".npy", ".npz"])
def test_no_contents_raise_anything_else(suffix: str, tmp_path: Path) -> None:
    """Random bytes, and files of which some bytes were changed, cut out or repeated."""
    valid = valid_bytes(suffix, tmp_path)
    path = tmp_path / f"any{suffix}"
    edits = st.lists(
        st.tuples(st.integers(0, len(valid)), st.integers(0, 6), st.binary(max_size=6)),
        min_size=1,
        max_size=4,
    )
    words = st.sampled_from(
        [
            "1",
            "-2e3",
            "nan",
            "?",
            ",",
            ":",
            "\t",
            "\n",
            "inf",
            "@data\n",
            "@classLabel true a\n",
            "a",
            '"',
            "\0",
        ]
    )
    count = {"read": 0, "refused": 0}

    @settings(max_examples=300, deadline=None, derandomize=True, database=None)
    @given(
        st.one_of(
            st.binary(max_size=60), st.lists(words, max_size=30).map(lambda w: "".join(w).encode()), edits
        )
    )
    def run(contents: Any) -> None:
        if isinstance(contents, list):
            edited = valid
            for at, cut, new in contents:
                edited = edited[:at] + new + edited[at + cut :]
            contents = edited
        path.write_bytes(contents)
        for read in (read_dataset, read_series):
            try:
                read(path)
                count["read"] += 1
            except InputError as error:
                count["refused"] += 1
                assert str(error).startswith(str(path)) and "\n" not in str(error)

    run()
    # A changed archive is found out by its checksums.
    assert count["refused"] > 5 and (suffix == ".npz" or count["read"] > 5), count


def test_what_is_written_is_what_was_given(tmp_path: Path) -> None:
    array = np.random.default_rng(0).normal(size=(5, 3))
    for suffix in (".npy", ".csv"):
        write_array(tmp_path / f"a{suffix}", array)
        assert np.array_equal(read_series(tmp_path / f"a{suffix}"), array)
    write_arrays(tmp_path / "a.npz", {"x": array})
    assert np.array_equal(read_series(tmp_path / "a.npz"), array)
    write_array(tmp_path / "labels.csv", np.array([0, 2, 1]))
    assert (tmp_path / "labels.csv").read_text() == "0\n2\n1\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.npy", "a.npz", "labels.csv"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npy", "old")
    with pytest.raises(KeyboardInterrupt), atomic_path(path) as beside:
        beside.write_text("half")
        assert beside.parent == path.parent
        assert path.read_text() == "old"
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    write_array(tmp_path / "a.npy", np.zeros(3))
    plain = write(tmp_path / "plain", "")
    assert os.stat(tmp_path / "a.npy").st_mode == os.stat(plain).st_mode


# Separators, headers, compression, stdin.


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ("0,1,2\n1.5,2,3\n", ["0", "1", "2"], [[1.5, 2, 3]]),
        ("0,1,2\n1,2,3\n", ["0", "1", "2"], [[1, 2, 3]]),
        (",0\n0,7\n1,8\n", ["0"], [[7], [8]]),
        ("0\n0.5\n0.7\n", ["0"], [[0.5], [0.7]]),
        ("0,1\n2,3\n", None, [[0, 1], [2, 3]]),  # integers all through: a series may begin so
        ("0\n1\n", None, [[0], [1]]),
        ("0,1,2\n", None, [[0, 1, 2]]),  # names of nothing
        ("1,2,3\n4.5,5,6\n", None, [[1, 2, 3], [4.5, 5, 6]]),
        ("0.0,1.0,2.0\n3,4,5\n", None, [[0, 1, 2], [3, 4, 5]]),
        ("a;b\n1,5;2\n-3;4e1\n", ["a", "b"], [[1.5, 2], [-3, 40]]),
        ("1;2\n3;4.5\n", None, [[1, 2], [3, 4.5]]),
        ("x\ty\n1\t2\n", ["x", "y"], [[1, 2]]),
        ('"a;b",c\n1,2\n', ["a;b", "c"], [[1, 2]]),
    ],
)
def test_header_and_separator_of_a_csv(
    tmp_path: Path, text: str, names: list[str] | None, rows: list[list[float]]
) -> None:
    path = write(tmp_path / "a.csv", text)
    assert read_series(path).tolist() == rows
    assert read_dataset(path).columns == names
    assert [one.ravel().tolist() for one in read_dataset(path).series] == rows


def test_header_where_it_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "0,1\n2,3\n")
    assert read_series(path, header=True).tolist() == [[2, 3]]
    path = write(tmp_path / "a.csv", "0,1,2\n1.5,2,3\n")
    assert read_series(path, header=False).tolist() == [[0, 1, 2], [1.5, 2, 3]]


def test_pandas_files_come_back(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    table = np.random.default_rng(0).normal(size=(5, 4))
    for options in ({"index": False}, {}, {"sep": ";", "decimal": ",", "index": False}, {"sep": "\t"}):
        for path in (tmp_path / "a.csv", tmp_path / "a.csv.gz"):
            pandas.DataFrame(table).to_csv(path, **options)
            assert np.array_equal(read_series(path), table)


def test_transposed_columns_of_unequal_length(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "u,v\n1,2\n3,\n5\n")
    data = read_dataset(path, transpose=True)
    assert [one.ravel().tolist() for one in data.series] == [[1, 3, 5], [2]] and data.columns == ["u", "v"]
    with pytest.raises(InputError, match="a.csv: column 2: expected a number in column 2, got 'x'"):
        read_dataset(write(tmp_path / "a.csv", "1,2\n3,x\n"), transpose=True)


def one_array_of(contents: bytes, suffix: str, folder: Path) -> bytes:
    """The contents, or a valid .npz of one array, where several differ in their features."""
    if suffix == ".npz":
        np.savez(folder / "valid.npz", np.arange(6.0).reshape(2, 3))
        return (folder / "valid.npz").read_bytes()
    return contents


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".ts", ".npy", ".npz"])
def test_gzip(tmp_path: Path, suffix: str) -> None:
    contents = one_array_of(valid_bytes(suffix, tmp_path), suffix, tmp_path)
    (tmp_path / f"b{suffix}").write_bytes(contents)
    (tmp_path / f"b{suffix}.gz").write_bytes(gzip.compress(contents))
    plain, packed = (read_dataset(tmp_path / f"b{suffix}{end}") for end in ("", ".gz"))
    assert plain.labels == packed.labels
    assert all(np.array_equal(a, b) for a, b in zip(plain.series, packed.series, strict=True))
    assert np.array_equal(read_series(tmp_path / f"b{suffix}.gz:0"), plain.series[0])


@pytest.mark.parametrize("suffix", [".csv", ".ts", ".npy", ".npz"])
def test_stdin_is_known_by_its_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    contents = one_array_of(valid_bytes(suffix, tmp_path), suffix, tmp_path)
    plain = read_dataset(tmp_path / f"valid{suffix}")
    for sent in (contents, gzip.compress(contents)):
        monkeypatch.setattr(sys, "stdin", streams.TextIOWrapper(streams.BytesIO(sent)))
        found = read_dataset("-")
        assert found.labels == plain.labels
        assert all(np.array_equal(a, b) for a, b in zip(found.series, plain.series, strict=True))
