"""Contracts that ship: a new engine or framework inherits them and knows what it owes.

class TestMyEngine(EngineContract):
    setup = "from mine import MyEngine; engine = MyEngine()"

    @pytest.fixture
    def engine(self):
        return MyEngine()
"""

from seamline.testing.engine_contract import EngineContract
from seamline.testing.framework_contract import FrameworkContract
from seamline.testing.task_contract import TaskContract

__all__ = ["EngineContract", "FrameworkContract", "TaskContract"]
