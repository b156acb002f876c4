"""A training script as people write them: digits, a small network, a loop, an accuracy."""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def train(model, optimizer, loader, criterion, epochs):
    model.train()
    for epoch in range(epochs):
        total = 0.0
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")


def accuracy(model, loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for images, labels in loader:
            right += (model(images).argmax(1) == labels).sum().item()
    return right / len(loader.dataset)


torch.manual_seed(0)
digits = load_digits()
data = TensorDataset(torch.tensor(digits.images / 16, dtype=torch.float32)[:, None], torch.tensor(digits.target))
training, validation = random_split(data, [1500, len(data) - 1500])
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 36, 10)
)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
train(model, optimizer, DataLoader(training, 32, shuffle=True), nn.CrossEntropyLoss(), int(sys.argv[1]))
print("ACCURACY", accuracy(model, DataLoader(validation, 100)))
