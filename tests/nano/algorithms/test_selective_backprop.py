"""Selective backprop: which rows are chosen, what stays untouched, and the Lightning callback."""

import lightning
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from seamline.nano.torch.algorithms import SelectiveBackprop, SelectiveBackpropCallback, select


def test_top_takes_the_hardest_rows_in_their_own_order():
    losses = torch.tensor([0.5, 3.0, 0.1, 2.0, 1.0, 0.2])
    assert select(losses, 0.5, how="top").tolist() == [1, 3, 4]


def test_percentile_draws_hard_rows_more_often_and_forgets_no_row():
    losses = torch.arange(10.0).flip(0)  # row 0 is the hardest
    generator = torch.Generator().manual_seed(0)
    drawn = torch.zeros(10)
    for _ in range(4000):
        chosen = select(losses, 0.3, generator)
        assert len(chosen) == 3
        assert len(set(chosen.tolist())) == 3
        assert chosen.tolist() == sorted(chosen.tolist())
        drawn[chosen] += 1
    assert (drawn[:-1] >= drawn[1:] - 120).all()
    assert drawn[0] > 2000
    assert drawn[-1] > 0


def test_the_first_draw_follows_the_percentile_to_the_power_of_the_paper():
    """With one row kept of four, its distribution is the weights themselves."""
    generator = torch.Generator().manual_seed(0)
    counts = torch.zeros(4)
    for _ in range(8_000):
        counts[select(torch.arange(4.0), 0.25, generator)] += 1
    percentile = torch.tensor([0.125, 0.375, 0.625, 0.875])
    expected = percentile**3 / (percentile**3).sum()
    torch.testing.assert_close(counts / 8_000, expected, atol=0.02, rtol=0)


def test_draws_are_repeatable_and_leave_global_random_numbers_alone():
    model, batch = nn.Linear(3, 2), (torch.randn(8, 3), torch.randint(0, 2, (8,)))
    before = torch.get_rng_state()
    one = SelectiveBackprop(seed=7, interrupt=0).filter(model, functional.cross_entropy, batch)
    other = SelectiveBackprop(seed=7, interrupt=0).filter(model, functional.cross_entropy, batch)
    assert torch.equal(one[0], other[0])
    assert torch.equal(torch.get_rng_state(), before)


class Watched(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.frozen = nn.BatchNorm1d(3).eval()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.frozen(self.norm(x)))


def test_a_look_changes_no_average_no_mode_and_no_gradient():
    model = Watched()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    batch = (torch.randn(8, 3), torch.randn(8, 3))
    x, y = SelectiveBackprop(how="top", interrupt=0).filter(model, nn.MSELoss(), batch)
    assert len(x) == len(y) == 4
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert (model.training, model.norm.training, model.frozen.training) == (True, True, False)
    assert not x.requires_grad
    losses = (batch[0] / (1 + 1e-5) - batch[1]).square().mean(dim=1)
    assert torch.equal(x, batch[0][losses.topk(4).indices.sort().values])


def test_every_nth_batch_stays_whole():
    model, batch = nn.Linear(3, 2), (torch.randn(8, 3), torch.randint(0, 2, (8,)))
    selective = SelectiveBackprop(keep=0.25, interrupt=3)
    sizes = [len(selective.filter(model, nn.CrossEntropyLoss(), batch)[1]) for _ in range(6)]
    assert sizes == [2, 2, 8, 2, 2, 8]


def test_it_is_active_between_start_and_end():
    model, batch = nn.Linear(3, 2), (torch.randn(8, 3), torch.randint(0, 2, (8,)))
    selective = SelectiveBackprop(start=0.25, end=0.75, interrupt=0)
    sizes = [len(selective.filter(model, nn.CrossEntropyLoss(), batch, progress=p / 8)[1]) for p in range(8)]
    assert sizes == [8, 8, 4, 4, 4, 4, 8, 8]
    with pytest.raises(ValueError, match="pass progress=step / steps"):
        selective.filter(model, nn.CrossEntropyLoss(), batch)


class TwoInputs(nn.Module):
    def forward(self, a, b):
        return a + b


