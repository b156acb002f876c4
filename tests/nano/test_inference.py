"""InferenceOptimizer: every plan is tried, measured beside the original, and held against its answers."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from torch import nn

from seamline.core.errors import CheckpointError, ExportError, SeamlineError
from seamline.core.runtime import Plan
from seamline.nano.inference import bench
from seamline.nano.inference.report import Report
from seamline.nano.inference.search import distance
from seamline.nano.inference.trial import Timing, Trial
from seamline.nano.torch import InferenceOptimizer
from seamline.runtimes import openvino
from tests.nano.models import FAMILIES, make

FEW = ("onnxruntime-fp32", "openvino-int8")
"""Enough to choose from for every family; all plans are tried for one model."""
SEQUENCES = ("lstm", "transformer")


def leaves(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for part in (value.values() if isinstance(value, dict) else value) for leaf in leaves(part)]


def agreement(outputs, targets):
    return (outputs.argmax(1) == targets).float().mean()


@pytest.fixture(scope="module", autouse=True)
def short_bursts():
    """The models here answer within a millisecond, so a tenth of the time holds as many calls as others get."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "BURST_S", 0.02)
        yield


@pytest.fixture(scope="module")
def searched():
    """The model, a call and the report of a family; each is searched once."""
    found = {}

    def search(family):
        if family not in found:
            model, inputs = make(family)
            includes = (*FEW, "openvino-fp32") if family in SEQUENCES else FEW
            data = (*inputs,) if len(inputs) > 1 else inputs[0]
            report = InferenceOptimizer().optimize(model, data, includes=includes, verbose=0)
            found[family] = model, inputs, report
        return found[family]

    return search


