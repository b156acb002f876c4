"""Programs of others, run unchanged: Lightning's with our Trainer, torchvision's without it, CUDA's on a CPU."""

import importlib
import json
import os
import subprocess
import sys
import threading
import types

import pytest
import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from seamline.core.errors import SeamlineError
from seamline.nano.torch.patching import Patched, patch_cuda, patch_torch, unpatch_cuda, unpatch_torch


def python(program, folder, *flags, before="", **variables):
    """What a program prints; ``before`` is what comes in front of its first line."""
    (folder / "program.py").write_text(before + program)
    command = [sys.executable, *flags, "program.py"]
    environment = {**os.environ, **variables}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, check=False, cwd=folder, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# Lightning and torchvision

PATCH_TORCH = "from seamline.nano.torch.patching import patch_torch\npatch_torch()\n"

LIGHTNING = """
import lightning.pytorch as pl
import pytorch_lightning
import torch
import torchmetrics.image
import torchvision
import torchvision.transforms as T
from lightning import Trainer
from pytorch_lightning.callbacks import Callback, EarlyStopping
from torch.utils.data import DataLoader, TensorDataset
from torchvision import datasets, transforms
from torchvision.datasets import ImageFolder

from seamline.nano.torch import vision


class Module(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return (self.layer(x) - y).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


torch.manual_seed(0)
module = Module()
rows = TensorDataset(torch.randn(16, 2), torch.randn(16, 1))
trainer = Trainer(max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(module, DataLoader(rows, batch_size=4))
print(trainer.global_step, Trainer.__module__.partition(".")[0], pl.Trainer is Trainer is pytorch_lightning.Trainer)
print(Callback is pl.Callback, EarlyStopping.__module__)
print(transforms is T is torchvision.transforms is vision.transforms, ImageFolder is vision.datasets.ImageFolder)
print(T.__spec__.name, T.Compose([torch.neg])(torch.ones(1)).item())
"""


def test_a_lightning_program_gets_the_accelerated_trainer_and_our_vision_under_every_name(tmp_path):
    assert python(LIGHTNING, tmp_path, before=PATCH_TORCH).splitlines()[-4:] == [
        "8 seamline True",
        "True lightning.pytorch.callbacks.early_stopping",
        "True True",
        "seamline.nano.torch.vision.transforms -1.0",
    ]


@pytest.fixture
def lightning_packages():
    import lightning
    import lightning.pytorch.trainer.trainer

    import seamline.nano.torch.trainer
    import seamline.nano.torch.vision  # noqa: F401

    yield [lightning, lightning.pytorch, lightning.pytorch.trainer, lightning.pytorch.trainer.trainer]
    unpatch_torch()


@pytest.fixture
def torchvision_of_others(tmp_path, monkeypatch, lightning_packages):
    """A package of that name: whether the real one works with this torch is not the question."""
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").touch()
    (tmp_path / "torchvision" / "transforms.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    theirs = importlib.import_module("torchvision")
    yield theirs
    unpatch_torch()
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]


def test_a_torchvision_that_is_there_is_left_alone(torchvision_of_others):
    assert patch_torch().packages == ("pytorch_lightning",)
    assert importlib.import_module("torchvision.transforms").__name__ == "torchvision.transforms"


def test_a_torchvision_that_is_there_is_replaced_if_asked_and_given_back(torchvision_of_others):
    assert patch_torch(vision=True).packages == ("pytorch_lightning", "torchvision")
    ours = importlib.import_module("torchvision.transforms")
    assert ours.__name__ == "seamline.nano.torch.vision.transforms"
    unpatch_torch()
    assert sys.modules["torchvision"] is torchvision_of_others
    assert importlib.import_module("torchvision.transforms").__name__ == "torchvision.transforms"


def test_everything_is_as_it_was_after_unpatching(lightning_packages):
    attributes = [dict(vars(module)) for module in lightning_packages]
    modules, finders = dict(sys.modules), list(sys.meta_path)
    done = patch_torch()
    assert done.packages == ("pytorch_lightning", "torchvision")
    assert patch_torch() is done
    import pytorch_lightning.callbacks
    import torchvision.transforms

    assert lightning_packages[0].Trainer.__module__.startswith("seamline.")
    unpatch_torch()
    unpatch_torch()
    for module, before in zip(lightning_packages, attributes, strict=True):
        assert all(vars(module)[name] is value for name, value in before.items())
        assert set(vars(module)) == set(before)
    assert sys.modules.keys() == modules.keys()
    assert all(sys.modules[name] is module for name, module in modules.items())
    assert sys.meta_path == finders
    assert torchvision.transforms.__spec__.name == "seamline.nano.torch.vision.transforms"
    assert pytorch_lightning.callbacks.__spec__.name == "lightning.pytorch.callbacks"


def test_what_our_vision_does_not_have_is_not_found(lightning_packages):
    patch_torch()
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'torchvision.models'"):
        import torchvision.models  # noqa: F401