@pytest.mark.parametrize("form", [tuple, list, lambda pair: {"a": pair[0], "b": pair[1]}])
def test_several_inputs_are_selected_together(form):
    a, b = torch.arange(6.0).reshape(6, 1), torch.zeros(6, 1)
    batch = [form((a, b)), torch.zeros(6, 1)]
    inputs, targets = SelectiveBackprop(how="top", interrupt=0).filter(TwoInputs(), nn.MSELoss(), batch)
    chosen = inputs["a"] if isinstance(inputs, dict) else inputs[0]
    assert chosen.flatten().tolist() == [3, 4, 5]
    assert len(targets) == 3


def test_a_function_that_gives_losses_by_row_will_do():
    batch = (torch.arange(4.0).reshape(4, 1), torch.zeros(4, 1))
    x, _ = SelectiveBackprop(how="top", interrupt=0).filter(
        nn.Identity(), lambda outputs, targets: (outputs - targets).abs().flatten(), batch
    )
    assert x.flatten().tolist() == [2, 3]


def test_a_loss_of_the_whole_batch_is_refused_with_what_to_do():
    batch = (torch.randn(4, 1), torch.zeros(4, 1))
    with pytest.raises(ValueError, match=r"the loss gave \(\) for 4 rows; .* use a loss that takes reduction=\"none\""):
        SelectiveBackprop(interrupt=0).filter(nn.Identity(), lambda o, t: (o - t).square().mean(), batch)


def test_a_batch_of_another_form_is_refused():
    with pytest.raises(TypeError, match=r"the form \(inputs, targets\), but got tuple of 3"):
        SelectiveBackprop(interrupt=0).filter(nn.Identity(), nn.MSELoss(), (torch.zeros(2),) * 3)


@pytest.mark.parametrize(
    "options", [{"keep": 0.0}, {"keep": 1.5}, {"start": 0.5, "end": 0.5}, {"interrupt": 1}, {"how": "best"}]
)
def test_impossible_options_are_refused(options):
    with pytest.raises(ValueError, match=r"must hold|interrupt=1|no way to select named 'best'"):
        SelectiveBackprop(**options)


class Module(lightning.LightningModule):
    def __init__(self, fails=False):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 2)
        self.sizes, self.fails = [], fails

    def forward(self, x):
        return self.layer(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        self.sizes.append(len(y))
        if self.fails:
            raise RuntimeError("as asked")
        return functional.cross_entropy(self(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trainer(folder, *callbacks, **options):
    return lightning.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder, callbacks=list(callbacks), **options,
    )  # fmt: skip


@pytest.fixture
def loader():
    generator = torch.Generator().manual_seed(1)
    rows = TensorDataset(torch.randn(32, 3, generator=generator), torch.randint(0, 2, (32,), generator=generator))
    return DataLoader(rows, batch_size=8)


quiet = pytest.mark.filterwarnings(  # Lightning's advice on loaders, and its own use of what torch deprecates
    "ignore::lightning.pytorch.utilities.warnings.PossibleUserWarning",
    "ignore:`isinstance.treespec, LeafSpec.` is deprecated",
)


@quiet
def test_a_lightning_run_trains_on_the_hard_part(tmp_path, loader):
    module = Module()
    callback = SelectiveBackpropCallback(functional.cross_entropy, 0.25, start=0.5, interrupt=3)
    trainer(tmp_path, callback, max_epochs=2).fit(module, loader)
    assert module.sizes == [8, 8, 8, 8, 2, 2, 8, 2]
    assert "training_step" not in vars(module)


@quiet
def test_a_run_that_fails_leaves_the_module_as_it_was(tmp_path, loader):
    module = Module(fails=True)
    with pytest.raises(RuntimeError, match="as asked"):
        trainer(tmp_path, SelectiveBackpropCallback(nn.CrossEntropyLoss()), max_epochs=1).fit(module, loader)
    assert "training_step" not in vars(module)


@quiet
def test_the_callback_trains_what_a_loop_of_ones_own_trains(tmp_path, loader):
    module, own = Module(), Module()
    trainer(tmp_path, SelectiveBackpropCallback(nn.CrossEntropyLoss(), seed=5), max_epochs=1).fit(module, loader)
    selective, optimizer = SelectiveBackprop(seed=5), own.configure_optimizers()
    for batch in loader:
        x, y = selective.filter(own, nn.CrossEntropyLoss(), batch)
        optimizer.zero_grad()
        functional.cross_entropy(own(x), y).backward()
        optimizer.step()
    assert torch.equal(module.layer.weight, own.layer.weight)