@pytest.fixture(scope="module")
def trained():
    """A network that has learned something, with data to calibrate and to judge."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 4))
    x = torch.randn(512, 64)
    y = (x @ torch.randn(64, 4)).argmax(1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(30):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.author = "somebody"
    return model.train(), x, y


@pytest.fixture(scope="module")
def report(trained):
    model, x, y = trained
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=64)
    found = InferenceOptimizer().optimize(
        model, loader, validation_data=(x, y), metric=agreement, excludes=["torch-compile-bf16"], verbose=0
    )
    assert model.training, "the user's model was left in another mode"
    return found


def test_every_plan_of_this_machine_is_in_the_report(report):
    names = [trial.name for trial in report.trials]
    assert names[0] == "original"
    expected = {
        "torch-fp32", "torch-compile-fp32", "onnxruntime-fp32", "onnxruntime-static-int8", "onnxruntime-dynamic-int8",
        "openvino-fp32", "openvino-int8", "openvino-accuracy-aware-int8",
    }  # fmt: skip
    assert expected <= set(names)
    assert "torch-compile-bf16" not in names, "it was excluded"
    failed = {trial.name: trial.reason for trial in report.trials if trial.status == "failed"}
    assert not failed


def test_answers_are_checked_for_every_plan(report):
    for trial in report.trials:
        assert trial.score is not None
        assert trial.distance is not None
        if trial.plan.precision == "fp32":
            assert trial.distance < 1e-4, trial.name


def test_the_best_is_faster_and_keeps_the_score(report, trained):
    model, x, y = trained
    fast, plan = report.best(max_drop=0.01)
    chosen = next(trial for trial in report.trials if trial.plan == plan)
    assert chosen.speedup > 1.0
    with torch.no_grad():
        assert agreement(fast(x), y) >= agreement(model(x), y) - 0.011


def test_the_report_as_text_page_picture_and_data(report, tmp_path):
    text = str(report)
    for trial in report.trials:
        assert trial.name in text
    assert "speed-up" in text
    assert "one call after the other, each of 1 row on" in text
    assert report.to_html().count("<tr>") == len(report.trials) + 1
    assert json.loads(json.dumps(report.to_dict()))["trials"][0]["plan"] == "original"
    report.plot(tmp_path / "report.png")
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


def test_any_plan_can_be_taken(report, trained):
    x = trained[1]
    expected = report.get_model("original").eval()(x).detach()
    for name in ("torch-fp32", "onnxruntime-fp32", "openvino-fp32"):
        model = report.get_model(name)
        assert torch.allclose(model(x), expected, atol=1e-4)
        assert model.plan.name == name
    with pytest.raises(ValueError, match="no plan named 'tensorrt' was built; there are original, torch-fp32"):
        report.get_model("tensorrt")


@pytest.fixture(scope="module")
def fast(trained):
    model, x, _ = trained
    return {
        name: InferenceOptimizer.trace(model, name, input_sample=x[:4]) for name in ("onnxruntime", "openvino", None)
    }


@pytest.mark.parametrize("name", ["onnxruntime", "openvino", None])
def test_an_accelerated_model_behaves_like_the_original(fast, trained, name):
    model, x, _ = trained
    accelerated = fast[name]
    expected = model.eval()(x).detach()
    for rows in (1, 3, 64):
        assert torch.allclose(accelerated(x[:rows]), expected[:rows], atol=1e-4)
    assert torch.allclose(accelerated(input=x[:2]), expected[:2], atol=1e-4)
    first, second = accelerated(x[:2]), accelerated(x[2:4])
    assert torch.allclose(first, expected[:2], atol=1e-4), "an answer was overwritten by the next call"
    assert torch.allclose(second, expected[2:4], atol=1e-4)
    assert accelerated.author == "somebody"
    assert accelerated.eval() is accelerated
    assert len(accelerated.state_dict()) == len(model.state_dict())
    with pytest.raises(SeamlineError, match="cannot be trained; train the original and optimise it again"):
        accelerated.train()
    with InferenceOptimizer.get_context(accelerated):
        assert torch.is_inference_mode_enabled()
        accelerated(x[:1])
    with pytest.raises(ValueError, match=r"has shape \(2, 63\), but the model was optimised for \('any', 64\)"):
        accelerated(torch.zeros(2, 63))


def test_accelerated_models_move_to_another_process(fast, trained, tmp_path):
    x = trained[1][:5]
    (tmp_path / "models.pkl").write_bytes(pickle.dumps((fast, x)))
    program = (
        "import pickle, sys, torch\n"
        "models, x = pickle.load(open(sys.argv[1], 'rb'))\n"
        "torch.save({name: model(x) for name, model in models.items()}, sys.argv[2])\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "models.pkl"), str(tmp_path / "answers")]
    subprocess.run(command, check=True, timeout=60)
    answers = torch.load(tmp_path / "answers")
    assert answers.keys() == fast.keys()
    for name, answer in answers.items():
        assert torch.allclose(answer, fast[name](x), atol=1e-6), name


@pytest.mark.parametrize("name", ["onnxruntime", "openvino", None])
def test_a_saved_model_loads_without_the_original_and_without_pickle(fast, trained, name, tmp_path):
    model, x, _ = trained
    InferenceOptimizer.save(fast[name], tmp_path / "fast")
    card = json.loads((tmp_path / "fast" / "seamline.json").read_text())
    assert card["plan"]["runtime"] == (name or "torch")
    assert card["versions"]["torch"] == torch.__version__
    loaded = InferenceOptimizer.load(tmp_path / "fast")
    for rows in (1, 7):
        assert torch.allclose(loaded(x[:rows]), fast[name](x[:rows]), atol=1e-5)
    with pytest.raises(SeamlineError, match=r"loaded without its original; give it with load\(..., model=...\)"):
        loaded.state_dict()
    assert InferenceOptimizer.load(tmp_path / "fast", model=model).state_dict().keys() == model.state_dict().keys()
    with pytest.raises(CheckpointError, match="exists already; choose another path"):
        InferenceOptimizer.save(fast[name], tmp_path / "fast")


def test_a_card_that_was_changed_or_comes_from_another_machine(fast, tmp_path):
    InferenceOptimizer.save(fast["onnxruntime"], tmp_path / "fast")
    path = tmp_path / "fast" / "seamline.json"
    card = json.loads(path.read_text())
    path.write_text(json.dumps({**card, "machine": {**card["machine"], "isa": ["amx_of_tomorrow"]}}))
    with pytest.warns(UserWarning, match="measured on a machine with amx_of_tomorrow, which this one lacks"):
        InferenceOptimizer.load(tmp_path / "fast")
    path.write_text(json.dumps({**card, "versions": {"onnxruntime": "0.9", "openvino": "1.0"}}))
    with pytest.warns(UserWarning, match=r"saved with onnxruntime 0.9 and this is .*so optimise again"):
        InferenceOptimizer.load(tmp_path / "fast")
    plan = card["plan"]
    harms = (
        *({"plan": changed} for changed in ({"runtime": "abacus"}, {"engine": "x"}, {**plan, "precision": "int4"})),
        *({"plan": {**plan, **changed}} for changed in ({"threads": "many"}, {"threads": -3}, {"goal": "fun"})),
        {"inputs": {"list": 3}}, {"shapes": []}, {"machine": {}}, {"measured": None},
        {"dtypes": ["int99"]}, {"versions": 1},
    )  # fmt: skip
    for harm, told in (
        ({"shapes": [[None, 3]]}, "its model takes"),
        ({"plan": {**plan, "runtime": "openvino"}}, "cannot load"),
    ):
        path.write_text(json.dumps({**card, **harm}))
        with pytest.raises(CheckpointError, match=told):
            InferenceOptimizer.load(tmp_path / "fast")
    path.write_text("[]")
    with pytest.raises(CheckpointError, match="holds a list where a card should be"):
        InferenceOptimizer.load(tmp_path / "fast")
    for harm in harms:
        path.write_text(json.dumps({**card, **harm}))
        with pytest.raises(CheckpointError, match="was changed and makes no sense any more"):
            InferenceOptimizer.load(tmp_path / "fast")
    (tmp_path / "fast" / "model.onnx").write_bytes(b"")
    with pytest.raises(CheckpointError, match="damaged"):
        InferenceOptimizer.load(tmp_path / "fast")


def test_the_short_form_of_the_paper_quantizes_and_runs_with_onnx_in_three_lines(trained):
    model, x, y = trained
    quantized = InferenceOptimizer.quantize(model, precision="int8", accelerator="onnxruntime", calib_data=x)
    assert quantized.plan.name == "onnxruntime-static-int8"
    assert agreement(quantized(x), y) > agreement(model(x), y) - 0.05


def test_an_accuracy_criterion_compares_with_the_original(trained):
    model, x, y = trained

    def harsh(outputs, targets):
        with torch.no_grad():
            return -(outputs - model(x)).abs().max()

    with pytest.raises(SeamlineError, match=r"openvino-int8 brings the score from -?0.0000 to -.*try precision='bf16'"):
        InferenceOptimizer.quantize(
            model, calib_data=x, validation_data=(x, y), metric=harsh, accuracy_criterion=1e-9, accelerator="openvino"
        )


def test_an_accuracy_criterion_compares_without_dropout_and_needs_something_to_compare_by(trained):
    _, x, y = trained
    model = nn.Sequential(nn.Linear(64, 32), nn.Dropout(0.9), nn.Linear(32, 4)).train()
    scores = []

    def noted(outputs, targets):
        scores.append(float(agreement(outputs, targets)))
        return scores[-1]

    data = {"calib_data": x, "accelerator": "onnxruntime"}
    InferenceOptimizer.quantize(model, validation_data=(x, y), metric=noted, accuracy_criterion=1.0, **data)
    assert scores[0] == float(agreement(model.eval()(x), y))
    with pytest.raises(ValueError, match="accuracy_criterion= needs metric= and validation_data="):
        InferenceOptimizer.quantize(model, accuracy_criterion=0.01, **data)


def test_infinite_answers_do_not_hide_the_others():
    masked = np.array([-np.inf, 100.0, 200.0])
    assert distance([[masked]], [[masked]]) == 0.0
    assert distance([[np.array([-np.inf, 1.0, 2.0])]], [[masked]]) > 0.9
    assert distance([[np.array([1.0, -np.inf, 200.0])]], [[masked]]) == np.inf
    assert distance([[np.array([-np.inf, np.nan, 200.0])]], [[masked]]) == np.inf


@pytest.mark.parametrize("accelerator", ["onnxruntime", "openvino"])
def test_shapes_that_the_original_refuses_are_refused(accelerator):
    flat = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 5))
    fast = InferenceOptimizer.trace(flat, accelerator, input_sample=torch.randn(2, 3, 8, 8))
    with pytest.raises(
        ValueError, match=r"has shape \(4, 3, 4, 4\), but the model was optimised for \('any', 3, 8, 8\)"
    ):
        fast(torch.randn(4, 3, 4, 4))


class Stateful(nn.Module):
    """A state of (layers, rows, features) beside (rows, time, features), and a number without dimensions."""

    def __init__(self):
        super().__init__()
        self.cells = nn.GRU(6, 8, num_layers=2, batch_first=True)

    def forward(self, x, state, scale):
        return self.cells(x, state)[0] * scale


def test_inputs_whose_first_dimension_is_not_that_of_the_rows_are_not_cut():
    inputs = (torch.randn(4, 5, 6), torch.randn(2, 4, 8), torch.tensor(2.0))
    model = Stateful().eval()
    report = InferenceOptimizer().optimize(model, input_sample=inputs, includes=["onnxruntime-fp32"], verbose=0)
    assert report.trials[1].status in ("good", "too slow"), report.trials[1].reason
    with torch.no_grad():
        assert torch.allclose(report.get_model("onnxruntime-fp32")(*inputs), model(*inputs), atol=1e-5)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x):
        return {"answer": self.layer(x), "kind": "logits", "rows": x.shape[0]}


def test_numbers_that_are_no_tensors_and_change_with_the_input_are_refused():
    with pytest.raises(ValueError, match=r"more than tensors, and that changes: .*'rows'.* fixed to 3"):
        InferenceOptimizer.trace(Counting(), "onnxruntime", input_sample=torch.randn(3, 8))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own imports
def test_what_the_user_compiles_is_not_frozen_because_a_plan_is():
    fast = InferenceOptimizer.trace(nn.Linear(8, 4), "compile", input_sample=torch.randn(2, 8))
    fast(torch.randn(2, 8))
    assert not sys.modules["torch._inductor.config"].freezing


def test_an_original_that_nothing_beats_is_saved_as_its_weights(tmp_path):
    model, other = nn.Linear(8, 4), nn.Linear(8, 4)
    InferenceOptimizer.save(model, tmp_path / "kept")
    with pytest.raises(CheckpointError, match=r"weights of an original.*load\(..., model=...\)"):
        InferenceOptimizer.load(tmp_path / "kept")
    assert torch.equal(InferenceOptimizer.load(tmp_path / "kept", model=other).weight, model.weight)
    with pytest.raises(CheckpointError, match="the weights of another model"):
        InferenceOptimizer.load(tmp_path / "kept", model=nn.Linear(3, 3))


def test_names_that_mean_nothing_are_errors_and_not_the_original():
    optimizer = InferenceOptimizer()
    with pytest.raises(ValueError, match=r"includes=\['onnxrumtime'\] names no plan"):
        optimizer.optimize(nn.Linear(8, 4), input_sample=torch.randn(2, 8), includes=["onnxrumtime"], verbose=0)
    optimizer.report_ = report_of(("onnxruntime", 2.0, True))
    with pytest.raises(ValueError, match="no accelerator named 'onnxrumtime'"):
        optimizer.get_best_model(accelerator="onnxrumtime")


def report_of(*found):
    """A report of plans with a runtime, a speed-up, and whether it was measured again."""
    trials = [
        Trial(Plan(runtime), "good", Timing([[1 / speedup]], [[1.0]]), distance=0.0, compared=compared)
        for runtime, speedup, compared in found
    ]
    return Report(
        [Trial(Plan("original"), "original"), *trials], direction="max", load=lambda trial: trial, folder=None
    )


def test_a_lucky_measurement_does_not_beat_what_was_compared_head_to_head():
    report = report_of(("openvino", 900.0, False), ("onnxruntime", 2.0, True))
    assert report.best_trial().name == "onnxruntime-fp32"
    assert report.best_trial(only=lambda trial: trial.plan.runtime == "openvino").name == "openvino-fp32"


# Plans that go wrong are rows


class Moody(nn.Module):
    """Behaves until it is called in inference mode, as torch plans do: then it dies, or hangs if channels are last."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(2, 2, 1)

    def forward(self, x):
        if torch.is_inference_mode_enabled() and not x.is_contiguous():
            time.sleep(600)
        elif torch.is_inference_mode_enabled():
            os.kill(os.getpid(), signal.SIGKILL)
        return self.layer(x)


