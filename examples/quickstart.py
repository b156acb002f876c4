"""Train a small network on real handwritten digits with two worker processes, then let it answer.

The 1,797 digits ship inside scikit-learn, so nothing is downloaded. Run it with ``make demo``.
"""

import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from seamline.orca import Estimator

digits = load_digits()
images = digits.images[:, None].astype("float32") / 16
x, x_test, y, y_test = train_test_split(images, digits.target, test_size=0.25, random_state=0)


class DigitNet(nn.Module):
    """Two convolutions and a decision."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.classify = nn.Sequential(nn.Flatten(), nn.Dropout(0.25), nn.Linear(64 * 4 * 4, 10))

    def forward(self, image):
        return self.classify(self.features(image))


def accuracy(outputs, targets):
    return (outputs.argmax(1) == targets).float().mean()


model = DigitNet()
estimator = Estimator.from_torch(
    model=model,
    optimizer=torch.optim.Adam(model.parameters(), lr=2e-3),
    loss=nn.CrossEntropyLoss(),
    metrics=accuracy,
)

print(f"Training on {len(x)} digits with two worker processes.")
estimator.fit((x, y), epochs=6, batch_size=64, validation_data=(x_test, y_test), workers=2)

scores = estimator.evaluate((x_test, y_test))
print(f"\nOn {len(x_test)} digits it has never seen: accuracy {scores['accuracy']:.1%}, loss {scores['loss']:.3f}")

with tempfile.TemporaryDirectory() as folder:
    estimator.save(Path(folder) / "digits")
    size = sum(file.stat().st_size for file in (Path(folder) / "digits").iterdir())
    again = Estimator.from_torch(model=DigitNet(), loss=nn.CrossEntropyLoss(), metrics=accuracy)
    again.load(Path(folder) / "digits")
answers = again.predict(x_test[:12]).argmax(1)
print(f"Saved ({size / 1e6:.1f} MB, no pickle) and loaded again. Its answers to the first twelve:")
print("  digit   " + " ".join(map(str, y_test[:12])))
print("  answer  " + " ".join(map(str, answers)))
