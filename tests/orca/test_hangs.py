"""Workers that wait for one that does not come: who it is and what it does, in time."""

import time

import pytest
import torch
from torch import nn

from seamline.core.errors import HangError
from seamline.orca import Estimator
from seamline.testing.faults import SlowDown, Stall
from tests.orca.networks import ROWS, make_network, make_rows

TIMEOUT_S = 1.0


class Rows(torch.utils.data.Dataset):
    """Rows of which one never comes."""

    def __init__(self, slow):
        self.x, self.y = make_rows()
        self.slow = slow

    def __len__(self):
        return len(self.x)

    def __getitem__(self, row):
        if row == self.slow:
            read_from_a_slow_disk()
        return self.x[row], self.y[row]


def read_from_a_slow_disk():
    time.sleep(1e6)


def fit(data=None, faults=(), timeout_s=TIMEOUT_S):
    model = make_network()
    estimator = Estimator.from_torch(
        model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=nn.CrossEntropyLoss()
    )
    options = {"workers": 2, "faults": faults, "timeout_s": timeout_s, "verbose": 0}
    return estimator.fit(data or make_rows(), batch_size=None if data else 10, **options)


@pytest.mark.parametrize("fault", [{"step": 3}, {"phase": "start"}, {"phase": "join"}, {"phase": "finish"}])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_that_stalls_is_named_with_what_it_does(fault, rank):
    with pytest.raises(HangError) as caught:
        fit(faults=[Stall(rank=rank, **fault)])
    text = str(caught.value)
    assert f"missing: worker {rank}." in text
    stalled = text.split(f"worker {rank}, ")[1].split("\n\n")[0]
    assert "time.sleep(self.seconds)" in stalled
    assert "does not wait for its peers" in stalled
    assert f"worker {1 - rank}, " in text
    assert "waits for its peers" in text.split(f"worker {1 - rank}, ")[1]
    waited = float(text.split("waited for ")[1].split(" s")[0])
    assert TIMEOUT_S <= waited < TIMEOUT_S + 1


def test_slow_data_is_named():
    loader = torch.utils.data.DataLoader(Rows(slow=77), batch_size=10)
    with pytest.raises(HangError, match="read_from_a_slow_disk"):
        fit(data=loader)


def test_a_worker_that_is_only_slow_is_waited_for():
    fit(faults=[SlowDown(rank=1, seconds=TIMEOUT_S / 2, step=8)]).ledger_.check(ROWS)
    fit(faults=[SlowDown(rank=1, seconds=0.4, step=8)], timeout_s=None).ledger_.check(ROWS)
