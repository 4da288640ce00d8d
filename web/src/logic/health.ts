// Descriptions of the service's counters and queues for operators, with remedies.
import { coarseDuration } from "./format.ts";

// Meaning is the name and the description of a counter or queue, and the remedy if it grows or fills up; empty: none.
export type Meaning = { name: string; means: string; remedy: string };

type Known = Record<string, readonly [name: string, means: string, remedy: string]>;

const busy = "If all cores are busy, add cores or sample fewer traces in the SDKs; otherwise the disk is slow.";

const ingest: Known = {
  requests: ["Export requests", "Accepted messages from SDKs and Collectors, each with many spans.", ""],
  spans: ["Spans", "Spans in these requests.", ""],
  rejected_spans: [
    "Spans rejected",
    "Malformed spans. The rest of their request was accepted.",
    "Their senders were told the reason: check their logs.",
  ],
  duplicate_spans: [
    "Duplicates ignored",
    "Spans that had already arrived. They do not count as new traffic.",
    "If they keep coming, a sender repeats its requests; with sibyl replay, a recording was sent again.",
  ],
  late_spans: [
    "Late spans ignored",
    "Spans whose trace had been closed before they arrived.",
    "Raise assembly.timeout above the longest delay of a sender.",
  ],
  damaged_records: [
    "Damaged journal records",
    "Accepted requests that the disk has lost.",
    "Check the disk for errors: it lost data that it had acknowledged.",
  ],
  checkpoints: ["Checkpoints", "Saved states from which a restart continues.", ""],
  checkpoints_failed: [
    "Failed checkpoints",
    "Restarts take longer, and the journal grows.",
    "Check Sibyl's log for the reason, and whether the disk is full.",
  ],
  open_traces: [
    "Open traces",
    "Traces that may receive more spans. A trace is analysed when none arrived for some seconds.",
    "",
  ],
  open_spans: ["Spans of open traces", "Spans held in memory until their trace closes.", ""],
};

const refused: Known = {
  busy: [
    "Requests refused: too busy",
    "The analysis queues were full. Senders retry for some minutes; data is lost only after that.",
    busy,
  ],
  memory: [
    "Requests refused: memory used up",
    "The live data took more than five eighths of memory. Sibyl resumes by itself when there is room.",
    "Raise memory, or sample fewer traces in the SDKs.",
  ],
  disk_full: [
    "Requests refused: disk full",
    "There was no disk space to store them. Sibyl resumes by itself when there is.",
    "Free space on the disk of the data directory, or lower journal.max-bytes.",
  ],
  too_many_groups: [
    "Requests without a group",
    "The limit of groups is reached; these requests are analysed by their type only.",
    "Span names probably contain identifiers. Use route names such as GET /cart/{id}.",
  ],
  learning_full: [
    "Requests not learned from",
    "More requests arrived than Sibyl keeps while learning normal behaviour. It learns from the others.",
    "Only precision is lost. If there are many, shorten the learning period (learning).",
  ],
  too_many_contexts: [
    "Calling contexts dropped",
    "There was no room for new calling contexts of requests. The search knows only the others.",
    "Span names probably contain identifiers. Otherwise raise memory.",
  ],
  too_many_names: [
    "Names shown as (other)",
    "There was no room for new names of operations, or values of attributes.",
    "Names or attributes probably contain identifiers. Otherwise raise memory.",
  ],
  too_many_tracepoints: [
    "Messages of agents refused",
    "There was no room for the tracepoints of an agent. It tries again, and enables none until then.",
    "Raise memory, or let agents announce fewer tracepoints.",
  ],
};

