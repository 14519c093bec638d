"""vLLM with a kvc library against vLLM without a connector, on tiny models.

One pair of engines a model serves all tests here; KVC_TEST_MODELS_ONLY=llama,gemma3 picks some.
"""

import os
import signal
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from vllm.config import KVEventsConfig
from vllm.distributed.kv_events import AllBlocksCleared, BlockStored

from engine import IN_PROCESS, Answer, Engine, kvc_transfer, prompt
from models import make_model
from watch import Hung

pytestmark = pytest.mark.engine
in_process = pytest.mark.skipif(not IN_PROCESS, reason="reaches into the engine core")


@dataclass
class Case:
    """A model, its main prompt, and the prefix of it that every cache serves at most."""

    model: str
    tokens: int
    hit: int
    multiple: tuple[int, int]  # a prompt of whole units, and its hit
    edge: int  # a prompt whose output soon needs another block


CASES = [
    Case("llama", 700, 640, (768, 640), 760),
    Case("gemma3", 700, 640, (768, 640), 760),
    Case("qwen3_5", 1500, 1472, (1504, 1472), 1272),
]
WANTED = os.environ.get("KVC_TEST_MODELS_ONLY", ",".join(c.model for c in CASES)).split(",")
EXTRA = 200  # tokens of a prompt that goes on


@dataclass
class Expected:
    """What vLLM without connector says; `again` and `longer` hit its device cache."""

    cold: Answer
    again: Answer
    again_hit: int
    longer: Answer
    longer_hit: int
    longer_cold: Answer
    multiple: Answer
    multiple_again: Answer
    multiple_hit: int


@dataclass
class Pair:
    case: Case
    expected: Expected
    engine: Engine

    @property
    def prompt(self) -> list[int]:
        return prompt(self.case.tokens)

    @property
    def longer(self) -> list[int]:
        return self.prompt + prompt(EXTRA, 2)

    def begin(self) -> None:
        """An empty engine: neither device nor connector has anything."""
        self.engine.reset_device()
        self.engine.reset_connector()

    def replay(self, tokens: list[int]) -> tuple[Answer, int]:
        """Empties the device cache, runs the prompt; what came back and the external hit tokens."""
        self.engine.reset_device()
        answer, local, external = self.engine.hits(tokens)
        assert local == 0
        return answer, external


def start(model: str, library: str, config: str) -> Engine:
    events = KVEventsConfig(enable_kv_cache_events=True, publisher="null")
    return Engine(model, kvc_transfer(library, config), kv_events_config=events)


def expectations(model: str, case: Case) -> Expected:
    engine = Engine(model, None)
    try:
        main, longer = prompt(case.tokens), prompt(case.tokens) + prompt(EXTRA, 2)
        cold = engine.one(main)
        again, again_hit, _ = engine.hits(main)
        long, longer_hit, _ = engine.hits(longer)
        engine.reset_device()
        longer_cold = engine.one(longer)
        whole = prompt(case.multiple[0], 3)
        multiple = engine.one(whole)
        multiple_again, multiple_hit, _ = engine.hits(whole)
        return Expected(cold, again, again_hit, long, longer_hit, longer_cold, multiple,
                        multiple_again, multiple_hit)
    finally:
        engine.close()


def idle_for_ever(_worker: Any) -> None:
    """Runs in the worker's process."""
    signal.pause()


@pytest.fixture(scope="module", params=[c for c in CASES if c.model in WANTED],
                ids=lambda c: c.model)
def model_pair(request: pytest.FixtureRequest, models: Path, library: str,
               config: str) -> Iterator[Pair]:
    case: Case = request.param
    model = make_model(case.model, models)
    expected = expectations(model, case)
    found = Pair(case, expected, start(model, library, config))
    yield found
    found.engine.close()


@pytest.fixture
def pair(model_pair: Pair, library: str, config: str) -> Pair:
    """A test that hangs costs the others of its model no more than another start."""
    if model_pair.engine.hung:
        model_pair.engine.close()
        model_pair.engine = start(model_pair.engine.model, library, config)
    return model_pair


def test_the_cold_run_equals_the_run_without_connector(pair: Pair) -> None:
    pair.begin()
    answer, local, external = pair.engine.hits(pair.prompt)
    assert (local, external) == (0, 0)
    assert answer.difference(pair.expected.cold) == 0.0


def test_a_replay_after_the_device_cache_is_reset_loads_what_the_device_would_have_had(
        pair: Pair) -> None:
    pair.begin()
    pair.engine.one(pair.prompt)
    answer, external = pair.replay(pair.prompt)
    assert external == pair.case.hit == pair.expected.again_hit
    assert answer.difference(pair.expected.again) == 0.0
    assert answer.difference(pair.expected.cold) <= 0.05


