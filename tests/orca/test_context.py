"""Opening and closing what a program works on: this machine, and real Spark and Ray in programs of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from seamline.core.errors import SeamlineError
from seamline.orca import Estimator, OrcaContext, init_orca_context, stop_orca_context
from tests.orca.networks import assert_same_weights, make_network, make_rows


@pytest.fixture(autouse=True)
def no_context_left():
    yield
    left = OrcaContext.current()
    stop_orca_context()
    assert left is None


def trained(**options):
    import torch

    estimator = Estimator.from_torch(
        model=make_network,
        optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
        loss=torch.nn.functional.cross_entropy,
    )
    return estimator.fit(make_rows(), batch_size=20, verbose=0, **options)


# This machine


def test_without_a_context_nothing_is_active():
    assert OrcaContext.current() is None
    stop_orca_context()


def test_with_gives_the_context_and_takes_it_back():
    with init_orca_context() as context:
        assert OrcaContext.current() is context
        assert repr(context) == "<OrcaContext local: this machine>"
    assert OrcaContext.current() is None


def test_an_error_inside_with_stops_the_context_too():
    with pytest.raises(ZeroDivisionError), init_orca_context():
        _ = 1 / 0
    assert OrcaContext.current() is None


def test_init_and_stop_can_be_called_without_with():
    context = init_orca_context("local", cores=1)
    assert OrcaContext.current() is context
    stop_orca_context()
    stop_orca_context()
    assert OrcaContext.current() is None


def test_a_second_context_is_refused_with_what_to_do():
    with init_orca_context() as first:
        with pytest.raises(SeamlineError, match=r"mode local is active; call stop_orca_context\(\) first"):
            init_orca_context()
        assert OrcaContext.current() is first


def test_a_context_that_could_not_be_opened_leaves_none_behind():
    with pytest.raises(ValueError, match="HADOOP_CONF_DIR"):
        init_orca_context("yarn-client", hadoop_conf="")
    with init_orca_context():
        pass


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"cluster_mode": "sprak"}, ValueError, "no cluster mode named 'sprak'; there are local, spark, standalone, "),
        ({"cluster_mode": "local[x]"}, ValueError, "no cluster mode named"),
        ({"image": "i"}, TypeError, "local has no option 'image'; there are cores, memory, num_nodes"),
        ({"cluster_mode": "yarn-client", "image": "i"}, TypeError, "yarn-client has no option 'image'"),
        ({"num_nodes": 2}, ValueError, "num_nodes=2, but this machine is one node"),
        ({"memory": "9t"}, ValueError, "memory='9t', but this machine has"),
        ({"memory": "much"}, ValueError, "like '512m' or '8g', but got 'much'"),
        ({"cores": 0}, ValueError, "cores must be a whole number of at least 1, but got cores=0"),
        ({"cluster_mode": "ray", "num_nodes": 2}, ValueError, "num_nodes=2, but Ray without an address is one node"),
        ({"cluster_mode": "local[2]", "num_nodes": 2}, ValueError, "Spark in this process is one node"),
        ({"cluster_mode": "standalone", "master": "local"}, ValueError, "master='spark://host:port'"),
        ({"cluster_mode": "k8s-client"}, ValueError, "k8s-client needs a container image"),
        ({"cluster_mode": "yarn-client", "hadoop_conf": "/nowhere"}, ValueError, "no yarn-site.xml in /nowhere"),
        ({"cluster_mode": "spark-submit"}, SeamlineError, "was not started by spark-submit"),
        ({"cluster_mode": "spark-submit", "cores": 2}, TypeError, "spark-submit has no option 'cores'"),
    ],
)
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_what_cannot_work_is_told_and_nothing_starts(arguments, error, message):
    with pytest.raises(error, match=message):
        init_orca_context(**arguments)
    assert OrcaContext.current() is None


@pytest.mark.parametrize("handle", [OrcaContext.get_spark_session, OrcaContext.get_ray_context])
def test_what_a_context_does_not_have_is_told_with_the_mode_that_has_it(handle):
    with pytest.raises(SeamlineError, match=r"there is no context.*init_orca_context\('(spark|ray)'\) gives one"):
        handle()
    with init_orca_context(), pytest.raises(SeamlineError, match="mode local does not have"):
        handle()


@pytest.mark.parametrize("options", [{}, {"cores": 2}])
def test_a_context_of_this_machine_learns_what_no_context_does(options):
    expected = trained(workers=2)
    with init_orca_context(**options):
        assert_same_weights(trained(workers=2), expected)


def test_one_worker_stays_in_this_process_unless_cores_are_given():
    with init_orca_context() as context:
        assert context.default_workers() == 1
        assert context.engine(1).run(lambda world, shard: os.getpid(), [0]) == [os.getpid()]
    with init_orca_context(cores=1) as context:
        ((pid, threads),) = context.engine(1).run(
            lambda world, shard: (os.getpid(), os.environ.get("OMP_NUM_THREADS")), [0]
        )
        assert pid != os.getpid()
        assert threads == os.environ.get("OMP_NUM_THREADS", "1")


def test_a_forked_child_neither_has_nor_stops_the_context():
    with init_orca_context() as context:
        child = os.fork()
        if child == 0:
            os._exit(0 if OrcaContext.current() is None else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert OrcaContext.current() is context


# Programs of their own, because a process can hold only one Spark

HELLO = """
import json, os, sys, warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
from seamline.core.errors import SeamlineError
from seamline.orca import Estimator, OrcaContext, init_orca_context, stop_orca_context
from tests.orca.networks import make_rows
from tests.orca.test_context import trained
facts = {}
"""


def run(program, *arguments, folder, before="", status=0):
    """A program in a process of its own; what it has noted in ``facts`` comes back.

    ``before`` is what it does before it knows of Seamline.
    """
    script, note = folder / "program.py", folder / "facts.json"
    script.write_text(f"{before}\n{HELLO}\n{program}\nopen({str(note)!r}, 'w').write(json.dumps(facts))\n")
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}  # Ray sets them here
    environment = {**own, "PYTHONPATH": path}
    words = [sys.executable, str(script), *arguments]
    done = subprocess.run(words, capture_output=True, text=True, timeout=110, env=environment, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(note.read_text()) if note.exists() else {}


SPARK = """
context = init_orca_context("local[2]")
session = OrcaContext.get_spark_session()
facts["master"] = session.sparkContext.master
facts["capacity"] = [context.capacity.nodes, context.capacity.slots, context.default_workers()]
report = context.check(workers=2)
facts["report"] = str(report)
facts["problems"] = report.problems
where = context.engine(1).run(lambda world, shard: (os.getpid(), os.environ["OMP_NUM_THREADS"]), [0])[0]
facts["own process"] = where[0] != os.getpid()
facts["threads"] = where[1]
import threading
lock = threading.Lock()
try:
    Estimator.from_torch(model=lambda: lock, loss=lambda o, t: o.sum(), optimizer=lambda m: None).fit(
        make_rows(), workers=3, verbose=0)
