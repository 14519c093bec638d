"""Scheduler role: tables, keys and hand-offs to the library; its holds as block references."""

import array
import ctypes
from typing import Any

from vllm.logger import init_logger
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.metrics.cache_hit_source import CacheHitSource
from vllm.v1.request import Request, RequestStatus

from kvc_vllm import layout, lib
from kvc_vllm.events import Events
from kvc_vllm.metrics import OUTCOMES, Interval, KvcStats
from kvc_vllm.worker import KvcMetadata, KvcWorkerMetadata

logger = init_logger("vllm.kvc.scheduler")
NO_READ, RESET_INVALIDATE, END_ERROR = 1, 1, 3
ALLOC_ROOM = lib.ALLOC_OUT.size.to_bytes(4, "little")
ROW = 6  # 64-bit words of a kvc_step_request: sizes and flags, id, confirmed, list of tables
ENDS = {RequestStatus.FINISHED_STOPPED: 0, RequestStatus.FINISHED_LENGTH_CAPPED: 1,
        RequestStatus.FINISHED_ABORTED: 2}
SOURCES = {1: CacheHitSource.HOST, 2: CacheHitSource.DISK}


class Live:
    """A request that the library knows."""

    __slots__ = ("id", "job", "keys", "media", "nulled", "request", "resumed", "scheduled",
                 "tables", "told")

    def __init__(self, number: int, request: Request, groups: int) -> None:
        self.id, self.request = number, request
        self.keys = self.job = 0  # keys that the library has; load that the engine waits for
        self.tables: list[array.array | None] = [None] * groups
        self.told = [0] * groups  # entries that the library has as they are
        self.nulled = [0] * groups  # leading entries that are null for good
        self.scheduled = self.resumed = False  # in this admission; preempted since the last record
        self.media: dict[CacheHitSource, int] = {}


