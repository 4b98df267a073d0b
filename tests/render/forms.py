"""Fixed parts of the sentences that carry figures, and the releases between which each is printed."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tests.render.releases import KNOWN

Engine = Literal["V0", "V1"]
NUMBER = r"-?\d+(?:\.\d+)?"
TWO = r"-?\d+\.\d{2}"
FOUR = r"\d+\.\d{4}"
SECONDS = r"\d+\.\d{6} seconds$"
PEAK = rf"{NUMBER} GiB for peak activation, "


class Form(NamedTuple):
    """One sentence; a DEBUG form is silent at INFO, an `alone` form is printed by no other release of its engine."""

    engine: Engine
    first: str
    last: str
    pattern: str
    level: Literal["INFO", "DEBUG"] = "INFO"
    alone: bool = True

    @property
    def inside(self) -> tuple[str, ...]:
        """The known releases that print it."""
        return KNOWN[KNOWN.index(self.first) : KNOWN.index(self.last) + 1]

    @property
    def outside(self) -> tuple[str, ...]:
        """The other known releases of the same engine."""
        whole = KNOWN[: KNOWN.index("0.10.2") + 1] if self.engine == "V0" else KNOWN[KNOWN.index("0.7.3") :]
        return tuple(version for version in whole if version not in self.inside)


FORMS = (
    Form("V0", "0.2.7", "0.6.6.post1", r"# GPU blocks: \d+, # CPU blocks: \d+$"),
    Form("V0", "0.7.3", "0.10.2", r"# cuda blocks: \d+, # CPU blocks: \d+$"),
    Form("V0", "0.2.7", "0.6.3", r"Graph capturing finished in \d+ secs\.$"),
    Form("V0", "0.6.4", "0.10.2", rf"Graph capturing finished in \d+ secs, took {TWO} GiB$"),
    Form("V0", "0.4.3", "0.7.3", rf"Loading model weights took {FOUR} GB$"),
    Form("V0", "0.8.4", "0.10.2", rf"Model loading took {FOUR} GiB and {SECONDS}"),
    Form("V0", "0.6.5", "0.10.2", rf"total_gpu_memory \({TWO}GiB\) x gpu_memory_utilization \(\d\.\d\d\) = {TWO}GiB"),
    Form("V0", "0.6.4", "0.6.4", rf"memory_usage_post_profile={TWO}Gib non_torch_memory={TWO}GiB"),
    Form("V0", "0.6.3", "0.10.2", rf"Maximum concurrency for 8192 tokens per request: {TWO}x$"),
    Form("V0", "0.6.3", "0.6.3", r"chunked_prefill_enabled=\w+ multi_step_stream_outputs="),
    Form("V1", "0.7.3", "0.10.1.1", r",  device_config=cuda, "),
    Form("V1", "0.7.3", "0.7.3", r"# GPU blocks: \d+$"),
    Form("V1", "0.8.0", "0.8.0", rf"Model loading took {FOUR} GB and {SECONDS}"),
    Form("V1", "0.11.1", "0.13.0", rf"Model loading took {FOUR} GiB memory and {SECONDS}"),
    Form("V1", "0.14.1", "0.33.0", rf"Model loading took \d+\.\d{{1,2}} GiB memory and {SECONDS}"),
    Form("V1", "0.9.1", "0.13.0", rf"Available KV cache memory: {TWO} GiB$", alone=False),
    Form("V1", "0.14.1", "0.33.0", rf"Available KV cache memory: {NUMBER} GiB$", alone=False),
    Form("V1", "0.9.1", "0.10.0", rf"Initial free memory: {TWO} GiB, free memory: {TWO} GiB, requested", "DEBUG"),
    Form("V1", "0.10.1.1", "0.13.0", rf"free memory: {TWO} GiB; Requested memory: \d\.\d\d \(util\), {TWO}", "DEBUG"),
    Form("V1", "0.14.1", "0.33.0", rf"Requested memory: \d\.\d{{6}} \(util\), {NUMBER} GiB$", "DEBUG"),
    Form("V1", "0.10.1.1", "0.33.0", rf"Free memory after profiling: {NUMBER} GiB \(total\), {NUMBER}", "DEBUG"),
    Form("V1", "0.9.1", "0.26.0", rf"non-torch forward increase memory: {NUMBER}GiB; weights memory: ", "DEBUG"),
    Form("V1", "0.27.1", "0.33.0", rf"total consumed \(from mem_get_info\): {NUMBER}GiB; weights", "DEBUG"),
    Form("V1", "0.14.1", "0.33.0", rf"worker init memory snapshot: .* total_memory={NUMBER}GiB, ", "DEBUG"),
    Form("V1", "0.18.1", "0.33.0", r"Profiling CUDA graph memory: PIECEWISE=51 \(largest=512\), FULL=51 "),
    Form("V1", "0.18.1", "0.33.0", rf"Estimated FULL .*: {TWO} MiB first-capture \+ \(51-1\) × {TWO} MiB", "DEBUG"),
    Form("V1", "0.18.1", "0.19.1", r"In v0\.19, CUDA graph memory .* from \d\.\d{4} to \d\.\d{4} to maintain"),
    Form("V1", "0.20.2", "0.33.0", r"\(default since v0\.21\.0\)\. The current --gpu-memory-utilization=\d\.\d{4} "),
    Form("V1", "0.18.1", "0.33.0", rf"CUDA graph pool memory: {NUMBER} GiB \(actual\), {NUMBER} GiB \(estimated\)"),
    Form("V1", "0.10.2", "0.10.2", r"`--kv-cache-memory=-?\d+` to fully utilize .* in use is \d+ bytes\.$"),
    Form("V1", "0.11.0", "0.25.1", rf"for weight, {PEAK}{NUMBER} GiB for non-torch memory", "DEBUG", alone=False),
    Form("V1", "0.26.0", "0.26.0", rf"for weight, {PEAK}.* memory in use is {NUMBER} GiB\.$"),
    Form("V1", "0.27.1", "0.33.0", rf"for consumed memory \(weights \+ non-torch\), {PEAK}and"),
    Form("V1", "0.8.0", "0.27.1", r"GPU KV cache size: [\d,]+ tokens$"),
    Form("V1", "0.8.0", "0.27.1", rf"\] Maximum concurrency for 8,192 tokens per request: {TWO}x$"),
    Form("V1", "0.28.0", "0.33.0", rf"cache size: [\d,]+ tokens, Maximum concurrency for 8,192 tokens .*: {TWO}x$"),
    Form("V1", "0.9.1", "0.11.0", r"Engine 000: vllm cache_config_info .* after num_gpu_blocks is: \d+$"),
    Form(
        "V1", "0.11.1", "0.33.0", r"Engine 000: vllm cache_config_info .* num_gpu_blocks is: \d+$", "DEBUG", alone=False
    ),
)
