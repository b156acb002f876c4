"""Accumulation to a target batch, as a number and as a Lightning callback."""

import subprocess
import sys

import lightning
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from seamline.nano.torch.algorithms import AccumulateTo, accumulate_to

pytestmark = pytest.mark.filterwarnings(  # Lightning's advice on loaders, and its own use of what torch deprecates
    "ignore::lightning.pytorch.utilities.warnings.PossibleUserWarning",
    "ignore:`isinstance.treespec, LeafSpec.` is deprecated",
)


def test_lightning_is_imported_only_for_its_callbacks():
    program = (
        "import sys, seamline.nano.torch.algorithms as a; assert 'lightning' not in sys.modules\n"
        "sys.modules['lightning'] = None\n"
        "try:\n    a.AccumulateTo\nexcept ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == 'lightning is not installed; pip install "seamline[lightning]"\n'


def test_the_number_of_batches():
    assert accumulate_to(256, 32) == 8
    assert accumulate_to(32, 32) == 1


@pytest.mark.parametrize(
    ("target", "batch", "message"),
    [
        (100, 32, "target_batch=100 is not a multiple of batch_size=32; the nearest that is: 96 or 128"),
        (16, 32, "target_batch=16 is not a multiple of batch_size=32; the nearest that is: 32 or 64"),
        (0, 32, "must be positive"),
    ],
)
def test_what_does_not_divide_is_refused(target, batch, message):
    with pytest.raises(ValueError, match=message):
        accumulate_to(target, batch)


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 1)
        self.planned_steps = None

    def training_step(self, batch):
        x, y = batch
        return (self.layer(x) - y).square().mean()

    def configure_optimizers(self):
        self.planned_steps = self.trainer.estimated_stepping_batches
        return torch.optim.SGD(self.parameters(), lr=0.1)


class ModuleWithData(Module):
    """The older style: the module makes its data in ``setup``."""

    def setup(self, stage):
        self.rows = rows()

    def train_dataloader(self):
        return DataLoader(self.rows, batch_size=8)


def rows():
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(64, 3, generator=generator), torch.randn(64, 1, generator=generator))


def fit(folder, module, callback, loader=None, **options):
    trainer = lightning.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, max_epochs=1,
        enable_model_summary=False, default_root_dir=folder, callbacks=[callback] if callback else [], **options,
    )  # fmt: skip
    trainer.fit(module, loader)
    return trainer


def test_small_batches_learn_what_one_large_batch_learns(tmp_path):
    small, large = Module(), Module()
    trainer = fit(tmp_path, small, AccumulateTo(target_batch=32), DataLoader(rows(), batch_size=8))
    fit(tmp_path, large, None, DataLoader(rows(), batch_size=32))
    assert trainer.global_step == 2
    torch.testing.assert_close(small.layer.weight, large.layer.weight, atol=1e-6, rtol=0)


def test_schedules_see_the_updates_that_there_will_be(tmp_path):
    module = Module()
    fit(tmp_path, module, AccumulateTo(target_batch=16), DataLoader(rows(), batch_size=8))
    assert module.planned_steps == 4


def test_a_module_that_makes_its_own_data_is_asked_after_its_setup(tmp_path):
    assert fit(tmp_path, ModuleWithData(), AccumulateTo(target_batch=32)).global_step == 2


def test_the_trainer_is_as_it_was_afterwards(tmp_path):
    callback = AccumulateTo(target_batch=32)
    trainer = fit(tmp_path, Module(), callback, DataLoader(rows(), batch_size=8))
    assert trainer.accumulate_grad_batches == 1
    trainer.fit(Module(), DataLoader(rows(), batch_size=16))


class FailsOnce(Module):
    failed = False

    def training_step(self, batch):
        if not self.failed:
            self.failed = True
            raise RuntimeError("as asked")
        return super().training_step(batch)


def test_a_callback_serves_again_after_a_run_that_failed(tmp_path):
    module, loader = FailsOnce(), DataLoader(rows(), batch_size=8)
    with pytest.raises(RuntimeError, match="as asked"):
        fit(tmp_path, module, callback := AccumulateTo(target_batch=32), loader)
    assert fit(tmp_path, module, callback, loader).global_step == 2


def test_a_batch_that_does_not_divide_is_refused_before_training(tmp_path):
    with pytest.raises(ValueError, match="target_batch=20 is not a multiple of batch_size=8"):
        fit(tmp_path, Module(), AccumulateTo(target_batch=20), DataLoader(rows(), batch_size=8))


class Stream:
    """Batches of which nobody knows the size beforehand."""

    def __iter__(self):
        return iter(DataLoader(rows(), batch_size=8))

    def __len__(self):
        return 8


def test_a_loader_without_a_batch_size_has_to_be_told(tmp_path):
    loader = Stream()
    with pytest.raises(ValueError, match="cannot read one batch size"):
        fit(tmp_path, Module(), AccumulateTo(target_batch=32), loader)
    assert fit(tmp_path, Module(), AccumulateTo(target_batch=32, batch_size=8), loader).global_step == 2


def test_accumulation_that_is_set_already_is_not_overridden(tmp_path):
    with pytest.raises(ValueError, match="accumulate_grad_batches=2 is set already"):
        fit(tmp_path, Module(), AccumulateTo(64), DataLoader(rows(), batch_size=8), accumulate_grad_batches=2)