class KvcScheduler:
    """Owns the scheduler handle and the references of its holds. Threads: the scheduler's."""

    def __init__(self, config: Any, cache: Any, library: lib.Library, log: Any) -> None:
        self.layout = layout.Layout(config, cache, 0)
        self.handle = lib.Handle(library, "scheduler", self.layout.open, self.layout.host_caps, log)
        self.events = Events(config, cache, self.handle)
        self.live: dict[str, Live] = {}
        self.held: dict[int, list[Any]] = {}  # job -> referenced blocks
        self.loads: dict[int, tuple[str, Any, int]] = {}  # open load -> request, kvc_block words
        self._nothing = [array.array("q")] * self.layout.count
        self.gone, self._interval = "", Interval()
        self._tails: dict[str, Any] = {}  # finish-time hand-offs of the request that ends now
        self._failed: list[str] = []  # requests whose loads will never be in a plan
        self._unplanned: dict[int, str] = {}  # loads in no plan yet
        self._closed = self._next_id = self._step = 0
        groups = self.layout.count
        self._stable = [g for g in range(groups) if self.layout.stable[g]]
        self._lookup, self._alloc = library.lookup, library.alloc_update
        self._in = ctypes.create_string_buffer(lib.LOOKUP_IN.size)
        self._out = ctypes.create_string_buffer(lib.LOOKUP_OUT.size)
        self._lookup_at = (ctypes.addressof(self._in), ctypes.addressof(self._out))
        self._tables = ctypes.create_string_buffer(groups * lib.TABLE.size)
        self._alloc_in = ctypes.create_string_buffer(lib.ALLOC_IN.size)
        self._alloc_out = ctypes.create_string_buffer(lib.ALLOC_OUT.size)
        self._tables_at, self._alloc_in_at, self._alloc_out_at = map(
            ctypes.addressof, (self._tables, self._alloc_in, self._alloc_out))
        self._room(2 * self.layout.max_running)

    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        self._pool = kv_cache_manager.block_pool
        managers = kv_cache_manager.coordinator.single_type_managers
        self._windows = [(g, managers[g].req_to_blocks) for g in self._stable
                         if self.layout.kinds[g] in (layout.SLIDING, layout.CHUNKED)]

    def set_xfer_handshake_metadata_pp_aware(self, metadata: dict[Any, Any]) -> None:
        infos = layout.rank_infos([m.info for m in metadata.values()])
        usable = lib.TYPES["list"]()
        self.handle.check("set_ranks", lib.list_of(infos, len(infos)), usable)

    def _call(self, slot: str, *given: Any, mild: tuple[int, ...] = ()) -> int:
        """The status. A negative one that is not mild: no further call but close; the workers are
        told with the next step, the engine goes on without kvc."""
        status = self.handle.call(slot, *given)
        if status < 0 and status not in mild:
            self._give_up(f"{slot} answered {status}: {self.handle.error()}")
        return status

    def _give_up(self, why: str) -> None:
        if not self.gone:
            self.gone = why
            logger.error("kvc connector given up, the engine goes on without it: %s", why)

    # ---- one request

    def _begin(self, request: Request) -> Live:
        self._next_id += 1
        st = self.live[request.request_id] = Live(self._next_id, request, self.layout.count)
        self.events.began(st.id, request)
        keys, prompt = b"".join(request.block_hashes), request.num_prompt_tokens
        st.keys = min(len(request.block_hashes), prompt // self.layout.unit)
        self._call("request_begin", lib.make(
            "request", request=st.id, prompt_tokens=prompt, n_keys=st.keys,
            keys=ctypes.cast(keys, ctypes.c_void_p), load_limit_tokens=lib.NO_LIMIT,
            store_limit_tokens=lib.NO_LIMIT,
            flags=NO_READ if request.skip_reading_prefix_cache else 0), mild=(lib.E_FULL,))
        return st

    def _extend(self, st: Live) -> None:
        hashes, first = st.request.block_hashes, st.keys
        keys, st.keys = b"".join(hashes[first:]), len(hashes)
        self._call("request_extend", lib.make(
            "extend", request=st.id, first_key=first, n_keys=st.keys - first,
            keys=ctypes.cast(keys, ctypes.c_void_p)), mild=(lib.E_FULL,))

    def on_new_request(self, request: Request) -> None:
        """Those that will run soon; the others are told of at their first lookup."""
        if not self.gone and not request.resumable and len(self.live) < 2 * self.layout.max_running:
            self._begin(request)

    def get_num_new_matched_tokens(
            self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        if self.gone or request.resumable:  # a session may take tokens back, the line may not
            return 0, False
        st = self.live.get(request.request_id) or self._begin(request)
        if st.keys != len(request.block_hashes):
            self._extend(st)
        lib.LOOKUP_IN.pack_into(
            self._in, 0, 40, 0, st.id, request.num_tokens, num_computed_tokens,
            lib.NO_LIMIT)
        lib.LOOKUP_OUT.pack_into(self._out, 0, 24, 0, 0, 0, 0)
        status = self._lookup(self.handle.address, *self._lookup_at)
        if status == lib.OK:
            tokens = lib.LOOKUP_OUT.unpack_from(self._out)[2]
            return tokens, tokens > 0
        if status in (lib.LATER, lib.E_STATE):  # E_STATE: the end of its last load is on its way
            return None, False
        if status < 0:
            self._give_up(f"lookup answered {status}: {self.handle.error()}")
        return 0, False

    def update_state_after_alloc(
            self, request: Request, blocks: Any, num_external_tokens: int) -> None:
        name, tokens = request.request_id, num_external_tokens
        st = self.live.get(name)
        if st is None or self.gone:
            self._failed += [name] if tokens else []
            return
        tables = [array.array("q", ids) for ids in blocks.get_block_ids()] if tokens else (
            self._nothing)
        for g, table in enumerate(tables):
            lib.TABLE.pack_into(self._tables, g * 32, 32, g, *table.buffer_info(), 0)
        lib.ALLOC_IN.pack_into(self._alloc_in, 0, 48, 0, st.id, tokens, self._tables_at,
                               self.layout.count, 32, 0)
        self._alloc_out[:4] = ALLOC_ROOM
        status = self._alloc(self.handle.address, self._alloc_in_at, self._alloc_out_at)
        st.media, job = {}, 0
        if status == lib.OK and tokens:
            _, _, job, held, count, stride, _, media, n, width, _ = lib.ALLOC_OUT.unpack_from(
                self._alloc_out)
        if status == lib.E_INTERNAL:
            self._give_up(f"alloc_update answered {status}: {self.handle.error()}")
        if tokens and not job:
            logger.error("kvc alloc_update of %s with %d tokens answered %d: %s; they are computed",
                         name, tokens, status, self.handle.error())
            self._failed.append(name)
        elif tokens:
            st.job, self._unplanned[job] = job, name
            self.loads[job] = (name, lib.words_of(held, count, stride), stride // 8)
            parts = lib.words_of(media, n, width)
            for i in range(0, len(parts), width // 8):
                source = SOURCES.get(parts[i] >> 32, CacheHitSource.EXTERNAL_UNSPECIFIED)
                st.media[source] = parts[i + 1]

    def get_external_cache_hit_sources(
            self, request: Request, num_external_tokens: int) -> dict[CacheHitSource, int]:
        return dict(getattr(self.live.get(request.request_id), "media", {}))

    def register_finished_partial_tail(
            self, request: Request, block_ids: Any, partial_tail_offloads: list[Any]) -> bool:
        self._tails[request.request_id] = partial_tail_offloads
        return False

    # ---- one step

    def _room(self, requests: int) -> None:
        self._requests = requests
        self._record = (ctypes.c_uint64 * (requests * ROW))()
        self._words = memoryview(self._record).cast("B").cast("Q")
        self._changed = ctypes.create_string_buffer(requests * self.layout.count * lib.TABLE.size)

    def _nulls(self, st: Live) -> None:
        """Leading window blocks that the engine gave back since the last record."""
        for g, tables in self._windows:
            table, blocks, at = st.tables[g], tables[st.request.request_id], st.nulled[g]
            while at < len(table) and blocks[at].is_null:
                if table[at] != 0:
                    table[at] = 0
                    st.told[g] = min(st.told[g], at)
                at += 1
            st.nulled[g] = at

    def _tables_of(self, st: Live, at: int) -> None:
        """Writes one kvc_table a group behind offset `at`, empty where nothing changed."""
        for g, table in enumerate(st.tables):
            first, address, count = 0, 0, 0
            if table is not None and st.told[g] < len(table):
                first, (address, count) = st.told[g], table.buffer_info()
                st.told[g] = count
            lib.TABLE.pack_into(self._changed, at + g * 32, 32, g, address, count, first)

    def _scheduled(self, output: SchedulerOutput) -> int:
        """Fills the record; how many requests stand in it."""
        cached, tokens, windows = (
            output.scheduled_cached_reqs, output.num_scheduled_tokens, self._windows)
        rows = [(r.req_id, r.block_ids, True) for r in output.scheduled_new_reqs]
        rows += [(r, ids, r in cached.resumed_req_ids)
                 for r, ids in zip(cached.req_ids, cached.new_block_ids, strict=True)]
        if len(rows) > self._requests:
            self._room(2 * len(rows))
        groups, words, tables_at = self.layout.count, self._words, ctypes.addressof(self._changed)
        row, stride, live = 0, self.layout.count * lib.TABLE.size, self.live
        for name, ids, whole in rows:
            st = live.get(name)
            if st is None:
                continue
            request = st.request
            if st.keys != len(request.block_hashes):
                self._extend(st)
            changed = whole or ids is not None or windows
            for g in self._stable if whole or ids is not None else ():
                if whole:
                    st.tables[g] = array.array("q", ids[g])
                    st.told[g] = st.nulled[g] = 0
                else:
                    st.tables[g].extend(ids[g])
            if changed:
                at = row // ROW * stride
                self._nulls(st)
                self._tables_of(st, at)
                words[row], words[row + 1] = 48 | st.resumed << 32, st.id
                words[row + 3], words[row + 4], words[row + 5] = tables_at + at, groups, 32
                st.scheduled, st.resumed, st.job = True, False, 0
            elif words[row + 1] != st.id or words[row + 4]:  # not as in the last step
                words[row], words[row + 1], words[row + 5] = 48, st.id, 32
                words[row + 3] = words[row + 4] = 0
            known, confirmed = request.num_tokens, request.num_computed_tokens + tokens[name]
            words[row + 2] = confirmed if confirmed < known else known
            row += ROW
        return row // ROW

    def _preempted(self, names: Any) -> Any:
        found = [st for st in map(self.live.get, names or ()) if st is not None]
        for st in found:
            st.scheduled, st.resumed = False, True
        return (ctypes.c_uint64 * len(found))(*(st.id for st in found))

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KvcMetadata:
        output = scheduler_output
        if self.gone:
            return self._last_words()
        ids = self._preempted(output.preempted_req_ids)
        count = self._scheduled(output)
        state = output.kv_connector_block_state
        handoffs = b"".join(
            lib.HANDOFF.pack(32, group, self.live[name].id, block, tokens)
            for name, entries in (state.boundary_state_offloads if state else {}).items()
            if name in self.live for group, block, tokens in entries)
        self._step += 1
        plan = lib.make("plan")
        scheduled = lib.TYPES["list"](
            ctypes.addressof(self._record), count, 8 * ROW, 0)
        status = self._call("build_store_jobs", lib.make(
            "step", step=self._step, preempted=ctypes.addressof(ids), n_preempted=len(ids),
            scheduled=scheduled, handoffs=lib.packed(handoffs, 32),
            candidates=lib.packed(b"", 32)), plan)
        if status < 0:
            return self._last_words()
        failed, self._failed, loads = self._failed, [], {}
        for job in lib.elements("plan_job", plan.jobs):
            if job.kind == lib.JOB_LOAD:
                loads[job.job] = self._unplanned.pop(job.job)
            elif job.held.count:
                self._hold(job.job, lib.block_ids(job.held))
        return KvcMetadata(ctypes.string_at(plan.bytes.data, plan.bytes.size), loads, failed)

    def _last_words(self) -> KvcMetadata:
        failed, self._failed = [*self._failed, *self._unplanned.values()], []
        self._unplanned.clear()
        return KvcMetadata(failed=failed, close=self.gone)

    def _hold(self, job: int, ids: Any) -> None:
        blocks = [self._pool.blocks[i] for i in ids]
        self._pool.touch(blocks)
        self.held.setdefault(job, []).extend(blocks)

    # ---- what ended

    def update_connector_output(self, connector_output: Any) -> None:
        meta = connector_output.kv_connector_worker_meta
        if isinstance(meta, KvcWorkerMetadata):
            self._closed += meta.closed
            for why in meta.failures:
                self._give_up(why)
            if meta.reports and not self.gone:
                self._complete(meta.reports)
        # A load may have a result before its copies have ended (deadline): hold its blocks now.
        over = connector_output.finished_recving or ()
        for job, (name, blocks, width) in self.loads.items() if over else ():
            st = self.live.get(name)
            if name in over and job not in self.held and (st is None or st.job == job):
                self._hold(job, blocks[1::width])
        if self._closed >= self.layout.ranks:
            for job in list(self.held):
                self._release(job, ())
            self.loads.clear()

    def _complete(self, reports: list[bytes]) -> None:
        given = (lib.TYPES["bytes"] * len(reports))(*map(lib.bytes_of, reports))
        out = lib.make("complete_out")
        if self._call("complete", given, len(reports), out) < 0:
            return
        for job in lib.elements("ended_job", out.jobs):
            self.loads.pop(job.job, None)
            if job.job in self.held:
                self._release(job.job, lib.block_ids(job.released) if job.released.count else ())

    def _release(self, job: int, ids: Any) -> None:
        """Drops the references of a job, in the order of `ids` if that names them all."""
        blocks = self.held.pop(job)
        self._pool.free_blocks(
            [self._pool.blocks[i] for i in ids] if len(ids) == len(blocks) else blocks)

    def request_finished_all_groups(
            self, request: Request, block_ids: tuple[list[int], ...]) -> tuple[bool, None]:
        """What is still copied is held by reference: the engine frees the blocks at once."""
        st = self.live.pop(request.request_id, None)
        tails = self._tails.pop(request.request_id, ())
        if st is not None and not self.gone:
            self._end(st, request, tails if st.scheduled and any(block_ids) else None)
        return False, None

    def _end(self, st: Live, request: Request, last: Any) -> None:
        """`last`: finish-time hand-offs; None if the request owns no written blocks."""
        tables, tails, confirmed = lib.packed(b"", 32), b"", 0
        if last is not None:
            self._nulls(st)
            self._tables_of(st, 0)
            tables = lib.TYPES["list"](ctypes.addressof(self._changed), self.layout.count, 32, 0)
            tails = b"".join(lib.HANDOFF.pack(32, g, st.id, b, t) for g, b, t in last)
            confirmed = min(request.num_computed_tokens, request.num_tokens)
        out = lib.make("end_out")
        status = self._call("request_end", lib.make(
            "end_in", reason=ENDS.get(request.status, END_ERROR), request=st.id, tables=tables,
            confirmed_tokens=confirmed, handoffs=lib.packed(tails, 32)), out, mild=(lib.E_ARG,))
        if status < 0:
            logger.error("kvc request_end of %s answered %d: %s", request.request_id, status,
                         self.handle.error())
        elif out.job and out.held.count:
            self._hold(out.job, lib.block_ids(out.held))
        self.events.ended(st.id, {*self.held, *self.loads})

    def reset_cache(self) -> bool:
        status = 0 if self.gone else self._call("reset", RESET_INVALIDATE, mild=(lib.E_STATE,))
        if status < 0:
            logger.warning("kvc reset answered %d: %s", status, self.handle.error())
        return status >= 0

    def has_pending_push_work(self) -> bool:
        """Whether blocks of stores will come back that an idle engine must wait for."""
        if self.gone or not self.held:
            return bool(self.held) and self._closed < self.layout.ranks
        out = lib.make("pending")
        self._call("has_pending", out)
        return out.held_blocks > out.quarantined_blocks

    def has_pending_block_frees(self) -> bool:
        """Whether the end of a copy gives a block back to the pool."""
        return any(b.ref_cnt == 1 for blocks in self.held.values() for b in blocks)

    def take_events(self) -> list[Any]:
        return [] if self.gone else self.events.take(self.held.keys() | self.loads.keys())

    def get_kv_connector_stats(self) -> KvcStats | None:
        return self._interval.take(self._stats)

    def _stats(self) -> Any:
        """Yields (name, labels, value) of every counter and gauge."""
        if self.handle.address is None:
            return
        needed, kind = ctypes.c_uint64(), lib.TYPES["stat"]
        self.handle.call("stats", 0, ctypes.sizeof(kind), 0, needed)
        room = (kind * needed.value)()
        if self.handle.call("stats", room, ctypes.sizeof(kind), len(room), needed) == lib.OK:
            for stat in room:
                yield lib.text_of(stat.name), lib.text_of(stat.labels), stat.value
        offers = lib.make("boundary_stats")
        if self.handle.call("boundary_stats", offers) == lib.OK:
            for outcome in [n for n, _ in offers.handoffs._fields_[1:] if n != "pending"]:
                label = "outcome=" + OUTCOMES.get(outcome, outcome)
                yield "handoffs", label, getattr(offers.handoffs, outcome)
                yield "offers", "outcome=" + outcome, getattr(offers.all_offers, outcome)

    def shutdown(self) -> None:
        self.gone = self.gone or "shut down"
        self.handle.close()
