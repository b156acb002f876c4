"""Torch data sets and loaders: the user's batches, our sharding."""

import os

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from seamline.core import registry
from seamline.core.shards import Columns
from tests.data.reading import assert_same_batches, split, whole_batches

ROWS = 23


class Numbers(Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return torch.tensor(float(row))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(float(ROWS)))


class OwnSampler(torch.utils.data.Sampler):
    """A sampler as users write them, drawing from whatever generator is at hand."""

    def __iter__(self):
        return iter(np.random.permutation(ROWS).tolist())

    def __len__(self):
        return ROWS


class OwnBatches:
    """Batches of different sizes."""

    def __iter__(self):
        return iter([[0, 1, 2, 3], [4], [5, 6], list(range(7, ROWS))])

    def __len__(self):
        return 4


LOADERS = {
    "in order": lambda: DataLoader(Numbers(), batch_size=5),
    "shuffled": lambda: DataLoader(Numbers(), batch_size=5, shuffle=True),
    "own generator": lambda: DataLoader(
        Numbers(), batch_size=5, shuffle=True, generator=torch.Generator().manual_seed(3)
    ),
    "sampler": lambda: DataLoader(Numbers(), batch_size=5, sampler=OwnSampler()),
    "seeded sampler": lambda: DataLoader(
        Numbers(), batch_size=5, sampler=SubsetRandomSampler(range(ROWS), torch.Generator().manual_seed(3))
    ),
    "distributed sampler": lambda: DataLoader(
        Numbers(), batch_size=5, sampler=DistributedSampler(Numbers(), num_replicas=2, rank=0)
    ),
    "batch sampler": lambda: DataLoader(Numbers(), batch_sampler=OwnBatches()),
    "two processes": lambda: DataLoader(Numbers(), batch_size=5, shuffle=True, num_workers=2),
    "stream": lambda: DataLoader(Stream(), batch_size=5),
    "stream without loader": Stream,
    "data set": Numbers,
    "tensors": lambda: TensorDataset(torch.arange(float(ROWS))),
}


@pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS)
@pytest.mark.parametrize("workers", [2, 3])
def test_any_number_of_workers_reads_the_batches_that_one_reads(make, workers):
    options = {"batch_size": 5, "shuffle": True, "seed": 1}
    one = whole_batches(make(), 1, epoch=1, **options)
    assert_same_batches(whole_batches(make(), workers, epoch=1, **options), one)
    np.testing.assert_array_equal(np.sort(np.concatenate(one)), np.arange(ROWS))
    assert_same_batches(whole_batches(make(), workers, epoch=1, first_step=2, **options), one[2:])


@pytest.mark.parametrize("name", ["in order", "batch sampler", "stream"])
def test_batches_without_chance_are_those_of_the_plain_loader(name):
    plain = [batch.numpy() for batch in LOADERS[name]()]
    assert_same_batches(whole_batches(LOADERS[name](), 2), plain)


@pytest.mark.parametrize("name", ["shuffled", "sampler", "seeded sampler", "own generator"])
def test_epochs_are_shuffled_differently_and_alike_in_every_run(name):
    loader = LOADERS[name]()
    first, second, again = (np.concatenate(whole_batches(loader, 2, epoch=epoch)) for epoch in (0, 1, 0))
    assert (first != second).any()
    np.testing.assert_array_equal(first, again)


def test_drop_last_and_collating_and_init_functions_are_the_users():
    def collate(rows):
        return torch.stack(rows) * 100

    def announce(worker):
        torch.utils.data.get_worker_info().dataset.announced = worker

    loader = DataLoader(
        Numbers(), batch_size=5, drop_last=True, collate_fn=collate, num_workers=1, worker_init_fn=announce
    )
    assert_same_batches(whole_batches(loader, 2), [batch.numpy() for batch in loader])
    assert split(loader, 2)[0].steps == 4


def test_only_its_own_rows_are_loaded_by_a_worker():
    seen = []

    class Counting(Numbers):
        def __getitem__(self, row):
            seen.append(row)
            return super().__getitem__(row)

    shard = split(DataLoader(Counting(), batch_size=10), 2)[1]
    assert [batch.rows for batch in shard.batches(0)] == [5, 5, 0]
    assert seen == [5, 6, 7, 8, 9, 15, 16, 17, 18, 19, 20]


def test_weighted_sampling_with_replacement_is_the_same_on_every_worker():
    weights = torch.arange(float(ROWS))
    loader = DataLoader(Numbers(), batch_size=5, sampler=WeightedRandomSampler(weights, 40))
    one = whole_batches(loader, 1, seed=5)
    assert_same_batches(whole_batches(loader, 3, seed=5), one)
    assert sum(map(len, one)) == 40


def test_processes_that_stay_serve_every_epoch():
    loader = DataLoader(Numbers(), batch_size=5, num_workers=1, persistent_workers=True)
    shard = split(loader, 1)[0]
    for epoch in range(2):
        assert [batch.rows for batch in shard.batches(epoch)] == [5, 5, 5, 5, 3]


