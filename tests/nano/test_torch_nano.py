"""TorchNano and @nano: training loops in plain PyTorch, with the numbers they had."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from seamline.core.errors import SeamlineError, WorkerError
from seamline.nano.torch import TorchNano, nano

ROWS, BATCH = 53, 8  # the last batch has 5 rows


def rows():
    torch.manual_seed(1)
    x = torch.randn(ROWS, 6)
    return TensorDataset(x, (x @ torch.randn(6, 3)).argmax(1))


class Net(nn.Module):
    def __init__(self, unused=False):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
        if unused:
            self.idle = nn.Linear(2, 2)

    def forward(self, x):
        return self.layers(x)


def parts(kind="sgd", shuffle=True, unused=False):
    torch.manual_seed(0)
    model = Net(unused)
    optimizer = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[kind](model.parameters(), 0.05)
    return model, optimizer, DataLoader(rows(), BATCH, shuffle=shuffle)


def plain(model, optimizer, loader, epochs=3):
    model.train()
    losses = []
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


class Loop(TorchNano):
    def train(self, kind, shuffle, epochs=3):
        model, optimizer, loader = self.setup(*parts(kind, shuffle))
        model.train()
        for _ in range(epochs):
            for x, y in loader:
                optimizer.zero_grad()
                self.backward(nn.functional.cross_entropy(model(x), y))
                optimizer.step()
        return model.state_dict(), self.rank


def close(one, other):
    return all(torch.allclose(a, b, atol=1e-5, rtol=0) for a, b in zip(one.values(), other.values(), strict=True))


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.values(), other.values(), strict=True))


@pytest.mark.parametrize("kind", ["sgd", "adam"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_one_process_without_auto_gives_the_bits_of_the_loop(kind, shuffle):
    expected = parts(kind, shuffle)
    losses = plain(*expected)
    given = parts(kind, shuffle)
    assert nano(auto=False)(plain)(*given) == losses
    assert equal(expected[0].state_dict(), given[0].state_dict())
    learned, rank = Loop(auto=False).train(kind, shuffle)
    assert rank == 0
    assert equal(expected[0].state_dict(), learned)


@pytest.mark.parametrize("kind", ["sgd", "adam"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_two_processes_learn_what_one_would(kind, shuffle):
    expected = parts(kind, shuffle)
    plain(*expected)
    given = parts(kind, shuffle)
    nano(num_processes=2, auto=False)(plain)(given[0], loader=given[2], optimizer=given[1])
    assert close(expected[0].state_dict(), given[0].state_dict())
    moments = [state.get("exp_avg") for state in given[1].state.values()]
    assert kind == "sgd" or all(moment is not None for moment in moments), "the optimizer came home too"
    learned, rank = Loop(num_processes=2, auto=False).train(kind, shuffle)
    assert rank == 0
    assert close(expected[0].state_dict(), learned)


def test_parameters_that_take_no_part_are_no_obstacle():
    expected = parts(unused=True)
    plain(*expected)
    given = parts(unused=True)
    nano(num_processes=2, auto=False)(plain)(*given)
    assert close(expected[0].state_dict(), given[0].state_dict())


def test_a_loop_written_in_main_or_a_cell_works(tmp_path):
    import subprocess
    import sys

    script = tmp_path / "loop.py"
    script.write_text(
        "import torch\n"
        "from torch import nn\n"
        "from seamline.nano.torch import nano\n"
        "model = nn.Linear(4, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "x = torch.randn(64, 4)\n"
        "loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), 8)\n"
        "@nano(num_processes=2)\n"
        "def train(model, optimizer, loader, epochs):\n"
        "    for _ in range(epochs):\n"
        "        for x, y in loader:\n"
        "            optimizer.zero_grad()\n"
        "            loss = nn.functional.mse_loss(model(x), y)\n"
        "            loss.backward()\n"
        "            optimizer.step()\n"
        "    return loss.item()\n"
        "print('LOSS', train(model, optimizer, loader, epochs=30))\n"
        "print('WEIGHTS', model.weight.detach().round(decimals=2).tolist())\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert "WEIGHTS [[1.0, 1.0, 1.0, 1.0]]" in done.stdout


def test_auto_says_what_it_chose_and_the_model_comes_back_as_it_was(capsys):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 2))
    x = torch.randn(128, 3, 16, 16)
    loader = DataLoader(TensorDataset(x, (x.mean((1, 2, 3)) > 0).long()), 8)
    for layout in (torch.contiguous_format, torch.channels_last):
        model.to(memory_format=layout)
        nano()(plain)(model, torch.optim.Adam(model.parameters(), 0.01), loader, epochs=2)
        assert "seamline: training runs" in capsys.readouterr().out
        assert model[0].weight.is_contiguous(memory_format=layout)
    assert model[0].weight.dtype == torch.float32


@pytest.mark.parametrize("auto", [True, False])
def test_a_precision_that_was_asked_for_stays(auto):
    seen = set()
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    model[0].register_forward_hook(lambda module, inputs, output: seen.add(output.dtype))
    x = torch.randn(64, 3, 8, 8)
    loader = DataLoader(TensorDataset(x, torch.arange(64) % 2), 4)
    nano(precision="bf16", auto=auto)(plain)(model, torch.optim.SGD(model.parameters(), 0.01), loader, epochs=2)
    assert seen == {torch.bfloat16}


def test_a_model_that_its_owner_has_compiled_stays_compiled():
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))
    for part in model:
        part.compile(backend="eager")
    own = [part._compiled_call_impl for part in model]
    nano()(plain)(model, torch.optim.SGD(model.parameters(), 0.01), DataLoader(rows(), BATCH), epochs=3)
    assert [part._compiled_call_impl for part in model] == own


def test_dropout_differs_between_processes_and_the_order_of_rows_does_not():
    class Dropping(TorchNano):
        def train(self):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3))
            model, _, loader = self.setup(
                model, torch.optim.SGD(model.parameters(), 0.1), DataLoader(rows(), BATCH, shuffle=True)
            )
            model.train()
            drawn, seen = [], []
            for x, _y in loader:
                seen.append(x)
                drawn.append(torch.rand(()).item())
            gathered = [None, None]
            torch.distributed.all_gather_object(gathered, (torch.cat(seen), drawn))
            return gathered

    (first, first_drawn), (second, second_drawn) = Dropping(num_processes=2, auto=False).train()
    together = torch.cat([first, second])
    assert len(together) == ROWS
    assert torch.equal(together.sort(0).values, rows().tensors[0].sort(0).values)
    assert not set(first_drawn) & set(second_drawn)


def test_bad_use_is_one_sentence():
    with pytest.raises(TypeError, match="write @nano\\(\\) with parentheses"):
        nano(plain)
    with pytest.raises(TypeError, match="plain was called without a model"):
        nano()(plain)(1, 2, 3)
    with pytest.raises(ValueError, match="no precision 'int3'"):
        nano(precision="int3")
    with pytest.raises(SeamlineError, match="setup and rank are there inside train"):
        Loop().setup(nn.Linear(1, 1))

    def failing(model, optimizer, loader):
        raise KeyError("rows")

    with pytest.raises(WorkerError, match="KeyError: 'rows'"):
        nano(num_processes=2, auto=False)(failing)(*parts())