def test_a_plan_that_crashes_or_hangs_is_a_row_with_its_reason():
    report = InferenceOptimizer().optimize(
        Moody(),
        input_sample=torch.randn(2, 2, 3, 3),
        includes=["torch-fp32", "torch-channels-last-fp32", "onnxruntime-fp32"],
        timeout_s=8,
        verbose=0,
    )
    rows = {trial.name: trial for trial in report.trials}
    for name, reason in (("torch-fp32", "SIGKILL"), ("torch-channels-last-fp32", "took too long: more than 8 s")):
        assert rows[name].status == "failed"
        assert reason in rows[name].reason
    assert rows["onnxruntime-fp32"].status == "good"


class Deciding(nn.Module):
    """What it does depends on the numbers, which no export can follow."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        if x.sum().item() > 0:
            return self.layer(x)
        return torch.relu(self.layer(x))


def test_a_model_that_cannot_be_exported_still_gets_native_plans(tmp_path):
    report = InferenceOptimizer().optimize(
        Deciding(),
        input_sample=torch.ones(2, 8),
        includes=["torch-fp32", "torch-script-fp32", "onnxruntime-fp32"],
        verbose=0,
    )
    rows = {trial.name: trial for trial in report.trials}
    assert rows["torch-fp32"].status == "good"
    assert rows["torch-script-fp32"].status == "failed"  # a trace would follow these numbers for ever
    assert "where this model decides by those of each" in rows["torch-script-fp32"].reason
    assert "the model cannot be exported to ONNX" in rows["onnxruntime-fp32"].reason
    with pytest.raises(ExportError, match="has no form without pickle"):
        InferenceOptimizer.save(report.get_model("torch-fp32"), tmp_path / "x")


class Delicate(nn.Module):
    """Tiny differences decide, on top of large values that take all of int8's range."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16, bias=False)
        self.head = nn.Linear(16, 2, bias=False)
        with torch.no_grad():
            self.layer.weight.copy_(torch.eye(16))
            self.head.weight.zero_()
            self.head.weight[0, 1] = 1.0

    def forward(self, x):
        return self.head(torch.relu(self.layer(x)))


