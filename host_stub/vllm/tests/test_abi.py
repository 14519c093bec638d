"""The structs of kvc_vllm.lib against kvc.h, by what a C compiler says of it."""

import array
import contextlib
import ctypes
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from connectors import connector_kind
from kvc_vllm import layout, lib
from kvc_vllm.scheduler import KvcScheduler
from kvc_vllm.worker import KvcHandshake, KvcWorker

ROOT = Path(__file__).resolve().parents[3]


def own_lines() -> list[str]:
    lines = []
    for name, kind in lib.TYPES.items():
        if not (isinstance(kind, type) and issubclass(kind, ctypes.Structure)):
            continue
        lines.append(f"kvc_{name} {ctypes.sizeof(kind)}")
        for field, _ in kind._fields_:
            at = getattr(kind, field)
            lines.append(f"kvc_{name}.{field} {at.offset} {at.size}")
    return lines


def c_lines(tmp_path: Path) -> list[str]:
    body = []
    for line in own_lines():
        name = line.split()[0]
        if "." not in name:
            body.append(f'printf("{name} %zu\\n", sizeof({name}));')
            continue
        kind, field = name.split(".")
        body.append(
            f'printf("{name} %zu %zu\\n", offsetof({kind}, {field}), '
            f"sizeof((({kind} *)0)->{field}));"
        )
    source = tmp_path / "layout.c"
    source.write_text(
        "#include <stdio.h>\n#include <kvc/kvc.h>\nint main(void) {\n"
        + "\n".join(body)
        + "\nreturn 0;\n}\n"
    )
    program = tmp_path / "layout"
    subprocess.run(
        ["gcc", "-std=c11", f"-I{ROOT}/abi/include", str(source), "-o", str(program)], check=True
    )
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout.split("\n")


def test_every_struct_has_the_size_and_offsets_of_the_header(tmp_path: Path) -> None:
    assert own_lines() == [line for line in c_lines(tmp_path) if line]


def test_every_struct_of_the_call_list_is_known_with_its_size() -> None:
    calls = (ROOT / "abi/include/kvc/kvc_calls.def").read_text()
    sizes = {n: int(s) for n, s in re.findall(r"^KVC_STRUCT\(kvc_(\w+), (\d+)\)", calls, re.M)}
    assert len(sizes) > 30
    assert sizes == {n: ctypes.sizeof(lib.TYPES[n]) for n in sizes}


def test_slots_stand_in_the_order_of_the_call_list() -> None:
    calls = (ROOT / "abi/include/kvc/kvc_calls.def").read_text()
    assert list(lib.SLOTS) == re.findall(r"^KVC_SLOT\((\w+)", calls, re.M)


def test_the_package_carries_the_header_of_the_tree() -> None:
    header = (ROOT / "abi/include/kvc/kvc.h").read_bytes()
    assert Path(lib.__file__).with_name("kvc_h").read_bytes() == header


def test_a_library_that_is_not_there_is_named() -> None:
    with pytest.raises(lib.KvcError, match=r"/nowhere/libkvc\.so"):
        lib.Library("/nowhere/libkvc.so")


def test_a_library_that_is_no_kvc_library_is_named() -> None:
    with pytest.raises(lib.KvcError, match="kvc_plugin_entry_v1"):
        lib.Library("libm.so.6")


def test_the_slots_that_may_be_missing_are_those_of_the_call_list() -> None:
    calls = (ROOT / "abi/include/kvc/kvc_calls.def").read_text()
    optional = re.findall(r"^KVC_SLOT\((\w+),.*, opt, KVC_(\w+)\)", calls, re.M)
    assert {n: getattr(lib, cap) for n, cap in optional} == lib.OPTIONAL


def test_a_path_that_is_no_text_is_an_error_of_the_library() -> None:
    for path in ("a\0b", "/nowhere/\udcff.so"):
        with pytest.raises(lib.KvcError, match="kvc library"):
            lib.Library(path)


LACKING = {  # what an entry with its table in `t` does wrong -> how it is refused
    "t[0] = 1 << 12;": "it filled 4096 bytes of a table of",
    "((void **)t)[5] = 0;": "has no",
    "t[0] -= 8;": "has no",
    "*(uint64_t *)(t + 2) |= 1u << 3;": "has no take_events",
    "return 1;": r"answered KVC_MORE \(1\)",
    "return -127;": r"answered KVC_E_INTERNAL \(-127\)",
    "return -99;": r"answered unknown status \(-99\)",
}


