"""Lightning's ``Trainer``, faster on the machine at hand."""

from seamline.nano.torch.trainer.trainer import Trainer

__all__ = ["Trainer"]