def test_an_int8_that_ruins_the_answers_is_rejected_with_its_score():
    torch.manual_seed(0)
    x = torch.rand(256, 16)
    x[:, 0] *= 1000
    x[:, 1] *= 0.5
    y = (x[:, 1] > 0.25).long()

    def right(outputs, targets):
        return ((outputs[:, 0] > 0.25).long() == targets).float().mean()

    report = InferenceOptimizer().optimize(
        Delicate(), x, validation_data=(x, y), metric=right, includes=["onnxruntime-static-int8"], verbose=0
    )
    trial = report.trials[1]
    assert report.original.score == 1.0
    assert trial.score < 0.9
    assert report.best_trial(max_drop=0.01).status == "original"
    if trial.speedup >= 1.03:
        assert "is too far from the original's 1.0000" in report.rejected(trial)


def test_a_runtime_that_is_not_installed_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    report = InferenceOptimizer().optimize(
        nn.Linear(4, 4), input_sample=torch.ones(1, 4), includes=["openvino", "openvino-fp32"], verbose=0
    )
    assert report.trials[1].reason == 'openvino is not installed; pip install "seamline[inference]"'
    assert "[inference]" in str(report)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({}, ValueError, "nothing to call the model with"),
        ({"input_sample": torch.ones(1, 4), "metric": agreement}, ValueError, "metric= needs validation_data="),
        ({"input_sample": torch.ones(1, 4), "direction": "up"}, ValueError, "no direction 'up'"),
        ({"input_sample": torch.ones(1, 4), "goal": "fun"}, ValueError, "no goal 'fun'"),
        (
            {"input_sample": torch.ones(1, 4), "training_data": torch.ones(9, 5)},
            ValueError,
            r"calibration data has shape \(9, 5\), the sample \(1, 4\)",
        ),
    ],
)
def test_bad_arguments_start_nothing(options, kind, message):
    with pytest.raises(kind, match=message):
        InferenceOptimizer().optimize(nn.Linear(4, 4), verbose=0, **options)


