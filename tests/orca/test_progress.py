"""What the driver shows: bars, lines or nothing."""

import io

import torch
from rich.console import Console
from torch import nn

from seamline.core.events import Progress
from seamline.orca import Estimator
from seamline.orca.progress import Bars, Lines, Silence, display
from tests.orca.networks import make_network, make_rows


def fit(**options):
    model = make_network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    est = Estimator.from_torch(model=model, optimizer=optimizer, loss=nn.CrossEntropyLoss())
    return est.fit(make_rows(), epochs=2, batch_size=10, **options)


def test_plain_lines_where_there_is_no_terminal(capsys):
    est = fit(workers=2)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["epoch 1/2", "epoch 2/2"]
    assert f"loss {est.history_[1]['loss']:.4f}" in lines[1]
    assert "rows/s" in lines[1]


def test_nothing_when_silent(capsys):
    fit(verbose=0)
    assert capsys.readouterr().out == ""
    assert isinstance(display(0), Silence)
    assert isinstance(display(1), Lines)


def test_bars_in_a_terminal():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=150)
    with Bars(console) as bars:
        for step in (1, 5, 10):
            bars(0, Progress(epoch=0, epochs=3, step=step, steps=10, rows_per_s=9.0, loss=0.5))
        over = Progress(
            epoch=0, epochs=3, step=10, steps=10, rows_per_s=9.0, loss=0.5, logs={"val_loss": 0.25}, epoch_over=True
        )
        bars(0, over)
    shown = screen.getvalue()
    for part in ("epoch 1/3", "10/10", "val_loss 0.2500"):
        assert part in shown
