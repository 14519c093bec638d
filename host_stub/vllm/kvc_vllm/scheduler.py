"""Scheduler role: tables, keys and hand-offs to the library; its holds as block references."""

import array
import ctypes
import itertools
import operator
from typing import Any

from vllm.logger import init_logger
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.metrics.cache_hit_source import CacheHitSource
from vllm.v1.request import Request, RequestStatus

from kvc_vllm import layout, lib
from kvc_vllm.events import Events
from kvc_vllm.metrics import OUTCOMES, Interval, KvcStats
from kvc_vllm.worker import KvcMetadata

logger = init_logger("vllm.kvc.scheduler")
ROW, TABLE = 6, 4  # 64-bit words of a kvc_step_request and a kvc_table
ENDS = {RequestStatus.FINISHED_STOPPED: lib.END_STOP, RequestStatus.FINISHED_ABORTED: lib.END_ABORT,
        RequestStatus.FINISHED_LENGTH_CAPPED: lib.END_LENGTH}
SOURCES = {lib.MEDIUM_HOST: CacheHitSource.HOST, lib.MEDIUM_DISK: CacheHitSource.DISK}


class Live:
    """A request that the library knows."""

    __slots__ = ("id", "job", "keys", "nulled", "request", "resumed", "scheduled", "tables", "told")

    def __init__(self, number: int, request: Request, groups: int) -> None:
        self.id, self.request = number, request
        self.keys = self.job = 0  # keys that the library has; load that the engine waits for
        self.tables: list[array.array | None] = [None] * groups
        # Entries that the library has as they are; leading ones that are null for good.
        self.told, self.nulled = [0] * groups, [0] * groups
        # In this admission; STEP_RESUMED: preempted since the last record.
        self.scheduled, self.resumed = False, 0


