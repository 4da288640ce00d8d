// What the counts and queues of the service mean, for somebody who has not built it, and what to do about them.

// Meaning names a count or queue, says what it is, and what to do when it grows, or fills up; empty: nothing.
export type Meaning = { name: string; means: string; remedy: string };

type Known = Record<string, readonly [name: string, means: string, remedy: string]>;

const busy = "If all cores are busy, give it more or have SDKs sample fewer traces; if not, the disk is slow.";

const ingest: Known = {
  requests: ["Export requests", "Messages of SDKs and Collectors, each with many spans, that were taken.", ""],
  spans: ["Spans", "What was in them.", ""],
  rejected_spans: [
    "Spans rejected",
    "They were malformed and were left out; the rest of their request was taken.",
    "Their senders were told why: look at their log.",
  ],
  damaged_records: [
    "Journal records that cannot be read",
    "Requests that had been taken, and that the disk has lost.",
    "Look for errors of the disk: it lost what it had acknowledged.",
  ],
  checkpoints: ["Checkpoints", "Copies of the state, from which a restart goes on.", ""],
  checkpoints_failed: [
    "Checkpoints that failed",
    "A restart takes longer, and the journal grows.",
    "Look at the log of Sibyl for why, and whether the disk is full.",
  ],
  open_traces: ["Open traces", "They may get more spans: a trace is judged when none came for some seconds.", ""],
  open_spans: ["Spans of open traces", "They are held in memory until then.", ""],
};

const refused: Known = {
  busy: [
    "Requests sent away: too busy",
    "Too much waited to be analysed. Senders try again for some minutes: only then is anything lost.",
    busy,
  ],
  disk_full: [
    "Requests sent away: disk full",
    "There was no room to keep them. It goes on by itself when there is.",
    "Make room on the disk of the data directory, or lower journal.max-bytes.",
  ],
  too_many_groups: [
    "Requests judged by their type only",
    "There are more groups of requests than are told apart.",
    "Names of spans hold identities, most likely: let applications name their routes, such as GET /cart/{id}.",
  ],
  learning_full: [
    "Requests not learned from",
    "More came than are kept while Sibyl learns what is normal. What is normal is learned from the others.",
    "Nothing is lost but precision; learn for less long (learning), if it is many of them.",
  ],
};

const closed: Known = {
  complete: ["Complete traces", "Nothing is missing. Only these are judged.", ""],
  idle: [
    "Closed with spans missing",
    "Nothing came any more, and a caller was still missing.",
    "Not every service sends, a sampler drops single spans, or a sender is slow: then raise assembly.idle.",
  ],
  age: [
    "Closed as too old",
    "Spans still came after assembly.max-age.",
    "These are jobs rather than requests, or one trace is used for many; else raise assembly.max-age.",
  ],
  size: [
    "Closed as too large",
    "They had more spans, or bytes, than assembly.max-spans and assembly.max-bytes allow.",
    "Raise these if traces are meant to be so large.",
  ],
  evicted: [
    "Closed for want of memory",
    "The oldest open traces had to go, before they were complete.",
    "Raise memory, or have SDKs sample fewer traces.",
  ],
};

const unusable: Known = {
  incomplete: [
    "Without a caller",
    "The spans above theirs never came.",
    "Not every service sends, or a sampler drops single spans.",
  ],
  too_long: ["Too long", "They took 39 hours or more.", "The clock of a sender is wrong, or it ends spans late."],
  no_duration: [
    "Without a duration",
    "They took no time, or ended before they began.",
    "The clock or the SDK of a sender is wrong.",
  ],
};

const queues: Known = {
  arrivals: [
    "To the journal",
    "Export requests that wait to be written to disk.",
    `Senders are told to come again soon. ${busy}`,
  ],
  in_flight_bytes: [
    "Requests being taken",
    "Memory of requests that came and are not analysed yet.",
    `Senders are told to come again. ${busy} Few huge requests: let senders make them smaller, or raise otlp.max-in-flight.`,
  ],
  shards: [
    "To be sorted into traces",
    "Parts of export requests, by trace.",
    "Analysis is slower than what comes: give it more cores, or have SDKs sample fewer traces.",
  ],
  observed: [
    "To be added to statistics",
    "Batches of requests whose critical path is known.",
    "Analysis is slower than what comes: give it more cores, or have SDKs sample fewer traces.",
  ],
  questions: [
    "Questions of pages and scripts",
    "Reads of the state that wait for their turn.",
    "Too much reads at a time: pages get slow, traces are taken all the same. Stop scripts that poll.",
  ],
  changes: [
    "Changes",
    "What people and agents said that is not applied yet.",
    "They are applied one after the other: wait, and try again what was turned away.",
  ],
  exemplars: [
    "Requests to look at",
    "Batches of traces that are to be copied for people to look at.",
    "Some are kept an epoch later, or not at all; the disk is slow. Nothing else suffers.",
  ],
  outbox: [
    "To webhooks",
    "Messages that are not delivered yet.",
    "See below which webhook does not take them; beyond the bound the oldest go.",
  ],
  export: [
    "To the tracing backend",
    "Traces whose critical path the backend is to be told.",
    "The backend is slow, or does not answer: beyond the bound they are dropped. Nothing else suffers.",
  ],
};

const all = { ingest, refused, closed, unusable, queues };

// meaning returns what a count or queue means; of one that is not known, its name alone.
export function describe(of: keyof typeof all, key: string): Meaning {
  const [name, means, remedy] = all[of][key] ?? [key.replaceAll("_", " "), "", ""];
  return { name, means, remedy };
}

// counted lists counts in the order in which they are told here, those that are not known last.
export function describeCounts(of: keyof typeof all, counts: Record<string, number>): [Meaning, number][] {
  const known = Object.keys(all[of]).filter((key) => key in counts);
  const others = Object.keys(counts).filter((key) => !known.includes(key));
  return [...known, ...others].map((key) => [describe(of, key), counts[key]!]);
}

const full = 0.5; // of a queue: from there on something is amiss

// filling reports whether a queue is so full that something should be done.
export const isFilling = (length: number, capacity: number) => capacity > 0 && length >= full * capacity;
