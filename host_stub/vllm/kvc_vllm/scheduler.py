"""Scheduler role: tables, keys and hand-offs to the library; its holds as block references."""

import array
import ctypes
from collections.abc import Iterator
from typing import Any

from vllm.distributed.kv_events import (
    MEDIUM_CPU,
    MEDIUM_STORAGE,
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
)
from vllm.logger import init_logger
from vllm.v1.core.kv_cache_utils import (
    generate_block_hash_extra_keys,
    maybe_convert_block_hash,
    to_event_extra_keys,
)
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import get_kv_cache_spec_kind, get_kv_cache_spec_sliding_window
from vllm.v1.metrics.cache_hit_source import CacheHitSource
from vllm.v1.request import Request, RequestStatus

from kvc_vllm import layout, lib
from kvc_vllm.metrics import OUTCOMES
from kvc_vllm.worker import KvcMetadata, KvcWorkerMetadata

logger = init_logger("vllm.kvc.scheduler")
NO_READ = 1
RESET_INVALIDATE = 1
EVENT_REMOVED, EVENT_CLEARED = 2, 3
END_STOP, END_LENGTH, END_ABORT, END_ERROR = range(4)
ENDS = {
    RequestStatus.FINISHED_STOPPED: END_STOP,
    RequestStatus.FINISHED_LENGTH_CAPPED: END_LENGTH,
    RequestStatus.FINISHED_ABORTED: END_ABORT,
}
SOURCES = {1: CacheHitSource.HOST, 2: CacheHitSource.DISK}


class Live:
    """A request that the library knows."""

    __slots__ = ("id", "job", "keys", "media", "nulled", "request", "resumed",
                 "scheduled", "tables", "tails", "told")

    def __init__(self, number: int, request: Request, groups: int) -> None:
        self.id, self.request = number, request
        self.keys = 0  # keys that the library has
        self.tables: list[array.array | None] = [None] * groups
        self.told = [0] * groups  # entries that the library has as they are
        self.nulled = [0] * groups  # leading entries that are null for good
        self.scheduled = False  # in this admission
        self.resumed = False
        self.job = 0  # of its load, until the engine has its result
        self.media: dict[CacheHitSource, int] = {}
        self.tails: list[tuple[int, int, int]] = []