class KvcScheduler:
    """Owns the scheduler handle and the references of its holds. Threads: the scheduler's."""

    def __init__(self, config: Any, cache: Any, library: lib.Library, log: Any) -> None:
        self.layout = layout.Layout(config, cache, 0)
        self.handle = lib.Handle(library, "scheduler", self.layout.open, self.layout.host_caps, log)
        self.events = Events(config, cache, self.handle)
        self.live: dict[str, Live] = {}
        self.held: dict[int, list[Any]] = {}  # job -> referenced blocks
        self.loads: dict[int, tuple[str, array.array]] = {}  # open load -> request, its blocks
        self.gone, self._accepted, self._interval = "", "", Interval()  # last accepted load: whose
        self._tails: dict[str, Any] = {}  # finish-time hand-offs of the request that ends now
        self._failed: list[str] = []  # requests whose loads will never be in a plan
        self._unplanned: dict[int, str] = {}  # loads in no plan yet
        self._closed = self._begun = self._steps = 0
        self._stable = [g for g in range(self.layout.count) if self.layout.stable[g]]
        for name in ("request", "extend", "handoff", "lookup_in", "lookup_out", "alloc_in",
                     "alloc_out", "plan", "step", "bytes", "complete_out", "end_in", "end_out",
                     "pending"):
            setattr(self, "_" + name, lib.Record(name))
        self.handle.broke, bind = self._give_up, self.handle.bind
        self._new = bind("request_begin", self._request, mild=(lib.E_FULL,))
        self._more = bind("request_extend", self._extend, mild=(lib.E_FULL,))
        self._look = bind("lookup", self._lookup_in, self._lookup_out, mild=(lib.E_STATE,))
        self._admit = bind("alloc_update", self._alloc_in, self._alloc_out,
                           mild=(lib.E_ARG, lib.E_STATE, lib.E_FULL))
        self._plan_of = bind("build_store_jobs", self._step, self._plan)
        self._ended = bind("complete", self._bytes, 1, self._complete_out)
        self._over = bind("request_end", self._end_in, self._end_out, mild=(lib.E_ARG,))
        self._ask = bind("has_pending", self._pending)
        self._reset = bind("reset", lib.RESET_INVALIDATE, mild=(lib.E_STATE,))
        self._tables, self._no_tables = (lib.tables(1, self.layout.count) for _ in "ab")
        self._lookup_in.put(0, 0, 0, 0, lib.NO_LIMIT)
        self._alloc_in.put(0, 0, 0, 0, self.layout.count, 32, 0)
        self._step.put(0, 0, 0, 0, 8 * ROW, 0, 0, 0, 0, 0, self._handoff.size, 0, 0, 0, 32, 0)
        self._names: list[str] = []  # of the last record, and what is known of each
        self._room(2 * self.layout.max_running)

    def _room(self, requests: int) -> None:
        self._record = lib.Record("step_request", requests)
        self._step.words[2] = self._record.address
        self._changed = lib.tables(requests, self.layout.count)
        self._touched: list[int] = []  # rows of the record that have tables

    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        self._pool = kv_cache_manager.block_pool
        managers = kv_cache_manager.coordinator.single_type_managers
        self._windows = [(g, managers[g].req_to_blocks) for g in self._stable
                         if self.layout.kinds[g] in (lib.GROUP_SLIDING, lib.GROUP_CHUNKED)]

    def set_xfer_handshake_metadata_pp_aware(self, metadata: dict[Any, Any]) -> None:
        infos = lib.rank_infos([m.info for m in metadata.values()])
        self.handle.check("set_ranks", ctypes.byref(lib.list_of(infos)),
                          ctypes.byref(lib.TYPES["list"]()))
        if any(name == "lazy_mode_now" and value for name, _, value in self.handle.numbers()):
            raise lib.KvcError("the library runs in lazy mode, and vLLM names it no blocks that "
                               "are about to be evicted: nothing would be stored")

    def _give_up(self, why: str) -> None:
        """No further call but close; the workers are told with the next step, the engine goes on
        without kvc."""
        if not self.gone:
            self.gone = why
            logger.error("kvc connector given up, the engine goes on without it: %s", why)

    # ---- one request

    def _begin(self, request: Request) -> Live:
        self._begun += 1
        st = self.live[request.request_id] = Live(self._begun, request, self.layout.count)
        self.events.began(st.id, request)
        hashes, prompt = request.block_hashes, request.num_prompt_tokens
        st.keys = min(len(hashes), prompt // self.layout.unit)
        flags = lib.REQUEST_NO_READ if request.skip_reading_prefix_cache else 0
        self._request.put(flags, st.id, prompt, 0, st.keys, lib.NO_LIMIT, lib.NO_LIMIT)
        self._request.texts[3] = b"".join(hashes)
        self._new()
        return st

    def _more_keys(self, st: Live) -> None:
        hashes, first = st.request.block_hashes, st.keys
        st.keys = len(hashes)
        self._extend.put(0, st.id, first, 0, st.keys - first)
        self._extend.texts[3] = b"".join(hashes[first:])
        if not self.gone:
            self._more()

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
            self._more_keys(st)
        if self.gone:  # since one of these
            return 0, False
        words = self._lookup_in.words
        words[1], words[2], words[3] = st.id, request.num_tokens, num_computed_tokens
        status = self._look()
        if status == 0:
            tokens = self._lookup_out.words[1]
            if tokens and num_computed_tokens + tokens > request.num_tokens:
                self._give_up(f"lookup offers {tokens} tokens behind {num_computed_tokens} of a "
                              f"request of {request.num_tokens}")
                tokens = 0
            return tokens, tokens > 0
        # E_STATE: the end of its last load is on its way
        return (None if status in (lib.LATER, lib.E_STATE) else 0), False

    def update_state_after_alloc(
            self, request: Request, blocks: Any, num_external_tokens: int) -> None:
        name, tokens = request.request_id, num_external_tokens
        st = self.live.get(name)
        if st is None or self.gone:
            self._failed += [name] if tokens else []
            return
        words, self._accepted = self._alloc_in.words, ""
        words[1], words[2], words[3] = st.id, tokens, self._no_tables.address
        if tokens:
            ids = array.array("Q")
            ids.fromlist([b.block_id for group in blocks.blocks for b in group])
            words[3], tables, start = self._tables.address, self._tables.words, ids.buffer_info()[0]
            for at, group in zip(itertools.count(1, TABLE), blocks.blocks):
                tables[at], tables[at + 1] = start, len(group)
                start += 8 * len(group)
        status = self._admit()
        if tokens and status == 0 and (job := self._alloc_out.words[1]):
            self._accepted = self._unplanned[job] = name
            st.job, self.loads[job] = job, (name, ids)
        elif tokens:
            logger.error("kvc alloc_update of %s with %d tokens answered %s: %s; they are computed",
                         name, tokens, lib.said(status), self.handle.error())
            self._failed.append(name)

    def get_external_cache_hit_sources(
            self, request: Request, num_external_tokens: int) -> dict[CacheHitSource, int]:
        """Asked right after the load was accepted, while the library's list is valid."""
        media = self._alloc_out.words[5:8] if self._accepted == request.request_id else (0, 0, 0)
        return {SOURCES.get(part[0] >> 32, CacheHitSource.EXTERNAL_UNSPECIFIED): part[1]
                for part in lib.rows_of(*media)}

    def register_finished_partial_tail(
            self, request: Request, block_ids: Any, partial_tail_offloads: list[Any]) -> bool:
        self._tails[request.request_id] = partial_tail_offloads
        return False

    # ---- one step

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

    def _tables_of(self, st: Live, row: int) -> int:
        """The address of the kvc_tables of a row, written anew; empty ones are unchanged."""
        words, start = self._changed.words, row * self.layout.count * TABLE
        for g, (table, first) in enumerate(zip(st.tables, st.told, strict=True)):
            at, address, count = start + g * TABLE, 0, 0
            if table is not None and first < len(table):
                address, count = table.buffer_info()
                st.told[g] = count
            words[at + 1], words[at + 2], words[at + 3] = address, count, first if count else 0
        return self._changed.address + 8 * start

    def _relist(self, names: list[str]) -> None:
        """The rows of the record are those of other requests than in the last step."""
        self._names, self._known = names, [n in self.live for n in names]
        self._rows = [self.live[n] for n in names if n in self.live]
        if len(self._rows) > self._record.count:
            self._room(2 * len(self._rows))
        words = self._record.words
        for row, st in enumerate(self._rows):
            words[row * ROW + 1], words[row * ROW + 5] = st.id, 8 * TABLE
        self._requests = [st.request for st in self._rows]
        self._full = [(st.keys + 1) * self.layout.unit for st in self._rows]  # tokens of a new key

    def _scheduled(self, output: SchedulerOutput) -> int:
        """Fills the record; how many requests stand in it. Only what changed is written, and only
        the numbers of tokens are looked at for every request."""
        cached, new = output.scheduled_cached_reqs, output.scheduled_new_reqs
        names, ids, computed = cached.req_ids, cached.new_block_ids, cached.num_computed_tokens
        if new:
            names = [r.req_id for r in new] + names
            ids = [r.block_ids for r in new] + ids
            computed = [r.num_computed_tokens for r in new] + computed
        if new or cached.resumed_req_ids or names != self._names:
            self._relist(names)
        if len(self._rows) < len(names):  # some run without connector
            names, ids, computed = (
                list(itertools.compress(c, self._known)) for c in (names, ids, computed))
        scheduled = map(output.num_scheduled_tokens.__getitem__, names)
        confirmed = array.array("Q", map(operator.add, computed, scheduled))
        known = [r.num_tokens for r in self._requests]
        if any(map(operator.gt, confirmed, known)):  # drafts, or tokens still to be sampled
            confirmed = array.array("Q", map(min, confirmed, known))
        words = self._record.words
        words[2 : ROW * len(names) : ROW] = memoryview(confirmed)
        if any(map(operator.ge, confirmed, self._full)):
            for row, st in enumerate(self._rows):
                if confirmed[row] >= self._full[row] and len(st.request.block_hashes) > st.keys:
                    self._more_keys(st)
                    self._full[row] = (st.keys + 1) * self.layout.unit
        for row in self._touched:
            words[row * ROW], words[row * ROW + 4] = 8 * ROW, 0
        self._touched = [row for row, more in enumerate(ids) if more is not None or self._windows]
        for row in self._touched:
            st, more, at = self._rows[row], ids[row], row * ROW
            if more is not None:
                whole = names[row] in cached.resumed_req_ids or not st.scheduled
                self._grow(st, more, whole)
            self._nulls(st)
            words[at], words[at + 3] = 8 * ROW | st.resumed << 32, self._tables_of(st, row)
            words[at + 4] = self.layout.count
            st.scheduled, st.resumed, st.job = True, 0, 0
        return len(names)

    def _grow(self, st: Live, ids: Any, whole: bool) -> None:
        for g in self._stable:
            if whole:
                st.tables[g] = array.array("Q", ids[g])
                st.told[g] = st.nulled[g] = 0
            else:
                st.tables[g].extend(ids[g])

    def _preempted(self, names: Any) -> array.array:
        found = [self.live[n] for n in names if n in self.live]
        for st in found:
            st.scheduled, st.resumed = False, lib.STEP_RESUMED
        return array.array("Q", [st.id for st in found])

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KvcMetadata:
        output, words = scheduler_output, self._step.words
        if self.gone:
            return self._last_words()
        state = output.kv_connector_block_state
        ids = self._preempted(output.preempted_req_ids or ())
        words[3] = self._scheduled(output)
        words[5], words[6] = ids.buffer_info()
        handoffs = state.boundary_state_offloads if state else ()
        if handoffs:
            self._step.texts[7] = handoffs = self._handoff.pack_all(
                (g, self.live[name].id, b, t) for name, entries in handoffs.items()
                if name in self.live for g, b, t in entries)
        words[8] = len(handoffs) // self._handoff.size
        words[1] = self._steps = self._steps + 1
        if self.gone or self._plan_of() < 0:  # gone: since more keys were told of
            return self._last_words()
        failed, self._failed, loads = self._failed, [], {}
        plan = self._plan.words
        for job in lib.rows_of(plan[2], plan[3], plan[4]):
            if job[0] >> 32 == lib.JOB_LOAD:
                if (name := self._unplanned.pop(job[1], None)) is not None:
                    loads[job[1]] = name  # else: nobody asked for it
            elif job[4]:
                self._hold(job[1], lib.block_ids(job[3], job[4], job[5]))
        return KvcMetadata(lib.bytes_at(plan[5], plan[6]), loads, failed)

    def _last_words(self) -> KvcMetadata:
        failed, self._failed = [*self._failed, *self._unplanned.values()], []
        self._unplanned.clear()
        return KvcMetadata(failed=failed, close=self.gone)

    def _hold(self, job: int, ids: Any) -> None:
        blocks = list(map(self._pool.blocks.__getitem__, ids))
        self._pool.touch(blocks)
        self.held.setdefault(job, []).extend(blocks)

    # ---- what ended

    def update_connector_output(self, connector_output: Any) -> None:
        meta = connector_output.kv_connector_worker_meta
        if meta is not None:
            for why in meta.failures:
                self._closed += 1
                self._give_up(why)
            for report in meta.reports:
                self._complete(report)
        # A load may have a result before its copies have ended (deadline): hold its blocks now.
        if self.loads and (over := connector_output.finished_recving):
            for job, (name, ids) in self.loads.items():
                if name in over and job not in self.held and (
                        name not in self.live or self.live[name].job == job):
                    self._hold(job, [i for i in reversed(ids) if i])
        if self._closed and self._closed >= self.layout.ranks:
            self.loads.clear()
            while self.held:
                self._pool.free_blocks(self.held.popitem()[1])

    def _complete(self, report: bytes) -> None:
        """Drops the references of jobs that ended, deepest positions first as they were told."""
        (given := self._bytes).texts[0], given.words[1] = report, len(report)
        if not self.gone and self._ended() >= 0:
            out, held = self._complete_out.words, self.held
            first, width = (out[1] >> 3) + 1, out[3] >> 3  # of ids; a slice costs more
            for at in range(first, first + out[2] * width, width or 1):
                if (job := lib.WORDS[at]) in held:
                    self._pool.free_blocks(held.pop(job))
                self.loads.pop(job, None)

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
        tables, tails, confirmed = 0, b"", 0
        if last is not None:
            self._nulls(st)
            tables = self._tables_of(st, 0)
            tails = self._handoff.pack_all((g, st.id, b, t) for g, b, t in last)
            confirmed = min(request.num_computed_tokens, request.num_tokens)
        self._end_in.put(
            ENDS.get(request.status, lib.END_ERROR), st.id, confirmed,
            tables, self.layout.count if tables else 0, 8 * TABLE, 0,
            0, len(tails) // self._handoff.size, self._handoff.size, 0)
        self._end_in.texts[6] = tails
        status, out = self._over(), self._end_out.words
        if status < 0:
            logger.error("kvc request_end of %s answered %s: %s", request.request_id,
                         lib.said(status), self.handle.error())
        elif out[1] and out[3]:
            self._hold(out[1], lib.block_ids(out[2], out[3], out[4]))
        if self.events.on:
            self.events.ended(st.id, {*self.held, *self.loads})

    def reset_cache(self) -> bool:
        status = 0 if self.gone else self._reset()
        if status < 0:
            logger.warning("kvc reset answered %s: %s", lib.said(status), self.handle.error())
        return status >= 0

    def has_pending_push_work(self) -> bool:
        """Whether blocks of stores will come back that an idle engine must wait for."""
        if self.gone or not self.held:
            return bool(self.held) and self._closed < self.layout.ranks
        self._ask()
        return self._pending.words[3] > self._pending.words[4]

    def has_pending_block_frees(self) -> bool:
        """Whether the end of a copy gives a block back to the pool."""
        return any(b.ref_cnt == 1 for blocks in self.held.values() for b in blocks)

    def take_events(self) -> list[Any]:
        return [] if self.gone else self.events.take(self.held.keys() | self.loads.keys())

    def get_kv_connector_stats(self) -> KvcStats | None:
        return self._interval.take(self._stats)

    def _stats(self) -> Any:
        """Yields (name, labels, value) of every counter and gauge."""
        yield from self.handle.numbers()
        for outcome, handoffs, offers in self.handle.outcomes():
            if outcome not in ("published", "pending"):
                yield "handoffs", "outcome=" + OUTCOMES.get(outcome, outcome), handoffs
                yield "offers", "outcome=" + outcome, offers

    def shutdown(self) -> None:
        self.gone = self.gone or "shut down"
        self.handle.close()
