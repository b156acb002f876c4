"""Programs written for plain PyTorch and for Lightning run as they are, but for an import."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from lightning.pytorch.demos.boring_classes import BoringDataModule, BoringDataModuleNoLen, BoringModel, DemoModel
from lightning.pytorch.demos.lstm import LightningLSTM
from lightning.pytorch.demos.transformer import LightningTransformer
from torch.utils.data import DataLoader, TensorDataset

from seamline.nano.torch import Trainer

PROGRAMS = Path(__file__).parent / "programs"


def accuracy_of(source, folder, *arguments, **variables):
    script = folder / "script.py"
    script.write_text(source)
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("ACCURACY"))
    return float(line.split()[1]), done.stdout + done.stderr


@pytest.fixture(scope="module")
def plain_accuracies(tmp_path_factory):
    """What the programs reach as they are."""
    programs = {"plain_loop": ["6"], "lightning_script": []}

    def reached(name):
        source = (PROGRAMS / f"{name}.py").read_text()
        return accuracy_of(source, tmp_path_factory.mktemp(name), *programs[name], OMP_NUM_THREADS="1")[0]

    with ThreadPoolExecutor() as pool:  # side by side, each on one core
        found = dict(zip(programs, pool.map(reached, programs), strict=True))
    assert min(found.values()) > 0.9
    return found


@pytest.mark.parametrize("wishes", ["", "num_processes=2"])
def test_a_plain_training_script_with_a_decorator(tmp_path, wishes, plain_accuracies):
    source = (PROGRAMS / "plain_loop.py").read_text()
    decorated = source.replace("import sys\n", "import sys\nfrom seamline.nano.torch import nano\n", 1)
    decorated = decorated.replace("def train(", f"@nano({wishes})\ndef train(")
    ours, said = accuracy_of(decorated, tmp_path, "6")
    assert abs(ours - plain_accuracies["plain_loop"]) <= 0.02
    assert "seamline: training runs" in said


@pytest.mark.parametrize("wishes", ["", "num_processes=2, "])
def test_a_lightning_script_with_another_import(tmp_path, wishes, plain_accuracies):
    source = (PROGRAMS / "lightning_script.py").read_text()
    changed = source.replace("LightningModule, Trainer, seed_everything", "LightningModule, seed_everything")
    changed = changed.replace("from sklearn", "from seamline.nano.torch import Trainer\nfrom sklearn", 1)
    changed = changed.replace("trainer = Trainer(\n", f"trainer = Trainer(\n        {wishes}\n")
    ours, said = accuracy_of(changed, tmp_path)
    assert abs(ours - plain_accuracies["lightning_script"]) <= 0.02
    assert "seamline: training runs" in said


@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.parametrize(("data", "processes"), [(BoringDataModule, 1), (BoringDataModuleNoLen, 2)])
def test_lightnings_own_demonstrations(tmp_path, data, processes):
    trainer = Trainer(
        num_processes=processes, max_epochs=1, limit_train_batches=8, limit_val_batches=2, default_root_dir=tmp_path,
        accelerator="cpu", enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    model = BoringModel()
    before = model.layer.weight.clone()
    trainer.fit(model, datamodule=data())
    assert trainer.global_step == 8
    assert not torch.equal(before, model.layer.weight)
    trainer.validate(model, datamodule=data(), verbose=False)
    if processes == 1:  # two processes test in test_trainer.py
        trainer.test(model, datamodule=data(), verbose=False)


@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.parametrize("kind", [LightningTransformer, LightningLSTM, DemoModel])
def test_lightnings_language_models(tmp_path, kind):
    torch.manual_seed(0)
    if kind is DemoModel:
        model, loader = DemoModel(), DataLoader(torch.randn(64, 32), 4)
    else:
        tokens = torch.randint(0, 50, (64, 12))
        model, loader = kind(vocab_size=50), DataLoader(TensorDataset(tokens, tokens.roll(-1, 1)), 4)
        model.prepare_data = lambda: None  # it would download a corpus
    trainer = Trainer(
        max_epochs=1, default_root_dir=tmp_path, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, loader)
    assert trainer.global_step == 16
