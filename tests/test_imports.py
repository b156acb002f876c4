"""Importing Seamline is quick and brings no framework along."""

import json
import subprocess
import sys

import pytest

HEAVY = {"torch", "tensorflow", "keras", "jax", "pyspark", "ray", "pandas", "lightning", "onnxruntime", "openvino"}


def loaded_by(statement):
    program = f"import json, sys; {statement}; print(json.dumps(list(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(answer.stdout))


@pytest.mark.parametrize("module", ["seamline", "seamline.core.registry", "seamline.orca", "seamline.cli"])
def test_no_framework_is_loaded(module):
    assert not loaded_by(f"import {module}") & HEAVY


def test_importing_takes_less_than_0_3_seconds():
    program = "import time; t = time.perf_counter(); import seamline; print(time.perf_counter() - t)"
    times = [
        float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    assert min(times) < 0.3


def test_the_version_is_the_one_of_the_package():
    from importlib.metadata import version

    import seamline

    assert seamline.__version__ == version("seamline")