def test_a_longer_prompt_goes_on_from_the_loaded_prefix(pair: Pair) -> None:
    pair.begin()
    pair.engine.one(pair.prompt)
    answer, external = pair.replay(pair.longer)
    assert external == pair.expected.longer_hit
    assert answer.difference(pair.expected.longer) == 0.0
    assert answer.difference(pair.expected.longer_cold) <= 0.05


def test_a_prompt_of_whole_hash_units_keeps_its_tail_one_unit_below(pair: Pair) -> None:
    tokens, hit = pair.case.multiple
    pair.begin()
    first = pair.engine.one(prompt(tokens, 3))
    assert first.difference(pair.expected.multiple) == 0.0
    answer, external = pair.replay(prompt(tokens, 3))
    assert external == hit == pair.expected.multiple_hit
    assert answer.difference(pair.expected.multiple_again) == 0.0


@in_process
def test_hit_sources_name_the_host_tier(pair: Pair) -> None:
    pair.begin()
    pair.engine.one(pair.prompt)
    before = pair.engine.sources()
    _, external = pair.replay(pair.prompt)
    after = pair.engine.sources()
    assert {k: v - before.get(k, 0) for k, v in after.items() if v != before.get(k, 0)} == {
        "host": external
    }


@in_process
def test_skipping_the_copies_of_a_load_is_noticed(pair: Pair) -> None:
    pair.begin()
    pair.engine.one(pair.prompt)
    pair.engine.reset_device()
    with pair.engine.loads_undone():
        answer, _, external = pair.engine.hits(pair.prompt)
    assert external == pair.case.hit
    assert answer.difference(pair.expected.again) > 0.05
    pair.begin()


def test_a_failed_load_is_recomputed(pair: Pair, library: str) -> None:
    pair.begin()
    pair.engine.one(pair.prompt)
    pair.engine.reset_device()
    pair.engine.arm(library, "copy.load")
    answer = pair.engine.one(pair.prompt)
    assert pair.engine.tripped(library)
    assert answer.difference(pair.expected.cold) == 0.0
    if IN_PROCESS:
        pair.engine.check_quiet()
    # The block that could not be read was written again by the recomputation.
    answer, external = pair.replay(pair.prompt)
    assert external == pair.case.hit
    assert answer.difference(pair.expected.again) == 0.0


@in_process
def test_a_load_past_its_deadline_is_recomputed_and_its_blocks_wait_for_the_copies(
        pair: Pair) -> None:
    pair.begin()
    pair.engine.one(pair.prompt)
    pair.engine.reset_device()
    impl = pair.engine.connector.impl
    with pair.engine.loads_stuck():
        answer = pair.engine.one(pair.prompt)
        assert answer.difference(pair.expected.cold) == 0.0
        (job,) = impl.loads
        assert impl.held[job] and all(b.ref_cnt == 1 for b in impl.held[job])
    pair.engine.step_until(lambda: job not in impl.held, "the late copies ended")
    pair.engine.check_quiet()
    # The late copies wrote into blocks that nobody had.
    again, local, external = pair.engine.hits(pair.prompt)
    assert (local, external) == (pair.case.hit, 0)
    assert again.difference(pair.expected.again) == 0.0


@in_process
def test_an_abort_while_loading_gives_everything_back(pair: Pair) -> None:
    pair.begin()
    pair.engine.one(pair.prompt)
    pair.engine.reset_device()
    with pair.engine.results_withheld():
        name = pair.engine.add(pair.prompt)
        for _ in range(3):
            pair.engine.step()
        assert pair.engine.status(name) == "WAITING_FOR_REMOTE_KVS"
        pair.engine.abort(name)
        pair.engine.step()
        assert pair.engine.status(name) == "FINISHED_ABORTED"  # its blocks wait for the load
    pair.engine.drain()
    assert pair.engine.status(name) is None
    pair.engine.check_quiet()
    answer, external = pair.replay(pair.prompt)
    assert external == pair.case.hit
    assert answer.difference(pair.expected.again) == 0.0


@in_process
def test_preempted_requests_say_the_same(pair: Pair) -> None:
    pair.begin()
    prompts = [prompt(pair.case.edge, s) for s in (11, 12, 13)]
    alone = [pair.engine.one(p, 24) for p in prompts]
    pair.begin()
    before = pair.engine.preemptions()
    with pair.engine.starved_when_decoding(len(prompts)):
        together = pair.engine.run(prompts, 24)
    assert pair.engine.preemptions() > before
    for a, b in zip(alone, together, strict=True):
        a.assert_same_but_for_near_ties(b, 0.05)
    pair.engine.check_quiet()