def test_bad_names():
    with pytest.raises(TypeError, match=r"model must be a torch.nn.Module, but got int"):
        InferenceOptimizer().optimize(3, input_sample=torch.ones(1))
    with pytest.raises(ValueError, match="no accelerator named 'tpu'; there are 'onnxruntime', 'openvino'"):
        InferenceOptimizer.trace(nn.Linear(4, 4), "tpu", input_sample=torch.ones(1, 4))
    with pytest.raises(ValueError, match="no fp4 on any runtime here; there is "):
        InferenceOptimizer.quantize(nn.Linear(4, 4), precision="fp4", input_sample=torch.ones(1, 4))
    with pytest.raises(SeamlineError, match="nothing was optimised yet"):
        InferenceOptimizer().summary()
    with pytest.raises(TypeError, match="a int is no model to save"):
        InferenceOptimizer.save(3, "nowhere")


def least_seconds(function, repeats=30):
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_choice_is_never_slower_and_never_wrong(family, searched):
    model, inputs, report = searched(family)
    problems = {trial.name: trial.reason for trial in report.trials if trial.status == "failed"}
    assert not problems
    for trial in report.trials:
        if trial.plan.precision == "fp32":
            assert trial.distance < 1e-4, trial.name
    fast, plan = report.best()
    one = [tensor[:1] for tensor in inputs]
    ours, original = [], []
    for _ in range(3):
        ours.append(least_seconds(lambda: fast(*one)))
        original.append(least_seconds(lambda: model(*one)))
    assert min(ours) < 1.1 * min(original), f"{plan} is slower than the original"
    for rows in (1, 5, 8):
        some = [tensor[:rows] for tensor in inputs]
        for answer, expected in zip(leaves(fast(*some)), leaves(model(*some)), strict=True):
            error = (answer - expected).norm() / expected.norm()
            assert error < (0.06 if plan.precision != "fp32" else 1e-4)