@pytest.mark.parametrize("wrong", LACKING)
def test_a_library_that_may_not_be_loaded_is_refused(tmp_path: Path, wrong: str) -> None:
    source, built = tmp_path / "lacking.c", tmp_path / "lacking.so"
    optional = "".join(f"out->{name} = 0;" for name in lib.OPTIONAL)
    source.write_text(
        "#include <kvc/kvc.h>\n#include <string.h>\nstatic void any(void) {}\n"
        "kvc_status kvc_plugin_entry_v1(uint32_t minor, kvc_plugin_api *out) {\n"
        "  kvc_plugin_api a = {0}; void (*f)(void) = any; (void)minor;\n"
        "  for (char *p = (char *)&a.describe; p < (char *)(&a + 1); p += sizeof f)"
        " memcpy(p, &f, sizeof f);\n"
        f"  *out = a; out->struct_size = sizeof a; {optional}\n"
        f"  uint32_t *t = (uint32_t *)out; (void)t; {wrong}\n  return KVC_OK;\n}}\n")
    subprocess.run(["gcc", "-shared", "-fPIC", f"-I{ROOT}/abi/include", str(source), "-o",
                    str(built)], check=True)
    with pytest.raises(lib.KvcError, match=LACKING[wrong]):
        lib.Library(str(built))


def test_a_refused_open_carries_the_text_of_the_library(library: str) -> None:
    opened = lib.make("open", hash_unit_tokens=16)
    refusal = r"open_scheduler answered KVC_E_ARG \(-1\): .*scheduler_block_tokens is 0"
    with pytest.raises(lib.KvcError, match=refusal):
        lib.Handle(lib.Library(library), "scheduler", opened, 0, lambda level, text: None)


@pytest.mark.parametrize("mode", ["eager", "lazy"])
def test_lazy_mode_is_refused_when_the_ranks_are_known(library: str, mode: str) -> None:
    if mode == "lazy" and connector_kind(library) != "simple_cpu":
        pytest.skip("only simple_cpu has a lazy mode")
    memory = ctypes.create_string_buffer(4 * 64)
    groups = (lib.TYPES["group"] * 1)(lib.make(
        "group", kind=lib.GROUP_FULL, tokens_per_block=16, caps_known=layout.CAPS_ALL,
        caps=lib.GROUP_CAP_CACHEABLE | lib.GROUP_CAP_POSITION_STABLE))
    kind = connector_kind(library)
    toml = f'[connector]\nkind = "{kind}"\nmode = "{mode}"\n\n[host]\nblocks = 4\n'.encode()
    opened = lib.make(
        "open", groups=lib.list_of(groups), hash_unit_tokens=16, scheduler_block_tokens=16,
        context_parallel=1, cp_interleave_tokens=1, ranks=1, device_blocks=4, key_bytes=32,
        max_prompt_tokens=64, max_total_tokens=64, max_batch_tokens=64, max_live_requests=4,
        max_running=4, max_request_bytes=lib.NO_LIMIT, max_steps_in_flight=1, retention_tokens=-1,
        config_toml=lib.bytes_of(toml))
    kvc = lib.Library(library)
    rank, scheduler = (lib.Handle(kvc, role, opened, 0, lambda level, text: None)
                       for role in ("rank", "scheduler"))
    regions = (lib.TYPES["region"] * 1)(lib.make(
        "region", device_kind=lib.DEVICE_HOST, group_mask=1, base=ctypes.addressof(memory),
        size_bytes=len(memory), block_bytes=64, block_stride_bytes=64))
    info = lib.make("rank_info")
    rank.check("register_regions", ctypes.byref(lib.list_of(regions)), ctypes.byref(info))
    adapter = KvcScheduler.__new__(KvcScheduler)  # all that the call looks at
    adapter.handle = scheduler
    refused = pytest.raises(lib.KvcError, match="lazy mode")
    with refused if mode == "lazy" else contextlib.nullcontext():
        adapter.set_xfer_handshake_metadata_pp_aware({0: KvcHandshake(lib.rank_info(info))})
    for handle in (scheduler, rank):
        handle.close()


@pytest.fixture
def adapter() -> Any:
    """What the calls of a scheduler look at, over no library; request: one of 32 tokens."""
    made = KvcScheduler.__new__(KvcScheduler)
    made.live, made.gone, made._begun, made._steps = {}, "", 0, 0
    made._failed, made._unplanned = [], {}
    made.layout = SimpleNamespace(count=1, unit=16, max_running=4)
    made.events = SimpleNamespace(began=lambda number, request: None)
    for name in ("request", "extend", "lookup_in", "lookup_out", "handoff", "step", "plan"):
        setattr(made, "_" + name, lib.Record(name))
    made.output = SimpleNamespace(kv_connector_block_state=None, preempted_req_ids=None)
    made.request = SimpleNamespace(
        request_id="a", block_hashes=[b"k" * 32] * 2, num_prompt_tokens=32, num_tokens=32,
        resumable=False, skip_reading_prefix_cache=False)
    return made


