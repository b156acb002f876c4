"""Torch: the framework contract."""

import torch
from torch import nn

from seamline.orca import Estimator
from seamline.testing import FrameworkContract
from seamline.testing.framework_contract import CLASSES, FEATURES


def accuracy(outputs, targets):
    return (outputs.argmax(1) == targets).float().mean()


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, CLASSES))


OPTIMIZERS = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    "adam": lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
}


class TestTorchFramework(FrameworkContract):
    def make(self, optimizer, **options):
        model = make_model()
        return Estimator.from_torch(
            model=model,
            optimizer=OPTIMIZERS[optimizer](model),
            loss=nn.CrossEntropyLoss(),
            metrics=[accuracy],
            **options,
        )

    def weights(self, estimator):
        return [parameter.detach().numpy() for parameter in estimator.get_model().parameters()]
