"""A Lightning script as people write them: digits in a data module, checkpoints, early stopping, a test."""

import tempfile

import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split
from torchmetrics import Accuracy


class Digits(LightningDataModule):
    def setup(self, stage):
        digits = load_digits()
        images = torch.tensor(digits.images / 16, dtype=torch.float32).flatten(1)
        data = TensorDataset(images, torch.tensor(digits.target))
        self.training, self.validation = random_split(data, [1500, 297], torch.Generator().manual_seed(0))

    def train_dataloader(self):
        return DataLoader(self.training, 32, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.validation, 64)

    test_dataloader = val_dataloader


class Classifier(LightningModule):
    def __init__(self, width=128, rate=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 10))
        self.right = Accuracy("multiclass", num_classes=10)

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.net(images), labels)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        out = self.net(images)
        self.log("val_loss", nn.functional.cross_entropy(out, labels), prog_bar=True)
        self.right(out, labels)
        self.log("val_acc", self.right)

    test_step = validation_step

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), self.hparams.rate)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)}


seed_everything(0, verbose=False)
with tempfile.TemporaryDirectory() as folder:
    best = ModelCheckpoint(folder, monitor="val_loss")
    trainer = Trainer(
        max_epochs=8,
        callbacks=[best, EarlyStopping("val_loss"), LearningRateMonitor()],
        logger=CSVLogger(folder),
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(), datamodule=Digits())
    model = Classifier.load_from_checkpoint(best.best_model_path)
    print("ACCURACY", trainer.test(model, datamodule=Digits(), verbose=False)[0]["val_acc"])