@pytest.mark.parametrize("plan", ["onnxruntime-fp32", "openvino-fp32"])
@pytest.mark.parametrize("family", SEQUENCES)
def test_sequences_of_any_length_and_of_no_rows(family, plan, searched):
    model, inputs, report = searched(family)
    accelerated = report.get_model(plan)
    for length in (7, 13, 41):
        for rows in (1, 3):
            longer = torch.cat([inputs[0]] * 3, 1)[:rows, :length]
            assert np.allclose(accelerated(longer), model(longer).detach(), atol=1e-4)
    assert accelerated(inputs[0][:0]).shape == (0, *model(inputs[0]).shape[1:])


class Sound(nn.Module):
    """Takes (rows, channels, length) of any length, and says how it was told to."""

    def __init__(self):
        super().__init__()
        self.filter, self.head = nn.Conv1d(3, 8, 5), nn.Linear(8, 2)

    def forward(self, x, scaled=False):
        found = self.head(torch.relu(self.filter(x)).mean(2))
        return found * 2 if scaled else found


def lengths(*sizes):
    return torch.utils.data.DataLoader([torch.randn(2, 3, size) for size in sizes], batch_size=None)


def test_a_length_behind_the_channels_is_free_where_two_lengths_are_given():
    model = Sound().bfloat16().eval()
    data = [x.bfloat16() for x in lengths(30, 44)]
    loader = torch.utils.data.DataLoader(data, batch_size=None)
    fast = InferenceOptimizer.trace(model, "onnxruntime", training_data=loader)
    for size in (30, 44, 71):
        x = torch.randn(3, 3, size).bfloat16()
        answer = fast(x, scaled=False)
        assert answer.dtype == torch.bfloat16, "in the type of the original's answers"
        assert torch.allclose(answer, model(x), atol=0.02)
    one = InferenceOptimizer.trace(Sound(), "openvino", input_sample=torch.randn(2, 3, 30))
    with pytest.raises(ValueError, match=r"has shape \(2, 3, 44\), but the model was optimised for \(.*, 30\); if"):
        one(torch.randn(2, 3, 44))
    with pytest.raises(ValueError, match="argument 'scaled' was False when the model was optimised, but is True now"):
        one(torch.randn(2, 3, 30), True)
    whole = nn.Sequential(nn.Flatten(), nn.Linear(90, 2))
    with pytest.raises(ValueError, match=r"\(2, 3, 44\), the sample \(2, 3, 30\), and the model does not take both"):
        InferenceOptimizer.trace(whole, "openvino", training_data=lengths(30, 44))