except SeamlineError as error:
    facts["refused"] = str(error)
stop_orca_context()
facts["stopped"] = session.sparkContext._jsc is None

from seamline.engines.spark.session import session as start
mine = start({"spark.master": "local[1]"})
with init_orca_context("local[2]") as context:
    facts["adopted"] = OrcaContext.get_spark_session() is mine
    facts["origin"] = repr(context)
facts["left running"] = mine.range(3).count()
mine.stop()
"""


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    return run(SPARK, folder=tmp_path_factory.mktemp("spark"))


def test_a_spark_context_has_its_session_and_counts_its_slots(spark):
    assert spark["master"] == "local[2]"
    assert spark["capacity"] == [1, 2, 1]


def test_one_worker_on_spark_has_a_process_and_the_cores_of_the_node(spark):
    assert spark["own process"]
    assert spark["threads"] == os.environ.get("OMP_NUM_THREADS", "2")


def test_the_report_of_spark_is_readable_and_finds_nothing_wrong(spark):
    assert spark["problems"] == []
    for words in ("Spark 4", "local[2]", "2 on 1 nodes, 2 workers", "the same everywhere", "reach each other"):
        assert words in spark["report"]


def test_every_reason_against_a_run_on_spark_is_told_at_once(spark):
    assert "for 2 reasons" in spark["refused"]
    assert "3 workers need as many slots at the same time, and there are 2" in spark["refused"]
    assert "'recipe.model.lock'" in spark["refused"]


def test_a_session_of_ours_is_stopped_and_one_of_the_programs_goes_on(spark):
    assert spark["stopped"]
    assert spark["adopted"]
    assert spark["origin"].endswith("local[1], started by this program>")
    assert spark["left running"] == 3


RAY = """
context = init_orca_context("ray", cores=2)
facts["address"] = OrcaContext.get_ray_context().gcs_address
facts["capacity"] = [context.capacity.nodes, context.capacity.slots, context.default_workers()]
report = context.check(workers=2)
facts["report"] = str(report)
facts["problems"] = report.problems
facts["threads"] = context.engine(1).run(lambda world, shard: os.environ["OMP_NUM_THREADS"], [0])
try:
    trained(workers=3)
except SeamlineError as error:
    facts["refused"] = str(error)
stop_orca_context()
import ray
facts["stopped"] = not ray.is_initialized()

ray.init("local", num_cpus=1, include_dashboard=False, _node_ip_address="127.0.0.1")
with init_orca_context("ray") as context:
    facts["origin"] = repr(context)
    facts["adopted"] = context.engine(1).run(lambda world, shard: shard, [5])