const closed: Known = {
  complete: ["Complete traces", "No span is missing.", ""],
  idle: [
    "Closed with spans missing",
    "No more spans arrived, and a caller was still missing. They are analysed as far as possible.",
    "Not every service sends spans, a sampler drops single spans, or a sender is slow; in that case raise assembly.timeout.",
  ],
  age: [
    "Closed as too old",
    "Spans were still arriving after six times assembly.timeout.",
    "These may be jobs rather than requests, or many requests in one trace. Otherwise raise assembly.timeout.",
  ],
  size: [
    "Closed as too large",
    "They had more than 100,000 spans, or 64 MiB.",
    "These may be jobs, or many requests in one trace: end traces at queues with links instead of parents.",
  ],
  evicted: [
    "Evicted (memory)",
    "The oldest open traces were closed before they were complete.",
    "Raise memory, or sample fewer traces in the SDKs.",
  ],
};

const unusable: Known = {
  incomplete: [
    "Without a caller",
    "The spans above them never arrived.",
    "Not every service sends spans, or a sampler drops single spans.",
  ],
  too_long: ["Too long", "They lasted 39 hours or more.", "The clock of a sender is wrong, or it ends spans late."],
  no_duration: [
    "Without a duration",
    "They lasted no time, or ended before they began.",
    "The clock or the SDK of a sender is wrong.",
  ],
};

const queues: Known = {
  arrivals: ["Journal", "Export requests waiting to be written to disk.", `Senders are told to retry soon. ${busy}`],
  in_flight_bytes: [
    "Requests in flight",
    "Memory of requests that are not analysed yet.",
    `Senders are told to retry. ${busy} If a few requests are huge, make senders split them, or raise otlp.max-request.`,
  ],
  shards: [
    "Trace assembly",
    "Parts of export requests, by trace.",
    "Analysis is slower than the input. Add cores, or sample fewer traces in the SDKs.",
  ],
  observed_bytes: [
    "Statistics",
    "Memory of requests whose critical path is known. They wait while an epoch or a checkpoint ends.",
    "Analysis is slower than the input. Add cores, or sample fewer traces in the SDKs.",
  ],
  questions: [
    "API queue",
    "API reads waiting for the engine.",
    "Too many reads at once: pages become slow, but traces are still accepted. Stop scripts that poll.",
  ],
  changes: [
    "Changes",
    "Changes by people and agents that have not been applied yet.",
    "They are applied in order. Wait a moment, and retry changes that were refused.",
  ],
  exemplars: [
    "Sample traces",
    "Batches of traces waiting to be stored as samples.",
    "The disk is slow: some samples are kept an epoch later, or not at all. Nothing else is affected.",
  ],
  outbox: [
    "Webhooks",
    "Messages that have not been delivered yet.",
    "See below which webhook fails. Beyond the limit the oldest messages are dropped.",
  ],
  export: [
    "Export to the tracing backend",
    "Traces waiting for export with their critical path.",
    "The backend is slow or does not respond. Beyond the limit they are dropped; nothing else is affected.",
  ],
};

const all = { ingest, refused, closed, unusable, queues };

// describe returns the meaning of a counter or queue; only a name for an unknown one.
export function describe(of: keyof typeof all, key: string): Meaning {
  const [name, means, remedy] = all[of][key] ?? [key.replaceAll("_", " "), "", ""];
  return { name, means, remedy };
}

// describeCounts lists counters in the order of this file, unknown ones last.
export function describeCounts(of: keyof typeof all, counts: Record<string, number>): [Meaning, number][] {
  const known = Object.keys(all[of]).filter((key) => key in counts);
  const others = Object.keys(counts).filter((key) => !known.includes(key));
  return [...known, ...others].map((key) => [describe(of, key), counts[key]!]);
}

const silence = 60_000; // ms without spans from which they are missed

// silentFor returns, as text, the time since the last spans arrived if it is long; empty if it is not, or unknown.
export function silentFor(last: string | number | null | undefined, now: number): string {
  if (last === null || last === undefined) return "";
  const ms = now - new Date(last).getTime();
  return ms >= silence ? coarseDuration(ms) : "";
}

const full = 0.5; // share of a queue's capacity from which it needs attention

// isFilling reports whether a queue needs attention.
export const isFilling = (length: number, capacity: number) => capacity > 0 && length >= full * capacity;
