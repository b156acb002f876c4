"""CSV files in shards: the same as pandas gives, whatever the cuts; and bad ones, by file and line."""

import csv
import gzip
import random
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest

from seamline.core.errors import ColumnError
from seamline.orca.data import BadRowError, DroppedRowsWarning, MixedSchemasError, read_csv
from seamline.orca.data.csv import _as_many_threads_as_others
from seamline.orca.data.delimited import Delimited
from seamline.orca.data.files import find_files

CUTS = (1, 2, 3, 7, 40)


def assert_as_pandas(path, shards=CUTS, **options):
    expected = pd.read_csv(path, **{"low_memory": False, **options})
    for count in shards:
        found = read_csv(path, num_shards=count, **options).collect()
        assert 1 <= len(found) <= count
        for shard in found:
            assert list(shard.dtypes) == list(expected.dtypes)
        pd.testing.assert_frame_equal(pd.concat(found, ignore_index=True), expected, check_index_type=False)
    return expected


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


# Cuts


def test_quoted_line_ends_and_commas_and_unicode_survive_any_number_of_cuts(tmp_path):
    texts = [f'naïve "{i}",\nzwei 🙂' if i % 3 else f"plain {i}" for i in range(400)]
    pd.DataFrame({"n": range(400), "text": texts, "x": np.linspace(0, 1, 400)}).to_csv(tmp_path / "a.csv", index=False)
    assert_as_pandas(tmp_path / "a.csv")


def test_large_files_are_really_cut(tmp_path):
    write(tmp_path / "a.csv", "a,b\n" + "1,2\n" * 1000)
    assert [len(shard) for shard in read_csv(tmp_path / "a.csv", num_shards=4).collect()] == [250] * 4


@pytest.mark.parametrize("seed", range(6))
def test_files_of_random_rows_are_read_as_pandas_reads_them(tmp_path, seed):
    chance = random.Random(seed)
    words = ["", "1", "-2.5", "x", "NA", 'say ""x""', "a,b", "two\nlines", "\n", '"', "é", "  ", '3 in" pipe']
    with (tmp_path / "a.csv").open("w", newline="") as file:
        quoting, end = chance.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]), chance.choice(["\n", "\r\n"])
        writer = csv.writer(file, quoting=quoting, lineterminator=end)
        writer.writerow(["a", "b\nc", "d"])
        for number in range(200):
            writer.writerow([number, chance.choice(words), chance.choice(words)])
    assert_as_pandas(tmp_path / "a.csv")


@pytest.mark.parametrize("last", ["1", "x", "", "0.5"])
def test_a_file_that_pandas_shares_among_threads_is_read_as_pandas_reads_it(tmp_path, last):
    rows = "".join(f"{number},{number / 7},word {number % 5}\n" for number in range(250_000))
    path = write(tmp_path / "a.csv", "a,b,c\n" + rows + f"{last},1,x\n")
    assert path.stat().st_size > 5 << 20, "pandas reads smaller files with one thread"
    assert_as_pandas(path, shards=(1, 2))


