"""Names become objects in one place, lazily, and others may add theirs."""

import subprocess
import sys
import textwrap

import pytest

from seamline.core import registry
from seamline.core.errors import UnavailableError
from seamline.core.registry import Entry
from seamline.core.shards import Columns


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="no engine named 'sprak'; there are inline, local"):
        registry.engine("sprak")
    with pytest.raises(ValueError, match="no sync named 'gossip'; there are allreduce"):
        registry.sync("gossip")


def test_a_missing_library_is_answered_with_the_command_that_brings_it():
    entry = Entry("future", "nowhere:Future", needs="library_of_tomorrow", extra="future")
    with pytest.raises(
        UnavailableError, match=r'library_of_tomorrow is not installed; pip install "seamline\[future\]"'
    ):
        entry.load()


def test_data_of_an_unknown_kind_says_what_is_possible():
    with pytest.raises(TypeError, match="cannot read data of type int; give arrays"):
        registry.shards(5, Columns())


def test_another_package_adds_an_engine_by_an_entry_point(tmp_path):
    (tmp_path / "elsewhere.py").write_text("class Elsewhere:\n    name = 'elsewhere'\n")
    info = tmp_path / "elsewhere-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[seamline.engines]\nelsewhere = elsewhere:Elsewhere\n")
    program = textwrap.dedent(
        f"""
        import sys; sys.path.insert(0, {str(tmp_path)!r})
        from seamline.core import registry
        assert registry.engine("elsewhere").name == "elsewhere"
        """
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
