"""The metrics of every server, declared in one place. Labels come from bounded sets only."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

#: Seconds; resolves 100 microseconds to 60 s in steps of about 1.8.
DURATION_BUCKETS = (
    0.0001, 0.0002, 0.0004, 0.0007, 0.001, 0.002, 0.004, 0.007, 0.01, 0.02, 0.04, 0.07,
    0.1, 0.2, 0.4, 0.7, 1.0, 2.0, 4.0, 7.0, 10.0, 20.0, 40.0, 60.0,
)  # fmt: skip
SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)


class Metrics:
    """One registry a process; services share it in the all-in-one, told apart by labels."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        registry = self.registry
        self.calls = Counter(
            "pergamon_rpc_calls_total", "Calls ended, by status code.", ("service", "method", "code"), registry=registry
        )
        self.call_seconds = Histogram(
            "pergamon_rpc_duration_seconds", "From the arrival of a call to its end.", ("service", "method"),
            buckets=DURATION_BUCKETS, registry=registry,
        )  # fmt: skip
        self.calls_in_work = Gauge("pergamon_rpc_in_work", "Calls in work now.", ("service",), registry=registry)
        self.refused = Counter(
            "pergamon_rpc_refused_total", "Calls refused before any work, by reason.", ("service", "reason"),
            registry=registry,
        )  # fmt: skip
        self.inference_stage_seconds = Histogram(
            "pergamon_inference_stage_seconds", "Time of one call or pass by stage: tokenize, queue, inference.",
            ("model", "stage"), buckets=DURATION_BUCKETS, registry=registry,
        )  # fmt: skip
        self.pass_seconds = Histogram(
            "pergamon_inference_pass_seconds", "Time of one forward pass on the device, by lane.", ("model", "lane"),
            buckets=DURATION_BUCKETS, registry=registry,
        )  # fmt: skip
        self.long_passes = Counter(
            "pergamon_inference_long_passes_total",
            "Passes of a single text that alone takes longer than a bulk pass should.", ("model",), registry=registry,
        )  # fmt: skip
        self.memory_splits = Counter(
            "pergamon_inference_out_of_memory_total", "Passes that did not fit the device's memory at first.",
            ("model",), registry=registry,
        )  # fmt: skip
        self.batch_tokens = Histogram(
            "pergamon_inference_batch_tokens", "Tokens of one forward pass, padding included.", ("model",),
            buckets=SIZE_BUCKETS, registry=registry,
        )  # fmt: skip
        self.truncated = Counter(
            "pergamon_inference_truncated_total", "Texts of which a part was cut off.", ("model",), registry=registry
        )
        self.shared_items = Counter(
            "pergamon_inference_shared_total", "Texts not computed because the same one was in flight already.",
            ("model",), registry=registry,
        )  # fmt: skip
        self.items_refused = Counter(
            "pergamon_inference_refused_total", "Texts refused before any work, by reason.", ("model", "reason"),
            registry=registry,
        )  # fmt: skip
        self.batch_items = Histogram(
            "pergamon_inference_batch_items", "Texts of one forward pass.", ("model",), buckets=SIZE_BUCKETS,
            registry=registry,
        )  # fmt: skip
        self.tokens = Counter(
            "pergamon_inference_tokens_total", "Tokens of forward passes, kind real or padding.", ("model", "kind"),
            registry=registry,
        )  # fmt: skip
        self.backlog_seconds = Gauge(
            "pergamon_inference_backlog_seconds", "Estimated time to finish what is queued.", ("model",),
            registry=registry,
        )  # fmt: skip
        self.items_ended = Counter(
            "pergamon_inference_items_total", "Texts ended: done, failed, cancelled, expired, refused.",
            ("model", "outcome"), registry=registry,
        )  # fmt: skip
        self.search_stage_seconds = Histogram(
            "pergamon_search_stage_seconds", "Time of one stage of a search, by how it ended.", ("stage", "state"),
            buckets=DURATION_BUCKETS, registry=registry,
        )  # fmt: skip
        self.query_cache = Counter(
            "pergamon_search_query_cache_total", "Looked-up query vectors, by outcome: hit or miss.", ("outcome",),
            registry=registry,
        )  # fmt: skip
        self.jobs = Counter(
            "pergamon_jobs_total", "Job attempts ended, by kind and outcome.", ("kind", "outcome"), registry=registry
        )
        self.jobs_running = Gauge("pergamon_jobs_running", "Jobs in work now.", ("kind",), registry=registry)
        self.ingest_stage_seconds = Histogram(
            "pergamon_ingest_stage_seconds",
            "Time of one stage of an ingestion: parse, chunk, write (with embedding), switch.", ("stage",),
            buckets=DURATION_BUCKETS, registry=registry,
        )  # fmt: skip
        self.chunks_indexed = Counter(
            "pergamon_chunks_indexed_total", "Chunks written to the index.", registry=registry
        )

    def serve(self, host: str, port: int) -> None:
        """Answer GET /metrics on host:port from a daemon thread; port 0 does nothing."""
        if port:
            start_http_server(port, addr=host, registry=self.registry)