def test_pandas_keeps_to_the_threads_of_its_worker(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with _as_many_threads_as_others():
        assert pd.get_option("mode.max_threads") == 3
    with pd.option_context("mode.max_threads", 2), _as_many_threads_as_others():
        assert pd.get_option("mode.max_threads") == 2, "what the user says counts"


def test_a_cut_that_turns_out_to_be_within_a_row_is_taken_back(tmp_path):
    """In a single column of text nothing tells the first line of a row from the second, except the parser."""
    path = write(tmp_path / "a.csv", "t\n" + "".join(f'"one {i}\ntwo"\n' for i in range(300)))
    (file,) = find_files(path)
    how = Delimited.of(file, {})
    wrong = [how.row_start(file, position) for position in range(100, 2000, 50)]
    assert any(file.read(start, 3) == b"two" for start in wrong)
    assert_as_pandas(path)


def test_no_cut_falls_into_what_stands_before_the_first_row(tmp_path):
    text = "".join(f"note {i}\n" for i in range(40)) + 'a,"b\nc"\n' + "1,2\n" * 5
    assert_as_pandas(write(tmp_path / "a.csv", text), skiprows=40)


def test_quotes_without_a_partner_are_text_within_a_field_as_in_pandas(tmp_path):
    assert_as_pandas(write(tmp_path / "a.csv", "a,b\n" + '5" pipe,1\n7" pipe,"x\ny"\n' * 200))


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("# made by hand\n\na;b\n" + "1,5;x\n" * 50, {"sep": ";", "decimal": ",", "comment": "#"}),
        ("skip\nskip\na,b\n" + "1,2\n" * 50, {"skiprows": 2}),
        ("1,2\n" * 50, {"header": None}),
        ("1,2\n" * 50, {"names": ["x", "y"]}),
        ("a,b\n" + "1,2\n" * 50, {"names": ["x", "y"], "header": 0}),
        ("a,a,b\n" + "1,2,3\n" * 50, {}),
        ("a,b\n" + "r,1,2\n" * 50, {}),  # one more field than names: the first is the index
        ("a,b\n" + "1,2\n" * 50, {"usecols": ["b"], "dtype": {"b": "float32"}}),
        ("a,b\n" + "1,2\n" * 50, {"nrows": 7}),
        ("a,b\n" + "1,2\n" * 50, {"skipfooter": 3, "engine": "python", "low_memory": True}),
        ("a  b\n" + "1 2\n" * 50, {"sep": r"\s+"}),
        ("a,b\n" + "1\\\n2,x\n" * 50, {"escapechar": "\\"}),
        ("\ufeffa,b\n" + "1,2\n" * 50, {}),
        ("a,b\n" + "1,2\n" * 50, {"engine": "pyarrow", "low_memory": True}),
    ],
)
def test_pandas_options_mean_what_they_mean_in_pandas(tmp_path, text, options):
    path = write(tmp_path / "a.csv", text)
    python = {name: value for name, value in options.items() if name != "low_memory"}
    expected = pd.read_csv(path, **python)
    found = pd.concat(read_csv(path, num_shards=4, **python).collect(), ignore_index="r" not in expected.index)
    pd.testing.assert_frame_equal(found, expected, check_index_type=False)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_other_encodings_are_cut_only_if_that_is_safe(tmp_path, encoding):
    path = write(tmp_path / "a.csv", "a,b\n" + "käse,1\n" * 100, encoding)
    assert_as_pandas(path, encoding=encoding)
    assert len(read_csv(path, num_shards=3, encoding=encoding).collect()) == (3 if encoding == "latin-1" else 1)


def test_compressed_files_are_one_shard_each(tmp_path):
    for number in range(3):
        with gzip.open(tmp_path / f"{number}.csv.gz", "wt") as file:
            file.write("a\n" + f"{number}\n" * 10)
    shards = read_csv(tmp_path, num_shards=3).collect()
    assert [shard["a"].unique().tolist() for shard in shards] == [[0], [1], [2]]


