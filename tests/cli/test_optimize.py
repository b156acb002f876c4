"""``seamline optimize`` on a module and on an ONNX file."""

import os
import subprocess
import sys

import pytest
import torch

from seamline.nano.torch import InferenceOptimizer

PROGRAM = """
from torch import nn

def make_model():
    return nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))

not_a_model = dict
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("program")
    (folder / "networks.py").write_text(PROGRAM)
    return folder


def seamline(folder, *arguments):
    command = [sys.executable, "-m", "seamline.cli", "optimize", *arguments]
    environment = {**os.environ, "COLUMNS": "150"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=110, cwd=folder, env=environment, check=False
    )


def test_a_module_is_optimized_and_saved_and_the_onnx_file_that_it_becomes_is_optimized(folder):
    include = ["--include", "onnxruntime-fp32"]
    first = seamline(folder, "networks:make_model", "--input-shape", "1x32", *include, "--save", "fast")
    assert first.returncode == 0, first.stderr
    for word in ("original", "onnxruntime-fp32", "speed-up", "fastest within 5 %", "saved onnxruntime-fp32 to fast"):
        assert word in first.stdout
    assert InferenceOptimizer.load(folder / "fast")(torch.randn(3, 32)).shape == (3, 4)
    program = (
        "import networks, torch\n"
        "torch.onnx.export(networks.make_model().eval(), (torch.randn(2, 32),), 'model.onnx', dynamo=True,\n"
        "    dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), verbose=False)\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=folder, check=True, capture_output=True, timeout=60)
    second = seamline(folder, "model.onnx", "--input-shape", "1x32", "--include", "openvino-fp32")
    assert second.returncode == 0, second.stderr
    for word in ("original", "openvino-fp32"):
        assert word in second.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model.onnx", "--input-shape", "1x2", "--save", "x"], "of an .onnx file only the table is shown"),
        (["networks:make_model", "--input-shape", "1x2", "--save", "."], ". exists already; choose another path"),
        (["networks:make_model"], "give the shape of each input"),
        (["networks:make_model", "--input-shape", "big"], "'big' is no shape"),
        (["networks:absent", "--input-shape", "1x2"], "cannot find 'networks:absent'"),
        (["networks:not_a_model", "--input-shape", "1x2"], "gave dict, not a torch.nn.Module"),
        (["absent.onnx", "--input-shape", "1x2"], "there is no file absent.onnx"),
        (["nonsense", "--input-shape", "1x2"], "neither an .onnx file nor package.module:make_model"),
    ],
)
def test_bad_arguments_are_one_sentence(folder, arguments, message):
    done = seamline(folder, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