facts["left running"] = ray.is_initialized()
ray.shutdown()
"""


@pytest.fixture(scope="module")
def ray(tmp_path_factory):
    return run(RAY, folder=tmp_path_factory.mktemp("ray"))


def test_a_ray_context_has_an_address_and_counts_its_slots(ray):
    assert ray["address"].startswith("127.0.0.1:")
    assert ray["capacity"] == [1, 2, 1]
    assert ray["threads"] == [os.environ.get("OMP_NUM_THREADS", "2")]


def test_the_report_of_ray_is_readable_and_a_run_without_room_is_refused(ray):
    assert ray["problems"] == []
    for words in ("Ray 2", "2 on 1 nodes, 2 workers", "the same everywhere", "reach each other"):
        assert words in ray["report"]
    assert "3 workers need as many slots at the same time, and there are 2" in ray["refused"]


def test_a_ray_of_ours_is_stopped_and_one_of_the_programs_goes_on(ray):
    assert ray["stopped"]
    assert ray["origin"].endswith("started by this program>")
    assert ray["adopted"] == [5]
    assert ray["left running"]


# Registered first, so called last: after what Seamline does when a program ends.
LAST = """
import atexit, json, psutil, sys

def last():
    left = [p.pid for p in cluster if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    facts.update({"left": left, "stopped": OrcaContext.current() is None})
    open(sys.argv[1], "w").write(json.dumps(facts))

atexit.register(last)
"""
STANDALONE = """
import signal
context = init_orca_context("standalone", num_nodes=2, cores=1, memory="512m")
ours = psutil.Process().children(recursive=True)
cluster = [p for p in ours if "java" in p.name() and "SparkSubmit" not in " ".join(p.cmdline())]
facts["java"] = len(cluster)
facts["workers"] = context.default_workers()
facts["capacity"] = [context.capacity.nodes, context.capacity.slots, context.capacity.cores_per_node]
facts["parents"] = len(set(context.engine(2).run(lambda world, shard: psutil.Process().parent().parent().pid, [0, 0])))
facts["problems"] = context.check().problems
os.kill(os.getpid(), signal.SIGINT)
"""


def test_a_standalone_cluster_of_ours_ends_with_ctrl_c(tmp_path):
    note = tmp_path / "note.json"
    run(STANDALONE, str(note), folder=tmp_path, before=LAST, status=-2)
    facts = json.loads(note.read_text())
    assert facts["workers"] == 2
    assert facts["capacity"] == [2, 2, 1]
    assert facts["parents"] == 2
    assert facts["problems"] == []
    assert facts["java"] == 5  # a master, two workers, two executors
    assert facts["stopped"]
    assert facts["left"] == []


SUBMITTED = """
if len(sys.argv) == 1:
    from seamline.core import registry
    registry.cluster(
        "spark-program",
        arguments=["--master", "local[1]", "--conf", "spark.seamline.said=yes"],
        variables={"SEAMLINE_SUBMITTED": "1"},
        program=[__file__, "on the cluster"],
    )
with init_orca_context("yarn-cluster", num_nodes=2) as context:
    facts["origin"] = repr(context)
    facts["said"] = OrcaContext.get_spark_session().conf.get("spark.seamline.said")
    facts["answer"] = context.engine(1).run(lambda world, shard: shard * 2, [21])
open(os.path.join(os.path.dirname(__file__), "facts.json"), "w").write(json.dumps(facts))
sys.exit(7)
"""


def test_a_program_for_the_cluster_is_submitted_and_finds_its_session_there(tmp_path):
    facts = run(SUBMITTED, folder=tmp_path, status=7)
    assert facts["origin"] == "<OrcaContext yarn-cluster: Spark 4.3.0 at local[1], as submitted>"
    assert facts["said"] == "yes"
    assert facts["answer"] == [42]


RAY_ON_SPARK = """
import psutil
context = init_orca_context("local[2]", init_ray_on_spark=True)
session, ray = OrcaContext.get_spark_session(), OrcaContext.get_ray_context()
nodes = [p for p in psutil.process_iter() if ray.gcs_address in " ".join(safe(p.cmdline))]
facts["nodes"] = [p.pid for p in nodes]
facts["capacity"] = [context.capacity.nodes, context.capacity.slots]
facts["met"] = context.engine(2).run(lambda world, shard: world.all_gather(shard), [1, 2])
facts["spark goes on"] = session.range(100).count()
facts["problems"] = context.check().problems
stop_orca_context()
facts["left"] = [p.pid for p in nodes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
facts["stopped"] = session.sparkContext._jsc is None
facts["secrets"] = [name for name in os.environ if name.startswith("RAY_AUTH")]
"""
SAFE = """
import psutil
def safe(look):
    try:
        return look()
    except psutil.Error:
        return []
"""


def test_ray_runs_inside_spark_and_ends_before_it(tmp_path):
    facts = run(RAY_ON_SPARK, folder=tmp_path, before=SAFE)
    assert facts["capacity"] == [1, 2]
    assert facts["met"] == [[1, 2], [1, 2]]
    assert facts["spark goes on"] == 100
    assert facts["problems"] == []
    assert facts["nodes"]
    assert facts["left"] == []
    assert facts["stopped"]
    assert facts["secrets"] == []