def test_zip_archives_are_read_as_pandas_reads_them(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.csv.zip", "w") as archive:
        archive.writestr("a.csv", "a,b\n" + "1,x\n" * 30)
    assert_as_pandas(tmp_path / "a.csv.zip")


# Types


def test_a_number_in_one_part_and_text_in_another_is_text_as_it_stands_in_the_file(tmp_path):
    path = write(tmp_path / "a.csv", "a\n" + "".join(f"{i:03d}\n" for i in range(100)) + "x\n")
    assert assert_as_pandas(path)["a"][7] == "007"
    assert assert_as_pandas(path, dtype_backend="pyarrow")["a"][7] == "007"


def test_a_large_file_has_no_column_of_texts_and_numbers_side_by_side(tmp_path):
    """pandas guesses types block by block and gives such a column, with a warning, for the whole file."""
    path = write(tmp_path / "a.csv", "a,b\n" + "007,2\n" * 300_000 + "x,1\n")
    with pytest.warns(pd.errors.DtypeWarning):
        assert set(pd.read_csv(path)["a"]) == {7, "007", "x"}
    assert set(read_csv(path, num_shards=1).collect()[0]["a"]) == {"007", "x"}


def test_whole_numbers_and_fractions_nulls_and_truth_values_agree_as_in_pandas(tmp_path):
    rows = ["1,1,,True,a"] * 50 + ["2,1.5,,,"] * 50 + [",2,7,False,b"] * 50
    assert_as_pandas(write(tmp_path / "a.csv", "int,float,late,bool,text\n" + "\n".join(rows) + "\n"))


def test_every_part_guesses_the_same_format_of_dates(tmp_path):
    month_first = "t\n" + "01/02/2020\n" * 50 + "01/12/2020\n" * 50
    assert assert_as_pandas(write(tmp_path / "a.csv", month_first), parse_dates=["t"])["t"][0].month == 1
    both = "t\n" + "01/02/2020\n" * 50 + "13/02/2020\n" * 50  # alone, the second half would be of another format
    assert not isinstance(assert_as_pandas(write(tmp_path / "b.csv", both), parse_dates=["t"])["t"][0], pd.Timestamp)
    stamps = "t\n" + "2020-01-01 10:00:00\n" * 50 + "\n" * 9 + "2020-01-01 10:00:01\n"
    assert assert_as_pandas(write(tmp_path / "c.csv", stamps), parse_dates=["t"])["t"].dtype.kind == "M"


def test_categories_are_those_of_all_parts(tmp_path):
    path = write(tmp_path / "a.csv", "c\n" + "b\n" * 50 + "a\n" * 50 + "ö\n" * 50)
    assert list(assert_as_pandas(path, dtype={"c": "category"})["c"].cat.categories) == ["a", "b", "ö"]


def test_files_agree_on_types_although_the_first_has_only_nulls_or_nothing(tmp_path):
    for name, text in {"a": "x,t\n,\n", "b": "", "c": "x,t\n", "d": "t,x\nhello,1\n", "e": "x,t\n2.5,\n"}.items():
        write(tmp_path / f"{name}.csv", text)
    found = read_csv(tmp_path, num_shards=5).collect()
    assert {(str(shard["x"].dtype), str(shard["t"].dtype)) for shard in found} == {
        ("float64", str(pd.Series(["text"]).dtype))
    }
    together = pd.concat(found, ignore_index=True)
    assert list(together.columns) == ["x", "t"]
    assert together["x"].tolist()[1:] == [1.0, 2.5]
    assert together["t"].isna().tolist() == [True, False, True]


def test_files_that_contradict_each_other_are_named_with_the_column(tmp_path):
    write(tmp_path / "a.csv", "x,y\n1,2\n")
    write(tmp_path / "b.csv", "x,y\none,2\n")
    with pytest.raises(MixedSchemasError, match=r"column 'x' is int64 in .*/a.csv and (str|object) in .*/b.csv; say"):
        read_csv(tmp_path)
    assert pd.concat(read_csv(tmp_path, dtype={"x": str}).collect())["x"].tolist() == ["1", "one"]
    write(tmp_path / "b.csv", "x,z\n1,2\n")
    with pytest.raises(MixedSchemasError, match=r"column 'y' of .*/a.csv is missing in .*/b.csv"):
        read_csv(tmp_path)


def test_what_a_transform_does_to_a_frame_does_not_change_what_was_read(tmp_path):
    def spoil(frame):
        frame["a"] = 0
        frame.loc[0, "b"] = 9
        return frame

    shards = read_csv(write(tmp_path / "a.csv", "a,b\n1,2\n3,4\n"), num_shards=1)
    assert shards.transform_shard(spoil).collect()[0].to_numpy().tolist() == [[0, 9], [0, 4]]
    mine = shards.collect()[0]
    mine.iloc[0, 0] = 7
    assert shards.collect()[0].to_numpy().tolist() == [[1, 2], [3, 4]]


# Bad input


def test_a_row_of_too_many_fields_is_reported_by_file_and_line(tmp_path):
    path = write(tmp_path / "a.csv", "a,b\n" + "1,2\n" * 100 + '"x\ny",2\n' + "1,2,3\n" + "5,6\n" * 100)
    for count in (1, 3):
        with pytest.raises(BadRowError, match=r"a.csv, line 104: 3 fields where there are 2 columns; on_error=.drop"):
            read_csv(path, num_shards=count)


def test_bad_rows_are_dropped_and_counted(tmp_path):
    path = write(tmp_path / "a.csv", "a,b\n" + "1,2\n" * 100 + "1,2,3\n" + "5,6\n" * 100 + "1,2,3,4\n")
    with pytest.warns(DroppedRowsWarning, match=r"^2 bad rows dropped: .*a.csv, line 102: .*; .*a.csv, line 203: "):
        found = read_csv(path, num_shards=3, on_error="drop")
    assert pd.concat(found.collect())["a"].tolist() == [1] * 100 + [5] * 100


def test_a_value_that_is_not_of_the_wanted_type_is_reported_by_line_and_can_be_dropped(tmp_path):
    path = write(tmp_path / "a.csv", "a,b\n" + "1,2\n" * 100 + "x,2\n,2\n1.5,2\n\n" + "3,4\n")
    with pytest.raises(
        BadRowError, match=r"3 rows .*line 102: column 'a' has 'x', not int64; .*103: .*no value, .*104"
    ):
        read_csv(path, num_shards=3, dtype={"a": "int64"})
    with pytest.warns(DroppedRowsWarning, match="3 bad rows"):
        found = read_csv(path, num_shards=3, dtype={"a": "int64"}, on_error="drop")
    assert pd.concat(found.collect())["a"].tolist() == [1] * 100 + [3]
    with pytest.raises(BadRowError, match=r"a row cannot be read: .*line 102"):
        read_csv(path, num_shards=3, dtype={"a": "float32"})


def test_a_converter_that_raises_is_traced_to_its_row(tmp_path):
    path = write(tmp_path / "a.csv", "a\n" + "1\n" * 100 + "oops\n" + "2\n" * 100)
    with pytest.raises(BadRowError, match=r"a.csv, line 102: .*oops"):
        read_csv(path, num_shards=2, converters={"a": int})


def test_bytes_that_are_no_text_are_reported_by_line(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\n" + b"1,2\n" * 50 + b"M\xfcller,2\n" + b"1,2\n" * 50)
    with pytest.raises(BadRowError, match=r"line 52: byte 0xfc is not utf-8"):
        read_csv(path, num_shards=3)


def test_a_bad_row_of_a_compressed_file_has_its_line_too(tmp_path):
    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        file.write("a,b\n1,2\n3,4,5\n")
    with pytest.raises(BadRowError, match=r"a.csv.gz, line 3: 3 fields"):
        read_csv(tmp_path / "a.csv.gz")


@pytest.mark.parametrize("on_error", ["raise", "drop"])
def test_a_quote_that_is_never_closed_is_an_error_because_nobody_knows_what_it_swallows(tmp_path, on_error):
    path = write(tmp_path / "a.csv", "a,b\n" + "1,2\n" * 50 + '"x,2\n' + "1,2\n" * 50)
    with pytest.raises(BadRowError, match="line 52: a quote is opened and never closed"):
        read_csv(path, num_shards=3, on_error=on_error)


def test_good_files_are_read_without_a_warning(tmp_path):
    write(tmp_path / "a.csv", "a,b\n" + "1,2\n" * 50)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read_csv(tmp_path, on_error="drop").to_pandas()) == 50


def test_a_column_that_is_not_there_is_named_with_a_near_one(tmp_path):
    path = write(tmp_path / "a.csv", "price,size\n1,2\n")
    for options in ({"usecols": ["price", "sizes"]}, {"parse_dates": ["sizes"]}, {"index_col": "sizes"}):
        with pytest.raises(ColumnError, match=r"no column 'sizes'; there are 'price', 'size' \(did you mean 'size'"):
            read_csv(path, **options)


def test_arguments_that_make_no_sense_are_refused_before_anything_is_read(tmp_path):
    path = write(tmp_path / "a.csv", "a\n1\n")
    with pytest.raises(TypeError, match=r"pandas.read_csv got an unexpected keyword argument 'separators'"):
        read_csv(path, separators=",")
    with pytest.raises(ValueError, match='on_error is "raise" or "drop"'):
        read_csv(path, on_error="skip")
    with pytest.raises(ValueError, match="chunksize= is of no use here"):
        read_csv(path, chunksize=10)
    with pytest.raises(ValueError, match="num_shards must be a whole number of at least 1"):
        read_csv(path, num_shards=0)
    with pytest.raises(ValueError, match="nrows=3 means rows of one file, but there are 2"):
        read_csv([path, path], nrows=3)


def test_files_without_a_header_are_an_error_if_all_are(tmp_path):
    write(tmp_path / "a.csv", "")
    write(tmp_path / "b.csv", "\n\n")
    with pytest.raises(pd.errors.EmptyDataError, match=r"a.csv is empty: it has not even a header"):
        read_csv(tmp_path)
    write(tmp_path / "b.csv", "x,y\n")
    for empty in read_csv(tmp_path, num_shards=2).collect():
        assert (list(empty.columns), len(empty)) == (["x", "y"], 0)
