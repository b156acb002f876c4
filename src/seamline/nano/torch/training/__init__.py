"""Training on the machine at hand: what ``Trainer``, ``TorchNano`` and ``@nano`` share."""
