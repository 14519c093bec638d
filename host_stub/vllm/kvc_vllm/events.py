"""vLLM's KV events of the tier. Token ids come from the request that stored the block."""

from typing import Any

from vllm.distributed import kv_events
from vllm.v1.core import kv_cache_utils as hashes
from vllm.v1.kv_cache_interface import get_kv_cache_spec_kind, get_kv_cache_spec_sliding_window
from vllm.v1.request import Request

from kvc_vllm import lib

MEDIA = {lib.MEDIUM_HOST: kv_events.MEDIUM_CPU, lib.MEDIUM_DISK: kv_events.MEDIUM_STORAGE}


class Events:
    """Keeps the requests that live, and those that ended with jobs open. Off: keeps nothing."""

    def __init__(self, config: Any, cache: Any, handle: lib.Handle) -> None:
        wanted = config.kv_events_config
        self.on = bool(wanted and wanted.enable_kv_cache_events and handle.library.take_events)
        self._handle = handle
        self._specs = [g.kv_cache_spec for g in cache.kv_cache_groups]
        self._requests: dict[int, Request] = {}
        self._over: dict[int, set[int]] = {}  # ended request -> jobs that were open then

    def began(self, number: int, request: Request) -> None:
        if self.on:
            self._requests[number] = request

    def ended(self, number: int, jobs: set[int]) -> None:
        self._over[number] = jobs

    def take(self, open_jobs: set[int]) -> list[Any]:
        if not self.on:
            return []
        out = list(map(self._event, self._handle.events()))
        for number in [n for n, jobs in self._over.items() if not jobs & open_jobs]:
            del self._over[number], self._requests[number]
        return out

    def _event(self, event: Any) -> Any:
        if event.kind == lib.EVENT_CLEARED:
            return kv_events.AllBlocksCleared()
        medium = MEDIA.get(event.medium)
        key, parent = (hashes.maybe_convert_block_hash(bytes(k[: event.key_bytes]))
                       for k in (event.key, event.parent_key))
        if event.kind == lib.EVENT_REMOVED:
            return kv_events.BlockRemoved([key], medium, event.group, "LOCAL")
        begin, end, spec = event.begin_tokens, event.end_tokens, self._specs[event.group]
        request = self._requests.get(event.request)
        lora = request.lora_request if request else None
        extra = (hashes.generate_block_hash_extra_keys(request, begin, end, 0)[0]
                 if request else None)
        return kv_events.BlockStored(
            [key], parent if event.has_parent else None,
            list(request.all_token_ids[begin:end]) if request else [], end - begin,
            lora.adapter_id if lora else None, medium, lora.name if lora else None,
            extra_keys=hashes.to_event_extra_keys([extra] if extra else None),
            group_idx=event.group, kv_cache_spec_kind=get_kv_cache_spec_kind(spec).value,
            kv_cache_spec_sliding_window=get_kv_cache_spec_sliding_window(spec),
            locality="LOCAL", session_id=request.session_id if request else None)
