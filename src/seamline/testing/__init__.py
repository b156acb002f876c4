"""Contracts that ship: a new engine or framework inherits them and knows what it owes.

class TestMyEngine(EngineContract):
    setup = "from mine import MyEngine; engine = MyEngine()"

    @pytest.fixture
    def engine(self):
        return MyEngine()
"""

from seamline.testing.collection_contract import CollectionContract, RemoteCollectionContract
from seamline.testing.engine_contract import EngineContract
from seamline.testing.framework_contract import FrameworkContract
from seamline.testing.task_contract import TaskContract
from seamline.testing.xshards_contract import XShardsContract

__all__ = [
    "CollectionContract",
    "EngineContract",
    "FrameworkContract",
    "RemoteCollectionContract",
    "TaskContract",
    "XShardsContract",
]