def test_openvino_keeps_a_bounded_number_of_forms_and_requests(searched):
    model, (tokens,), report = searched("transformer")
    fast = report.get_model("openvino-fp32")
    for length in range(2, 16):
        some = tokens[:1, :length]
        assert torch.allclose(fast(some), model(some), atol=1e-4)
    assert len(fast._predictor._compiled) == openvino.SHAPES_KEPT + 1
    assert len(vars(fast._predictor._mine)) == openvino.SHAPES_KEPT + 1


def test_the_threads_of_a_torch_plan_hold_in_its_calls_and_nowhere_else():
    seen = []

    class Watching(nn.Linear):
        def forward(self, x):
            seen.append(torch.get_num_threads())
            return super().forward(x)

    before = torch.get_num_threads()
    fast = InferenceOptimizer.trace(Watching(8, 4), None, input_sample=torch.randn(2, 8), threads=before + 1)
    fast(torch.randn(2, 8))
    assert (seen[-1], torch.get_num_threads()) == (before + 1, before)


def test_a_model_served_by_openvino_leaves_signal_handlers_usable(fast, tmp_path):
    """Its CPU plugin replaces the stack on which handlers run; without care a child that ends is the program's end."""
    program = tmp_path / "program.py"
    program.write_text(
        "import faulthandler, gc, signal, subprocess, sys, threading, torch\n"
        "from seamline.nano.torch import InferenceOptimizer\n"
        "faulthandler.enable()\n"
        "signal.signal(signal.SIGCHLD, lambda *_: None)\n"
        "held = [InferenceOptimizer.load('fast')]\n"
        "held[0](torch.randn(8, 64))\n"
        "def drop(): held.clear(); gc.collect()\n"
        "thread = threading.Thread(target=drop); thread.start(); thread.join()\n"
        "for _ in range(3): subprocess.run([sys.executable, '-c', ''])\n"
        "print('alive')\n"
    )
    InferenceOptimizer.save(fast["openvino"], tmp_path / "fast")
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "alive" in done.stdout
