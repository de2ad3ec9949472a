"""Series in files: what every format means, every fault with the file and the line, and writing all or nothing."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpalign.io import (
    InputError,
    atomic_path,
    read_dataset,
    read_series,
    write_array,
    write_arrays,
)

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
    np.savez(path, np.zeros((4, 5, 2)))
    assert len(read_dataset(path).series) == 4
    np.savez_compressed(path, np.zeros((4, 2)))
    assert read_series(path).shape == (4, 2)


def test_a_name_with_a_colon_is_a_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a:1.csv", "1,2\n")
    assert read_series(path).tolist() == [[1, 2]]


FAULTS: dict[str, tuple[str, str | bytes, str]] = {
    "a word": ("a.csv", "1,2\n3,four\n", "{path}:2: expected a number in column 2, got 'four'"),
    "Python's underscore": ("a.csv", "1,2\n3,4_0\n", "{path}:2: expected a number in column 2, got '4_0'"),
    "half a header": ("a.csv", "x,2\n", "{path}:1: expected a number in column 1, got 'x'"),
    "decimal commas": ("a.csv", "1;5\n2;5\n3\n", "{path}:2: expected a number in column 1, got '2;5'"),
    "only a header": ("a.csv", "x,y\n", "{path}: expected a series with at least one value, got none"),
    "an empty file": ("a.csv", "", "{path}: expected a series with at least one value, got none"),
    "a long row": ("a.csv", "1,2\n3,4\n5,6,7\n", "{path}:3: expected 2 columns, as in the first row, got 3"),
    "infinity": ("a.csv", "1\ninf\n", "{path}: expected finite values, got inf at time step 1, feature 0"),
    "a hole": ("a.csv", "1\nnan\n3\n", "{path}: expected finite values, got nan at time step 1, feature 0"),
    "half a step": ("a.csv", "1,2\n3,\n", "{path}: expected finite values, got nan at time step 1, feature 1"),
    "a quote": ("a.csv", '1,2\n"3,4\n', "{path}: unexpected end of data"),
    "Latin-1": ("a.csv", b"1,2\n3,\xe9\n", "{path}: expected text in UTF-8, got byte 0xe9"),
    "no numpy file": ("a.npy", b"hello", "{path}: "),
    "a pickle": ("a.npy", b"\x80\x04N.", "{path}: "),
    "gzip": ("a.npz", gzip.compress(b"1"), "{path}: "),
    "an empty numpy file": ("a.npy", b"", "{path}: No data left in file"),
    "a data set": ("a.tsv", "1\t2\n", "{path}: expected one series, got a data set; {path}:INDEX picks one, counted from 0"),
    "another suffix": ("a.txt", "1", "{path}: expected a name that ends in .npy, .npz, .csv, .ts or .tsv"),
}  # fmt: skip


@pytest.mark.parametrize("case", FAULTS)
def test_faults_of_a_series(tmp_path: Path, case: str) -> None:
    name, text, message = FAULTS[case]
    path = write(tmp_path / name, text)
    expected = message.format(path=path)
    with pytest.raises(InputError) as caught:
        read_series(path)
    assert str(caught.value).startswith(expected)
    assert "\n" not in str(caught.value)


def ts(header: str, *rows: str) -> str:
    return "\n".join(["@timeStamps false", header, "@data", *rows, ""])


DATASET_FAULTS: dict[str, tuple[str, str, str]] = {
    "nothing": ("a.csv", "\n\n", "{path}: expected at least one series, got none"),
    "an empty series": ("a.csv", "1,2\nnan,nan\n", "{path}:2: expected a series with at least one value, got none"),
    "a hole": ("a.csv", "1,2\n1,,3\n", "{path}:2: expected finite values, got nan at time step 1, feature 0"),
    "spaces for tabs": ("a.tsv", "1 2 3\n", "{path}:1: expected a series with at least one value, got none"),
    "a word": ("a.tsv", "1\t2\n1\tx\n", "{path}:2: expected a number in column 2, got 'x'"),
    "no @data": ("a.ts", "@timeStamps false\n", "{path}: expected a line @data, got none"),
    "early data": ("a.ts", "1,2:1\n", "{path}:1: expected a line that begins with @ or #, as @data has not come yet"),
    "time stamps": ("a.ts", "@timeStamps true\n", "{path}:1: expected @timeStamps false; time stamps are not supported"),
    "a flag": ("a.ts", "@timeStamps maybe\n", "{path}:1: expected @timestamps true or false, got 'maybe'"),
    "dimensions": ("a.ts", "@dimensions none\n", "{path}:1: expected @dimensions with a number of features, got 'none'"),
    "a label": ("a.ts", ts("@classLabel true a b", "1,2:a", "1,2:c"), "{path}:5: expected a class label of a, b at the end, got 'c'"),
    "features": ("a.ts", ts("@dimensions 2", "1,2:3,4", "1,2"), "{path}:5: expected 2 features, as @dimensions says, got 1"),
    "lengths": ("a.ts", ts("@classLabel false", "1,2:3"), "{path}:4: expected features of equal length, got 2, 1"),
    "a number": ("a.ts", ts("@classLabel false", "1,2:3,x"), "{path}:4: feature 1: expected a number in column 2, got 'x'"),
    "unequal features": ("a.ts", ts("@classLabel false", "1,2:3,4", "1,2"), "{path}: expected 2 features in every series, as in the first, got 1 in series 1"),
    "no case": ("a.ts", ts("@classLabel false"), "{path}: expected at least one series, got none"),
}  # fmt: skip


@pytest.mark.parametrize("case", DATASET_FAULTS)
def test_faults_of_a_data_set(tmp_path: Path, case: str) -> None:
    name, text, message = DATASET_FAULTS[case]
    path = write(tmp_path / name, text)
    with pytest.raises(InputError) as caught:
        read_dataset(path)
    assert str(caught.value) == message.format(path=path)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3), "expected series of shape (B, N) or (B, N, D), got (3,)"),
        (np.zeros((2, 3, 4, 5)), "expected series of shape (B, N) or (B, N, D), got (2, 3, 4, 5)"),
        (np.zeros((2, 3), dtype=complex), "series 0: expected real numbers, got dtype complex128"),
        (np.array([["a"]]), "series 0: expected real numbers, got dtype <U1"),
        (np.zeros((2, 0)), "series 0: expected a series with at least one value, got none"),
        (np.zeros((2, 3, 0)), "series 0: expected a series with at least one value, got none"),
    ],
    ids=str,
)
def test_faults_of_arrays(tmp_path: Path, array: np.ndarray[Any, Any], message: str) -> None:
    path = tmp_path / "a.npy"
    np.save(path, array)
    with pytest.raises(InputError) as caught:
        read_dataset(path)
    assert str(caught.value) == f"{path}: {message}"


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


def test_keys_that_do_not_fit(tmp_path: Path) -> None:
    archive = tmp_path / "a.npz"
    np.savez(archive, x=np.zeros(3), y=np.zeros(3))
    table = write(tmp_path / "a.tsv", "1\t2\n1\t3\n")
    for source, message in {
        str(archive): f"{archive}: expected one array, or {archive}:NAME with one of x, y",
        f"{archive}:z": f"{archive}: expected an array named x, y, got z",
        f"{table}:2": f"{table}: expected an index from 0 to 1, got '2'",
        f"{table}:-1": f"{table}: expected an index from 0 to 1, got '-1'",
        f"{table}:x": f"{table}: expected an index from 0 to 1, got 'x'",
        f"{tmp_path}/none.csv": f"{tmp_path}/none.csv: no such file",
        f"{tmp_path}/none.csv:1": f"{tmp_path}/none.csv: no such file",
    }.items():
        with pytest.raises(InputError) as caught:
            read_series(source)
        assert str(caught.value) == message


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(InputError, match="a.csv: Is a directory"):
        read_series(tmp_path / "a.csv")


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


def test_writing_refuses_what_it_cannot(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ends in .npy or .csv"):
        write_array(tmp_path / "a.txt", np.zeros(3))
    with pytest.raises(ValueError, match="at most 2 axes"):
        write_array(tmp_path / "a.csv", np.zeros((1, 2, 3)))
    with pytest.raises(ValueError, match="ends in .npz"):
        write_arrays(tmp_path / "a.npy", {})
    assert not list(tmp_path.iterdir())


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
