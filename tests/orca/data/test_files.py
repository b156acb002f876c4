"""Which files a path means, and how they are reached."""

import fsspec
import pandas as pd
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from seamline.core.errors import UnavailableError
from seamline.orca.data import read_csv, read_json, read_parquet
from seamline.orca.data.files import File, find_files

CSV = (".csv",)


def names(files):
    return [file.name.rpartition("/")[2] for file in files]


@pytest.fixture
def folder(tmp_path):
    for name in ("b.csv", "a.csv", "c.csv.gz", "notes.md", "_SUCCESS", ".hidden.csv", "deep/d.csv", "_old/e.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def test_a_list_keeps_its_order_and_a_glob_goes_by_name(folder):
    assert names(find_files([folder / "b.csv", str(folder / "a.csv")], CSV)) == ["b.csv", "a.csv"]
    assert names(find_files(str(folder / "*.csv"), CSV)) == ["a.csv", "b.csv"]


def test_a_folder_means_files_of_the_format_within_it_and_no_notes_of_others(folder):
    assert names(find_files(folder, CSV)) == ["a.csv", "b.csv", "c.csv.gz", "d.csv"]


def test_a_file_that_is_named_is_read_whatever_its_ending(folder):
    assert names(find_files(folder / "notes.md", CSV)) == ["notes.md"]


def test_relative_paths_become_absolute_so_that_workers_find_them(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (file,) = find_files("a.csv", CSV)
    assert file.name == str(folder / "a.csv")
    assert file.size == 5
    assert file.read_all() == b"a.csv"
    assert file.read(2, 2) == b"cs"


def test_what_is_not_there_is_named(folder):
    with pytest.raises(FileNotFoundError, match=r"no file or folder .*/nothing.csv"):
        find_files(folder / "nothing.csv", CSV)
    with pytest.raises(FileNotFoundError, match=r"no file matches .*/x\*.csv"):
        find_files(str(folder / "x*.csv"), CSV)
    (folder / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"no .csv file in .*/empty; a glob names files of any name"):
        find_files(folder / "empty", CSV)
    with pytest.raises(FileNotFoundError, match=r"no .parquet file in .*; there are a.csv, b.csv, c.csv.gz"):
        find_files(folder, (".parquet",))
    with pytest.raises(ValueError, match="expected a path or a list of paths"):
        find_files([], CSV)


def test_a_file_that_was_there_and_is_gone_is_named(folder):
    (file,) = find_files(folder / "a.csv", CSV)
    (folder / "a.csv").unlink()
    with pytest.raises(FileNotFoundError, match=r"a.csv is not there, or not for this worker to see"):
        file.read_all()


def test_urls_go_through_fsspec():
    fsspec.filesystem("memory").pipe("/bucket/x.csv", b"a\n1\n")
    (file,) = find_files("memory://bucket/*.csv", CSV)
    assert (file.url, file.size, file.read_all()) == ("memory:///bucket/x.csv", 4, b"a\n1\n")


@pytest.mark.parametrize("scheme", ["memory://tables", "file://{folder}"])
def test_tables_are_read_from_urls(folder, scheme):
    frame = pd.DataFrame({"n": range(40), "text": ["größe", 'a "b",\nc'] * 20})
    fs, root = fsspec.core.url_to_fs(scheme.format(folder=folder))
    fs.pipe(f"{root}/t.csv", frame.to_csv(index=False).encode())
    fs.pipe(f"{root}/t.jsonl", frame.to_json(orient="records", lines=True).encode())
    fs.pipe(f"{root}/t.parquet", frame.to_parquet(row_group_size=20))
    url = scheme.format(folder=folder)
    for shards in (
        read_csv(f"{url}/t.csv", num_shards=3),
        read_json(f"{url}/*.jsonl", num_shards=3),
        read_parquet(url, num_shards=2),
    ):
        assert shards.num_partitions() > 1
        pd.testing.assert_frame_equal(shards.to_pandas(), frame)


def test_a_scheme_whose_package_is_missing_says_what_to_install():
    with pytest.raises(UnavailableError, match="s3:// needs a package that is not installed; pip install s3fs"):
        find_files("s3://bucket/x.csv", CSV)
    with pytest.raises(ValueError, match="sss://x cannot be read: Protocol not known: sss"):
        find_files("sss://x", CSV)


class Vault(MemoryFileSystem):
    """Opens for those who know the word."""

    protocol = "vault"

    def __init__(self, word=None, **options):
        if word != "sesame":
            raise PermissionError("wrong word")
        super().__init__(**options)

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("vault://", "memory://"))


def test_credentials_reach_the_file_system_and_are_never_shown():
    fsspec.register_implementation("vault", Vault, clobber=True)
    fsspec.filesystem("memory").pipe("/safe/x.csv", b"gold")
    (file,) = find_files("vault://safe/x.csv", CSV, {"word": "sesame"})
    assert file.read_all() == b"gold"
    assert "sesame" not in repr(file)
    with pytest.raises(PermissionError):
        find_files("vault://safe/x.csv", CSV, {"word": "please"})


def test_a_file_can_be_a_key():
    assert len({File("file:///a", 1, options={"key": "x"}), File("file:///a", 1, options={"key": "x"})}) == 1