@pytest.mark.parametrize(
    ("item", "inputs", "targets"),
    [
        ((1, 2), "tensor", "tensor"),
        ((1, 2, 3), "tuple", "tensor"),
        ((1,), "tuple", "nothing"),
        ({"a": 1, "b": 2}, "dict", "nothing"),
    ],
)
def test_what_is_input_and_what_is_target(item, inputs, targets):
    kinds = {"tensor": torch.Tensor, "tuple": tuple, "dict": dict, "nothing": type(None)}

    class Items(Numbers):
        def __getitem__(self, row):
            return item

    batch = next(split(DataLoader(Items(), batch_size=4), 2)[0].batches(0))
    assert isinstance(batch.inputs, kinds[inputs])
    assert isinstance(batch.targets, kinds[targets])


def test_a_stream_of_structures_is_cut_by_rows():
    class Records(IterableDataset):
        def __iter__(self):
            return iter([({"x": torch.tensor(float(i)), "name": f"row {i}"}, i) for i in range(6)])

    first, second = (next(shard.batches(0)) for shard in split(DataLoader(Records(), batch_size=4), 2))
    assert first.inputs["name"] == ["row 0", "row 1"]
    assert second.inputs["name"] == ["row 2", "row 3"]
    assert second.targets.tolist() == [2, 3]


def test_a_function_makes_the_data_on_each_worker_with_the_arguments_it_wants():
    def make(config, batch_size):
        assert batch_size == 5
        return DataLoader(Numbers(), batch_size=batch_size, shuffle=config["shuffle"])

    options = {"batch_size": 5, "config": {"shuffle": True}}
    assert_same_batches(whole_batches(make, 2, **options), whole_batches(make, 1, **options))
    assert_same_batches(whole_batches(lambda: (np.arange(9), None), 2, batch_size=5), [np.arange(5), np.arange(5, 9)])


def test_what_a_loader_knows_before_reading():
    shards = registry.shards(DataLoader(Numbers(), batch_size=5), Columns())
    assert (shards.rows, shards.batch_size) == (ROWS, 5)
    assert registry.shards(DataLoader(Stream(), batch_size=4), Columns()).rows is None
    sampler = BatchSampler(SequentialSampler(Numbers()), 6, drop_last=False)
    assert [len(b) for b in whole_batches(DataLoader(Numbers(), batch_sampler=sampler), 2)] == [6, 6, 6, 5]
    assert RandomSampler(Numbers()).num_samples == ROWS
    with pytest.raises(TypeError, match="which a torch Dataset or DataLoader does not have"):
        registry.shards(Numbers(), Columns(features=["x"]))
    with pytest.raises(ValueError, match="batch_size is missing"):
        split(Numbers(), 2)


class Drawing(IterableDataset):
    """A stream whose rows are random numbers."""

    def __iter__(self):
        for _ in range(12):
            yield torch.randint(0, 1000, ()).float() + float(np.random.randint(1000))


def test_a_stream_that_draws_gives_the_same_rows_whatever_is_seeded_in_between():
    def disturbed(batches):
        for batch in batches:
            torch.manual_seed(int(batch.inputs.sum()))
            np.random.seed(3)
            yield batch

    shards = split(DataLoader(Drawing(), batch_size=4), 1) + split(DataLoader(Drawing(), batch_size=4), 2)
    whole, first, second = ([batch.inputs for batch in disturbed(shard.batches(1))] for shard in shards)
    for one, left, right in zip(whole, first, second, strict=True):
        assert torch.equal(one, torch.cat([left, right]))
    resumed = [batch.inputs for batch in disturbed(shards[0].batches(1, first_step=1))]
    assert torch.equal(torch.cat(resumed), torch.cat(whole[1:]))


def test_predicting_reads_every_row_in_order_whatever_the_loader_does():
    loader = DataLoader(Numbers(), batch_size=5, shuffle=True, drop_last=True)
    batches = whole_batches(loader, 2, every_row_in_order=True)
    np.testing.assert_array_equal(np.concatenate(batches), np.arange(ROWS))


def test_tensors_of_a_data_set_are_shared_by_all_workers_and_not_copied():
    from seamline.engines.local.block import Block
    from seamline.frameworks.torch import TorchFramework

    assert TorchFramework.name == "torch"
    dataset = TensorDataset(torch.randn(1000, 1000))
    block = Block()
    for shard in split(DataLoader(dataset, batch_size=10), 4):
        place = block.store(shard, "shard")
    block.flush()
    assert os.fstat(block.fd).st_size < 1.1 * dataset.tensors[0].nbytes
    tensor = block.load(place).plan.dataset.tensors[0]
    assert torch.equal(tensor, dataset.tensors[0])
    tensor += 1
    block.close()