def test_nothing_is_called_after_a_call_that_broke(adapter: Any) -> None:
    calls = []

    def broken() -> int:
        calls.append("one")
        adapter._give_up("it broke")
        return lib.E_INTERNAL

    adapter._new = adapter._more = adapter._look = adapter._plan_of = broken
    assert adapter.get_num_new_matched_tokens(adapter.request, 0) == (0, False)
    assert calls == ["one"]  # begin, and no lookup
    adapter.gone, st = "", adapter.live["a"]
    adapter._scheduled = lambda output: [adapter._more_keys(st) for _ in range(2)] and 0
    assert adapter.build_connector_meta(adapter.output).close == "it broke"
    assert calls == ["one"] * 2  # extend once, and no plan


def test_answers_that_nobody_asked_for_are_ignored_or_end_the_connector(adapter: Any) -> None:
    jobs = (lib.TYPES["plan_job"] * 1)(lib.make("plan_job", kind=lib.JOB_LOAD, job=7))
    adapter._plan.words[2:5] = memoryview(array.array(
        "Q", [ctypes.addressof(jobs), 1, ctypes.sizeof(jobs)]))
    adapter._plan_of = adapter._new = adapter._look = lambda: lib.OK
    adapter._scheduled = lambda output: 0
    assert adapter.build_connector_meta(adapter.output).loads == {}
    assert not adapter.gone
    for tokens, answer in ((16, (16, True)), (17, (0, False))):
        adapter._lookup_out.words[1] = tokens
        assert adapter.get_num_new_matched_tokens(adapter.request, 16) == answer
    assert "17 tokens behind 16 of a request of 32" in adapter.gone

    worker = KvcWorker.__new__(KvcWorker)
    worker._gone, worker._jobs, worker._failed = "", {7: "a"}, set()
    ends = (lib.TYPES["load_done"] * 2)(*(lib.make("load_done", job=j) for j in (8, 7)))

    def progress(slot: str, out: Any) -> int:
        out._obj.loads = lib.list_of(ends)
        return lib.OK

    worker._handle = SimpleNamespace(call=progress)
    assert worker.get_transfer_results(set()).finished_recving == {"a"}


def test_an_empty_list_may_have_no_stride() -> None:
    assert lib.rows_of(0, 0, 0) == []
    assert list(lib.block_ids(0, 0, 0)) == []
    infos = lib.rank_infos([(0, 7, 0, b"", b"")])
    assert (infos[0].pages, infos[0].classes.count) == (7, 0)


def test_lists_are_read_where_they_lie() -> None:
    blocks = (lib.TYPES["block"] * 3)(*(lib.make("block", block=b) for b in (7, -1, 9)))
    held = (ctypes.addressof(blocks), 3, ctypes.sizeof(blocks._type_))
    assert list(lib.block_ids(*held)) == [7, -1, 9]
    blocks[2].block = 4
    assert [row[1] for row in lib.rows_of(*held)] == [7, -1, 4]
    assert lib.bytes_at(held[0], ctypes.sizeof(blocks)) == bytes(blocks)
    assert lib.bytes_at(0, 0) == b""


def test_a_bound_slot_sizes_its_out_struct_each_time_and_tells_of_what_broke(library: str) -> None:
    groups = (lib.TYPES["group"] * 1)(lib.make(
        "group", kind=lib.GROUP_FULL, tokens_per_block=16, caps_known=layout.CAPS_ALL,
        caps=lib.GROUP_CAP_CACHEABLE | lib.GROUP_CAP_POSITION_STABLE))
    handle = lib.Handle(lib.Library(library), "scheduler", lib.make(
        "open", groups=lib.list_of(groups), hash_unit_tokens=16, scheduler_block_tokens=16,
        context_parallel=1, cp_interleave_tokens=1, ranks=1, device_blocks=4, key_bytes=32,
        max_prompt_tokens=64, max_total_tokens=64, max_batch_tokens=64, max_live_requests=4,
        max_running=4, max_request_bytes=lib.NO_LIMIT, max_steps_in_flight=1, retention_tokens=-1,
    ), 0, lambda level, text: None)
    told: list[str] = []
    handle.broke = told.append
    asked, found, pending = map(lib.Record, ("lookup_in", "lookup_out", "pending"))
    asked.put(0, 5, 64, 0, lib.NO_LIMIT)  # a request that was never begun
    look, mild = (handle.bind("lookup", asked, found, mild=m) for m in ((), (lib.E_ARG,)))
    assert mild() == lib.E_ARG and not told
    assert look() == lib.E_ARG and "5" in told[0]
    assert "lookup answered KVC_E_ARG (-1): " in told[0]
    ask = handle.bind("has_pending", pending)
    for _ in range(2):
        pending.words[0] = 0  # as a library would leave it that filled nothing
        assert ask() == lib.OK
        assert pending.words[0] == pending.size
    assert handle.bind("reset", 1 << 40)() == lib.E_UNSUPPORTED and len(told) == 2
    handle.close()