class KvcScheduler:
    """Owns the scheduler handle and the references of its holds. Threads: the scheduler's."""

    def __init__(self, config: Any, cache: Any, library: lib.Library, log: Any) -> None:
        self.layout = layout.Layout(config, cache, None)
        self.handle = lib.Handle(library, "scheduler", self.layout.open, self.layout.host_caps, log)
        self.lib = library
        self.live: dict[str, Live] = {}
        self.held: dict[int, list[Any]] = {}  # job -> referenced blocks
        self.loads: dict[int, tuple[str, Any]] = {}  # open load -> request, blocks (its own so far)
        self.gone = ""
        events = config.kv_events_config
        self.publishes = bool(events and events.enable_kv_cache_events and library.take_events)
        self._specs = [g.kv_cache_spec for g in cache.kv_cache_groups]
        self._numbers: dict[int, Request] = {}  # live ones, if events are published
        self._over: dict[int, tuple[Request, set[int]]] = {}  # ended, with the jobs open then
        self._failed: list[str] = []
        self._closed = self._next_id = self._step = 0
        groups = self.layout.count
        self._stable = [g for g in range(groups) if self.layout.stable[g]]
        self._lookup_in = ctypes.create_string_buffer(lib.LOOKUP_IN.size)
        self._lookup_out = ctypes.create_string_buffer(lib.LOOKUP_OUT.size)
        self._lookup_at = (ctypes.addressof(self._lookup_in), ctypes.addressof(self._lookup_out))
        self._tables, self._empty = (
            (lib.TYPES["table"] * groups)(*(lib.make("table", group=g) for g in range(groups)))
            for _ in range(2))
        self._alloc_in = lib.make("alloc_in", tables=lib.list_of(self._tables, groups))
        self._alloc_none = lib.make("alloc_in", tables=lib.list_of(self._empty, groups))
        self._alloc_out = lib.make("alloc_out")
        self._room(2 * self.layout.max_running)

    def bind(self, manager: Any) -> None:
        self.pool = manager.block_pool
        managers = manager.coordinator.single_type_managers
        self._windows = [(g, managers[g].req_to_blocks) for g in self._stable
                         if self.layout.kinds[g] in (layout.SLIDING, layout.CHUNKED)]

    def set_ranks(self, ranks: list[dict[str, Any]]) -> None:
        infos, kept = layout.rank_infos(ranks)
        given, usable = lib.list_of(infos, len(infos)), lib.TYPES["list"]()
        self.handle.check("set_ranks", self.lib.set_ranks(
            self.handle.address, ctypes.addressof(given), ctypes.addressof(usable)))
        del kept

    def _give_up(self, slot: str, status: int) -> None:
        """No further call but close; the workers are told with the next step."""
        if not self.gone:
            self.gone = f"{slot} answered {status}: {self.handle.error()}"
            logger.error("kvc connector given up, the engine goes on without it: %s", self.gone)

    # ---- one request

    def _begin(self, request: Request) -> Live:
        self._next_id += 1
        st = self.live[request.request_id] = Live(self._next_id, request, self.layout.count)
        if self.publishes:
            self._numbers[st.id] = request
        keys = b"".join(request.block_hashes)
        st.keys = len(request.block_hashes)
        begin = lib.make(
            "request", request=st.id, prompt_tokens=request.num_prompt_tokens,
            keys=ctypes.cast(keys, ctypes.c_void_p), load_limit_tokens=lib.NO_LIMIT,
            store_limit_tokens=lib.NO_LIMIT,
            n_keys=min(st.keys, request.num_prompt_tokens // self.layout.unit),
            flags=NO_READ if request.skip_reading_prefix_cache else 0)
        st.keys = begin.n_keys
        status = self.lib.request_begin(self.handle.address, ctypes.addressof(begin))
        if status < 0 and status != lib.E_FULL:
            self._give_up("request_begin", status)
        return st

    def _extend(self, st: Live) -> None:
        hashes = st.request.block_hashes
        keys = b"".join(hashes[st.keys:])
        more = lib.make("extend", request=st.id, first_key=st.keys, n_keys=len(hashes) - st.keys,
                        keys=ctypes.cast(keys, ctypes.c_void_p))
        st.keys = len(hashes)
        status = self.lib.request_extend(self.handle.address, ctypes.addressof(more))
        if status < 0 and status != lib.E_FULL:
            self._give_up("request_extend", status)

    def lookup(self, request: Request, device_tokens: int) -> tuple[int | None, bool]:
        if self.gone or request.resumable:  # a session may take tokens back, the line may not
            return 0, False
        st = self.live.get(request.request_id) or self._begin(request)
        if st.keys != len(request.block_hashes):
            self._extend(st)
        lib.LOOKUP_IN.pack_into(self._lookup_in, 0, 40, 0, st.id, request.num_tokens,
                                device_tokens, lib.NO_LIMIT)
        lib.LOOKUP_OUT.pack_into(self._lookup_out, 0, 24, 0, 0, 0, 0)
        status = self.lib.lookup(self.handle.address, *self._lookup_at)
        if status == lib.OK:
            tokens = lib.LOOKUP_OUT.unpack_from(self._lookup_out)[2]
            return tokens, tokens > 0
        if status in (lib.LATER, lib.E_STATE):  # E_STATE: the end of its last load is on its way
            return None, False
        if status < 0:
            self._give_up("lookup", status)
        return 0, False

    def allocated(self, request: Request, blocks: Any, tokens: int) -> None:
        st = self.live.get(request.request_id)
        if st is None or self.gone:
            if tokens:
                self._failed.append(request.request_id)
            return
        st.media = {}
        given, out = (self._alloc_in, self._alloc_out) if tokens else (
            self._alloc_none, self._alloc_out)
        given.request, given.accepted_tokens, kept = st.id, tokens, []
        if tokens:
            for table, ids in zip(self._tables, blocks.get_block_ids(), strict=True):
                kept.append(array.array("q", ids))
                table.blocks, table.count = kept[-1].buffer_info()
        out.struct_size = ctypes.sizeof(out)
        status = self.lib.alloc_update(
            self.handle.address, ctypes.addressof(given), ctypes.addressof(out))
        if status == lib.E_INTERNAL:
            self._give_up("alloc_update", status)
        if not tokens:
            return
        if status < 0 or not out.job:
            logger.error("kvc alloc_update of %s with %d tokens answered %d: %s; they are computed",
                         request.request_id, tokens, status, self.handle.error())
            self._failed.append(request.request_id)
            return
        st.job = out.job
        self.loads[st.job] = (request.request_id, lib.block_ids(out.held))
        for part in lib.elements("medium_tokens", out.media):
            st.media[SOURCES.get(part.medium, CacheHitSource.EXTERNAL_UNSPECIFIED)] = part.tokens

    # ---- one step

    def _room(self, requests: int) -> None:
        self._requests = requests
        self._record = ctypes.create_string_buffer(requests * lib.STEP_REQUEST.size)
        self._changed = ctypes.create_string_buffer(requests * self.layout.count * lib.TABLE.size)

    def _nulls(self, st: Live) -> None:
        """Leading window blocks that the engine gave back since the last record."""
        for g, tables in self._windows:
            table, blocks = st.tables[g], tables[st.request.request_id]
            at = st.nulled[g]
            while at < len(table) and blocks[at].is_null:
                if table[at] != 0:
                    table[at] = 0
                    st.told[g] = min(st.told[g], at)
                at += 1
            st.nulled[g] = at

    def _tables_of(self, st: Live, at: int) -> tuple[int, int]:
        """Writes the changed tables behind offset `at`; their address and number."""
        first, changed = at, False
        for g in range(self.layout.count):
            table = st.tables[g]
            if table is not None and st.told[g] < len(table):
                address, count = table.buffer_info()
                lib.TABLE.pack_into(self._changed, at, 32, g, address, count, st.told[g])
                st.told[g], changed = count, True
            else:
                lib.TABLE.pack_into(self._changed, at, 32, g, 0, 0, 0)
            at += 32
        return (ctypes.addressof(self._changed) + first, self.layout.count) if changed else (0, 0)

    def _scheduled(self, output: SchedulerOutput) -> int:
        """Fills the record; how many requests stand in it."""
        cached, live = output.scheduled_cached_reqs, self.live
        resumed = cached.resumed_req_ids
        rows = [(r.req_id, r.block_ids, True) for r in output.scheduled_new_reqs]
        rows += [(r, ids, r in resumed)
                 for r, ids in zip(cached.req_ids, cached.new_block_ids, strict=True)]
        if len(rows) > self._requests:
            self._room(2 * len(rows))
        count, pack, size = 0, lib.STEP_REQUEST.pack_into, lib.STEP_REQUEST.size
        stride = self.layout.count * lib.TABLE.size
        tokens, windows = output.num_scheduled_tokens, self._windows
        for name, ids, whole in rows:
            st = live.get(name)
            if st is None:
                continue
            request = st.request
            if st.keys != len(request.block_hashes):
                self._extend(st)
            where = (0, 0)
            if whole:
                for g in self._stable:
                    st.tables[g] = array.array("q", ids[g])
                    st.told[g] = st.nulled[g] = 0
            elif ids is not None:
                for g in self._stable:
                    st.tables[g].extend(ids[g])
            if windows:
                self._nulls(st)
            if whole or ids is not None or windows:
                where = self._tables_of(st, count * stride)
            known = request.num_tokens
            confirmed = request.num_computed_tokens + tokens[name]
            pack(self._record, count * size, size, 1 if st.resumed else 0, st.id,
                 confirmed if confirmed < known else known, *where, 32, 0)
            st.scheduled, st.resumed, st.job = True, False, 0
            count += 1
        return count

    def build(self, output: SchedulerOutput) -> KvcMetadata:
        failed, self._failed = self._failed, []
        if self.gone:
            return KvcMetadata(failed=failed, close=self.gone)
        preempted = []
        for name in output.preempted_req_ids or ():
            st = self.live.get(name)
            if st is not None:
                st.scheduled, st.resumed = False, True
                preempted.append(st.id)
        ids = (ctypes.c_uint64 * len(preempted))(*preempted)
        count = self._scheduled(output)
        state = output.kv_connector_block_state
        offers = [
            (group, self.live[name].id, block, tokens)
            for name, entries in (state.boundary_state_offloads if state else {}).items()
            if name in self.live for group, block, tokens in entries]
        handoffs = b"".join(lib.HANDOFF.pack(32, *o) for o in offers)
        self._step += 1
        kind = lib.TYPES["list"]
        step = lib.make(
            "step", step=self._step, preempted=ctypes.addressof(ids), n_preempted=len(preempted),
            scheduled=kind(ctypes.addressof(self._record), count, lib.STEP_REQUEST.size),
            handoffs=kind(ctypes.cast(handoffs, ctypes.c_void_p), len(offers), 32),
            candidates=kind(None, 0, 32))
        plan = lib.make("plan")
        status = self.lib.build_store_jobs(
            self.handle.address, ctypes.addressof(step), ctypes.addressof(plan))
        if status < 0:
            self._give_up("build_store_jobs", status)
            return KvcMetadata(failed=failed, close=self.gone)
        loads = {}
        for job in lib.elements("plan_job", plan.jobs):
            if job.kind == lib.JOB_LOAD:
                loads[job.job] = self.loads[job.job][0]
            elif job.held.count:
                self._hold(job.job, lib.block_ids(job.held))
        return KvcMetadata(ctypes.string_at(plan.bytes.data, plan.bytes.size), loads, failed)

    def _hold(self, job: int, ids: Any) -> None:
        blocks = [self.pool.blocks[i] for i in ids]
        self.pool.touch(blocks)
        self.held.setdefault(job, []).extend(blocks)

    # ---- what ended

    def update(self, output: Any) -> None:
        meta = output.kv_connector_worker_meta
        if isinstance(meta, KvcWorkerMetadata):
            if meta.failures and not self.gone:
                self.gone = meta.failures[0]
                logger.error("kvc connector given up, the engine goes on without it: %s", self.gone)
            self._closed += meta.closed
            if meta.reports and not self.gone:
                self._complete(meta.reports)
        # A load may have a result before its copies have ended (deadline): hold its blocks now.
        for name in output.finished_recving or ():
            st = self.live.get(name)
            for job in [j for j, (n, _) in self.loads.items() if n == name]:
                if st is None or job == st.job:
                    self._hold(job, self.loads[job][1])
        if self._closed >= self.layout.ranks:
            for job in list(self.held):
                self._release(job, ())
            self.loads.clear()

    def _complete(self, reports: list[bytes]) -> None:
        given = (lib.TYPES["bytes"] * len(reports))(*map(lib.bytes_of, reports))
        out = lib.make("complete_out")
        status = self.lib.complete(
            self.handle.address, ctypes.addressof(given), len(reports), ctypes.addressof(out))
        if status < 0:
            self._give_up("complete", status)
            return
        for job in lib.elements("ended_job", out.jobs):
            self.loads.pop(job.job, None)
            if job.job in self.held:
                self._release(job.job, lib.block_ids(job.released) if job.released.count else ())

    def _release(self, job: int, ids: Any) -> None:
        """Drops the references of a job, those of `ids` in this order first."""
        blocks = self.held.pop(job)
        if len(ids) == len(blocks):
            blocks = [self.pool.blocks[i] for i in ids]
        self.pool.free_blocks(blocks)

    def ended(self, request: Request, owned: bool) -> None:
        st = self.live.pop(request.request_id, None)
        if st is None or self.gone:
            return
        owns = owned and st.scheduled
        where = (0, 0)
        if owns:
            if self._windows:
                self._nulls(st)
            self._tables_of(st, 0)
            where = (ctypes.addressof(self._changed), self.layout.count)
        tails = b"".join(lib.HANDOFF.pack(32, g, st.id, block, tokens)
                         for g, block, tokens in st.tails) if owns else b""
        kind = lib.TYPES["list"]
        end = lib.make(
            "end_in", reason=ENDS.get(request.status, END_ERROR), request=st.id,
            confirmed_tokens=min(request.num_computed_tokens, request.num_tokens) if owns else 0,
            tables=kind(*where, 32),
            handoffs=kind(ctypes.cast(tails, ctypes.c_void_p), len(tails) // 32, 32))
        out = lib.make("end_out")
        status = self.lib.request_end(
            self.handle.address, ctypes.addressof(end), ctypes.addressof(out))
        if status == lib.E_INTERNAL:
            self._give_up("request_end", status)
        elif status < 0:
            logger.error("kvc request_end of %s answered %d: %s", request.request_id, status,
                         self.handle.error())
        elif out.job and out.held.count:
            self._hold(out.job, lib.block_ids(out.held))
        if self.publishes:
            self._over[st.id] = (self._numbers.pop(st.id), {*self.held, *self.loads})

    def reset(self) -> bool:
        if self.gone:
            return True
        status = self.lib.reset(self.handle.address, RESET_INVALIDATE)
        if status == lib.E_INTERNAL:
            self._give_up("reset", status)
        elif status < 0:
            logger.warning("kvc reset answered %d: %s", status, self.handle.error())
        return status >= 0

    def pending(self) -> bool:
        """Whether blocks of stores will come back that an idle engine must wait for."""
        if not self.held:
            return False
        out = lib.make("pending")
        if self.gone or self.lib.has_pending(self.handle.address, ctypes.addressof(out)) < 0:
            return self._closed < self.layout.ranks
        return out.held_blocks > out.quarantined_blocks

    def frees(self) -> bool:
        """Whether the end of a copy gives a block back to the pool."""
        return any(b.ref_cnt == 1 for blocks in self.held.values() for b in blocks)

    # ---- numbers and events

    def stats(self) -> Iterator[tuple[str, str, int]]:
        """(name, labels, value) of every counter and gauge."""
        if self.handle.address is None:
            return
        needed, kind = ctypes.c_uint64(), lib.TYPES["stat"]
        size, at = ctypes.sizeof(kind), ctypes.addressof(needed)
        self.lib.stats(self.handle.address, None, size, 0, at)
        room = (kind * needed.value)()
        where = ctypes.addressof(room)
        if self.lib.stats(self.handle.address, where, size, len(room), at) == lib.OK:
            for stat in room:
                yield lib.text_of(stat.name), lib.text_of(stat.labels), stat.value
        offers = lib.make("boundary_stats")
        if self.lib.boundary_stats(self.handle.address, ctypes.addressof(offers)) == lib.OK:
            for name, row in (("handoffs", offers.handoffs), ("offers", offers.all_offers)):
                for outcome, _ in row._fields_[1:]:
                    label = OUTCOMES.get(outcome, outcome) if name == "handoffs" else outcome
                    if outcome != "pending":
                        yield name, "outcome=" + label, getattr(row, outcome)

    def events(self) -> list[Any]:
        """vLLM's events of the tier; token ids come from the request that stored the block."""
        if not self.publishes or self.gone:
            return []
        kind, count, out = lib.TYPES["event"], ctypes.c_uint64(), []
        room, status = (kind * 256)(), lib.MORE
        while status == lib.MORE:
            status = self.lib.take_events(
                self.handle.address, ctypes.addressof(room), ctypes.sizeof(kind), len(room),
                ctypes.addressof(count))
            out += [self._event(e) for e in room[: count.value if status >= 0 else 0]]
        open_jobs = self.held.keys() | self.loads.keys()
        for number in [n for n, (_, jobs) in self._over.items() if not jobs & open_jobs]:
            del self._over[number]
        return out

    def _event(self, event: Any) -> Any:
        medium = {1: MEDIUM_CPU, 2: MEDIUM_STORAGE}.get(event.medium)
        if event.kind == EVENT_CLEARED:
            return AllBlocksCleared()
        key = maybe_convert_block_hash(bytes(event.key[: event.key_bytes]))
        if event.kind == EVENT_REMOVED:
            return BlockRemoved([key], medium, group_idx=event.group, locality="LOCAL")
        begin, end, spec = event.begin_tokens, event.end_tokens, self._specs[event.group]
        request = self._numbers.get(event.request) or self._over.get(event.request, (None, ()))[0]
        lora = request.lora_request if request else None
        extra = generate_block_hash_extra_keys(request, begin, end, 0)[0] if request else None
        parent = bytes(event.parent_key[: event.key_bytes]) if event.has_parent else None
        return BlockStored(
            [key], maybe_convert_block_hash(parent) if parent else None,
            list(request.all_token_ids[begin:end]) if request else [], end - begin,
            lora.adapter_id if lora else None, medium, lora.name if lora else None,
            extra_keys=to_event_extra_keys([extra] if extra else None), group_idx=event.group,
            kv_cache_spec_kind=get_kv_cache_spec_kind(spec).value,
            kv_cache_spec_sliding_window=get_kv_cache_spec_sliding_window(spec),
            locality="LOCAL", session_id=request.session_id if request else None)

    def close(self) -> None:
        self.gone = self.gone or "shut down"
        self.handle.close()