@in_process
def test_a_reset_of_the_connector_forgets_everything(pair: Pair) -> None:
    pair.begin()
    pair.engine.one(pair.prompt)
    pair.engine.reset_device()
    assert pair.engine.ask(pair.engine.llm.reset_prefix_cache, reset_connector=True)
    answer, local, external = pair.engine.hits(pair.prompt)
    assert (local, external) == (0, 0)
    assert answer.difference(pair.expected.cold) == 0.0


@in_process
def test_events_carry_the_tokens_of_the_stored_blocks(pair: Pair) -> None:
    pair.begin()
    tokens = prompt(pair.case.tokens, 21)
    with pair.engine.events() as seen:
        pair.engine.one(tokens, 1)
        pair.engine.drain()
        pair.begin()
    stored = [e for e in seen if isinstance(e, BlockStored) and e.medium == "CPU"]
    assert {e.group_idx for e in stored} == set(range(pair.engine.groups()))
    text = array("q", tokens).tobytes()
    for e in stored:
        assert len(e.token_ids) == e.block_size
        assert array("q", e.token_ids).tobytes() in text
    chain, key = [], None
    full = {e.parent_block_hash: e for e in stored if e.group_idx == pair.engine.full_group()}
    while key in full:
        chain += full[key].token_ids
        key = full[key].block_hashes[0]
    assert chain == tokens[: pair.case.hit]
    assert any(isinstance(e, AllBlocksCleared) for e in seen)


@in_process
def test_counters_reach_prometheus_under_the_names_of_vllm_where_it_has_them(pair: Pair) -> None:
    pair.begin()
    pair.engine.one(pair.prompt)
    pair.engine.publish_numbers()
    names = ("vllm:simple_kv_offload_load_blocks_total", "kvc:lookups_total",
             "vllm:kv_offload_load_bytes_total")
    before = [pair.engine.counter(n) for n in names]
    pair.replay(pair.prompt)
    pair.engine.publish_numbers()
    pair.engine.one(prompt(40, 99))
    after = [pair.engine.counter(n) for n in names]
    assert all(a > b for a, b in zip(after, before, strict=True)), (before, after)
    assert pair.engine.counter("kvc:offers_total", "stored") > 0


@in_process
def test_a_library_that_breaks_is_given_up_and_the_engine_goes_on(
        pair: Pair, library: str) -> None:
    """The last test of its engine but one: the next starts another."""
    pair.begin()
    pair.engine.one(pair.prompt)
    pair.engine.reset_device()
    pair.engine.arm(library, "edge.broken_invariant", 3)
    answer = pair.engine.one(pair.prompt)
    assert pair.engine.tripped(library)
    assert answer.difference(pair.expected.cold) == 0.0
    again, local, external = pair.engine.hits(pair.prompt)
    assert (local, external) == (pair.case.hit, 0)
    assert again.difference(pair.expected.again) == 0.0
    assert pair.engine.connector.impl.gone
    pair.engine.drain()
    assert pair.engine.blocks_in_use() == 0


@pytest.mark.skipif(IN_PROCESS, reason="there is no other process")
def test_an_engine_that_hangs_fails_its_test_with_all_stacks(
        pair: Pair, pytestconfig: pytest.Config) -> None:
    """The last test of its engine but one: the next starts another."""
    if pytestconfig.getoption("capture") != "fd":
        pytest.skip("the stacks go to the terminal")
    processes = [p for p in psutil.Process().children(recursive=True)
                 if "resource_tracker" not in " ".join(p.cmdline())]
    assert len(processes) == 2
    with pytest.raises(Hung, match="nothing within 5 s"):
        pair.engine.in_workers(idle_for_ever, seconds=5)
    # What a failed test shows; the processes got their standard error when they started.
    stacks = pytestconfig.pluginmanager.getplugin("capturemanager").read_global_capture().err
    for place in ("in ask", "in run_busy_loop", "in idle_for_ever"):
        assert place in stacks
    assert pair.engine.hung
    assert not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)


def test_a_second_engine_in_the_same_process_starts_with_an_empty_tier(
        model_pair: Pair, library: str, config: str) -> None:
    """Last in this file: it ends the engine of the other tests."""
    model = model_pair.engine.model
    model_pair.engine.close()
    model_pair.engine = Engine(model, kvc_transfer(library, config))
    answer, local, external = model_pair.engine.hits(model_pair.prompt)
    assert (local, external) == (0, 0)
    assert answer.difference(model_pair.expected.cold) == 0.0
    answer, external = model_pair.replay(model_pair.prompt)
    assert external == model_pair.case.hit
    assert answer.difference(model_pair.expected.again) == 0.0