def test_the_copy_of_lightning_must_not_be_there_before(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytorch_lightning", types.ModuleType("pytorch_lightning"))
    with pytest.raises(SeamlineError, match=r"^pytorch_lightning is imported already; call patch_torch\(\) before it$"):
        patch_torch()


# CUDA

TRAINING = """
import threading
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.cuda.manual_seed_all(0)
torch.backends.cudnn.benchmark = True
device = torch.device("cuda:0")
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).cuda()
criterion = nn.CrossEntropyLoss().to("cuda", non_blocking=True)
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler("cuda", enabled=False)
weight = torch.ones(2, device="cuda")
generator = torch.Generator(device="cuda").manual_seed(3)
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
for step in range(5):
    x = torch.randn(16, 4, generator=generator, device=device)
    y = torch.randint(0, 2, (16,), device="cuda", generator=generator)
    with torch.autocast("cuda", enabled=False):
        loss = criterion(model(x) * weight, y.to(device=0).cuda(0, non_blocking=True))
    optimizer.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
end.record()
torch.cuda.synchronize()
torch.cuda.empty_cache()
assert start.elapsed_time(end) > 0
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    copied = x.pin_memory().to("cuda:0", torch.float64, non_blocking=True)
torch.cuda.current_stream().wait_stream(side)
assert copied.dtype == torch.float64
torch.save(model.state_dict(), "weights.pt")
for place in ("cuda", torch.device("cuda:0"), {"cuda:0": "cuda:1"}, None):
    again = torch.load("weights.pt", map_location=place, weights_only=True)
with device:
    assert torch.zeros(2).device == x.device
torch.set_default_device("cuda")
assert torch.arange(3).device == x.device
torch.set_default_device(None)
seen = []
thread = threading.Thread(target=lambda: seen.append(torch.zeros(1, device="cuda").device))
thread.start()
thread.join()
assert seen == [x.device]
assert torch.cuda.FloatTensor([1.0]).type("torch.cuda.DoubleTensor").dtype == torch.float64
assert isinstance(generator, torch.Generator) and not isinstance(x, torch.Generator)
model = nn.DataParallel(model, device_ids=[0])
compiled = torch.compile(lambda v: v + torch.ones(4, device="cuda"), backend="eager")
assert torch.equal(compiled(x), x + 1)
print(torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.max_memory_allocated(), x.device)
print(again["0.weight"].flatten().tolist())
"""

PATCH_CUDA = "from seamline.nano.torch.patching import patch_cuda\npatch_cuda()\n"


def learned_on_a_cpu():
    """What the part of the program that computes gives when it is written for a CPU."""
    program = TRAINING.partition("end.record()")[0]
    for cuda, cpu in (
        ("start, end = ", "# "), ("start.record()", ""), (".cuda()", ""), (".cuda(0, non_blocking=True)", ""),
        ("device=0", "device='cpu'"), ('"cuda:0"', '"cpu"'), ('"cuda"', '"cpu"'),
    ):  # fmt: skip
        program = program.replace(cuda, cpu)
    found = {}
    exec(program, found)
    return found["model"][0].weight.flatten().tolist()


def test_a_program_for_cuda_learns_on_a_cpu_what_one_for_cpus_learns(tmp_path):
    told, learned = python(TRAINING, tmp_path, "-W", "error", before=PATCH_CUDA).splitlines()
    assert told == "False 0 0 cpu"
    assert json.loads(learned) == pytest.approx(learned_on_a_cpu(), abs=1e-6)
    assert len(json.loads(learned)) == 32


@pytest.fixture
def undone():
    yield
    unpatch_cuda()


def test_cuda_is_said_to_be_available_only_on_request(undone):
    patch_cuda(available=True)
    assert (torch.cuda.is_available(), torch.cuda.device_count()) == (True, 1)
    assert torch.cuda.get_device_name(0) == "CPU in place of CUDA"
    unpatch_cuda()
    assert not torch.cuda.is_available()


def test_other_devices_and_numbers_that_are_no_devices_stay(undone):
    patch_cuda()
    x = torch.ones(3, 4)
    assert x.to("meta").device.type == "meta"
    assert x.to(torch.zeros(1, dtype=torch.float16)).dtype == torch.float16
    assert x.to(torch.int8).dtype == torch.int8
    assert torch.full((1,), 3, dtype=torch.int64).item() == 3
    assert x.cuda(memory_format=torch.preserve_format) is x
    module = torch.nn.Linear(1, 1)
    assert module.to(0).to(device=0).to(torch.float64).weight.dtype == torch.float64
    assert module.to("meta").weight.device.type == "meta"


def test_cuda_is_as_absent_as_before_after_unpatching():
    import torch._dynamo  # it adds modules below torch.cuda when it comes

    owners = (torch, torch.cuda, torch.jit, torch.nn.Module, DeviceContext, threading.Thread)
    attributes, modes = [dict(vars(owner)) for owner in owners], _get_current_function_mode_stack()
    try:
        done = patch_cuda()
        assert patch_cuda() is done
        assert {"torch.load", "torch.cuda.synchronize", "torch.Generator"} <= set(done.names)
        assert torch.ones(2, device="cuda").cuda().sum() == 2
    finally:
        unpatch_cuda()
    unpatch_cuda()
    for owner, before in zip(owners, attributes, strict=True):
        assert vars(owner).keys() == before.keys()
        assert all(vars(owner)[name] is value for name, value in before.items())
    assert _get_current_function_mode_stack() == modes
    with pytest.raises((AssertionError, RuntimeError)):
        torch.ones(2, device="cuda")


def test_where_cuda_is_there_nothing_is_changed_and_that_is_said(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.warns(UserWarning, match=r"this machine has CUDA, and patch_cuda\(\) leaves everything as it is"):
        assert patch_cuda() == Patched()
    unpatch_cuda()
    assert not _get_current_function_mode_stack()
