import { expect, test } from "vitest";
import type { Schemas } from "../api/client.ts";
import {
  affectedText,
  affectedTypes,
  carrier,
  earlierText,
  failsMore,
  incidentMarks,
  impactText,
  isSlower,
  isWithin,
  lasted,
  likely,
  ownerText,
  partsOf,
  relativeToOnset,
  sizeText,
  toldEnds,
} from "./incidents.ts";

import answer from "../../../api/testdata/getIncident.json" with { type: "json" };
import { duration, factor, percent } from "./format.ts";

type Incident = Schemas["Incident"];
type Suspect = Schemas["IncidentSuspect"];

const none = { own: 0, added: 0, in: 0, out: 0, errors: 0, unanswered: 0, silent: 0, shape: 0, rest: 0 };

// suspect returns a suspect whose score is the sum of its parts.
function suspect(service: string, parts: Partial<Schemas["SuspectParts"]>, rest: Partial<Suspect> = {}): Suspect {
  const all = { ...none, ...parts };
  const score = all.own + all.added + all.in + all.out + all.errors + all.unanswered + all.silent + all.shape;
  return { service, emits_spans: true, score, parts: all, operations: [], added_calls: [], instances: [], ...rest };
}

const incident = (rest: Partial<Incident> = {}): Incident => ({
  id: "0123456789abcdef",
  state: "open",
  kind: "slow",
  severity: "major",
  severity_reason: "",
  severity_reason_parts: [],
  impact: { lost_ns_per_second: 1.2e9, failed_per_second: 0 },
  onset: "2026-01-01T02:41:20Z",
  opened: "2026-01-01T02:44:20Z",
  ended: null,
  closed: null,
  sentence: "",
  sentence_parts: [],
  service: "cart",
  score: 0.86,
  requests: 900,
  suspects: [suspect("cart", { own: 0.86 })],
  objectives: [],
  request_types: [],
  problems: [],
  annotations: [],
  earlier: 0,
  comments: 0,
  notes: {},
  ...rest,
});

const requestType = (rest: Partial<Schemas["IncidentRequestType"]> = {}): Schemas["IncidentRequestType"] => ({
  id: "0".repeat(32),
  name: "web GET /cart",
  requests: 90,
  span_ns: 18e10,
  mean_ns: 3e8,
  usual_ns: 1e8,
  p50_ns: null,
  usual_p50_ns: null,
  p99_ns: null,
  usual_p99_ns: null,
  failed: 0,
  usual_failed: 0,
  ...rest,
});

test("partsOf omits parts that are negative or hardly contribute", () => {
  const names = (s: Suspect) => partsOf(s).map((p) => `${p.name} ${p.value}`);
  expect(names(suspect("cart", { own: -0.1, in: 0.6, out: 0.2, errors: 0.0001, shape: 0.1 }))).toEqual([
    "to it 0.6",
    "from it 0.2",
  ]);
  expect(names(suspect("cart", {}))).toEqual([]);
});

test("the unexplained time to a service counts only if the service emits no spans", () => {
  const parts = (emits_spans: boolean) =>
    partsOf(suspect("bank", { in: 0.25, rest: 0.5 }, { emits_spans, score: 0.75 })).map((p) => [p.key, p.value]);
  expect(parts(true)).toEqual([["in", 0.25]]);
  expect(parts(false)).toEqual([["in", 0.75]]);
});

test("likely suspects are the first and those with a similar score", () => {
  const all = [suspect("a", { own: 1 }), suspect("b", { own: 0.05 }), suspect("c", { own: 0.049 }), suspect("d", {})];
  expect(likely(all).map((s) => s.service)).toEqual(["a", "b"]);
  expect(likely([suspect("a", {}), suspect("b", {})]).map((s) => s.service)).toEqual(["a"]);
  expect(likely([])).toEqual([]);
});

test("lasted counts from the onset to the end, or to now", () => {
  const now = Date.parse("2026-01-01T03:00:00Z");
  expect(lasted(incident(), now)).toBe(1_120_000);
  expect(lasted(incident({ ended: "2026-01-01T02:51:20Z", closed: "2026-01-01T02:54:20Z" }), now)).toBe(600_000);
  expect(lasted(incident({ onset: "2026-01-01T03:00:05Z" }), now)).toBe(0);
});

test("incidents are within a time in which they were open", () => {
  const at = (from: string, to: string) => ({ from: Date.parse(from), to: Date.parse(to) });
  const closed = incident({ closed: "2026-01-01T03:00:00Z" });
  expect(isWithin(closed, at("2026-01-01T03:00:00Z", "2026-01-01T04:00:00Z"))).toBe(true);
  expect(isWithin(closed, at("2026-01-01T03:00:01Z", "2026-01-01T04:00:00Z"))).toBe(false);
  expect(isWithin(closed, at("2026-01-01T01:00:00Z", "2026-01-01T02:41:20Z"))).toBe(true);
  expect(isWithin(closed, at("2026-01-01T01:00:00Z", "2026-01-01T02:41:19Z"))).toBe(false);
  expect(isWithin(incident(), at("2027-01-01T00:00:00Z", "2027-01-02T00:00:00Z"))).toBe(true);
});

test("the time of a deploy is relative to the onset, which is an estimate", () => {
  const onset = "2026-01-01T02:41:20Z";
  expect(relativeToOnset("2026-01-01T02:37:20Z", onset)).toBe("4 min before the onset");
  expect(relativeToOnset("2026-01-01T02:51:20Z", onset)).toBe("10 min after the onset");
  expect(relativeToOnset("2026-01-01T02:42:00Z", onset)).toBe("about at the onset");
});

test("affectedTypes counts, up to the limit of the service", () => {
  expect([0, 1, 3, 100].map(affectedTypes)).toEqual([
    "no request type yet",
    "1 request type",
    "3 request types",
    "100 or more request types",
  ]);
});

test("no request waits for the messages of a queue", () => {
  const queue = { name: "mails", before_ns: 2e7, now_ns: 3e10 };
  expect(affectedText({ ...incident(), queue, request_types: [] })).toBe(
    "messages in mails; no request waits for them",
  );
  expect(affectedText({ ...incident(), queue, request_types: [requestType()] })).toBe("1 request type");
});

test("a request type is slower, or fails more often, only if people would notice", () => {
  expect(isSlower(requestType())).toBe(true);
  expect(isSlower(requestType({ mean_ns: 1.04e8 }))).toBe(false);
  expect(isSlower(requestType({ usual_ns: 0 }))).toBe(false);
  expect(failsMore(requestType({ failed: 0.3, usual_failed: 0.001 }))).toBe(true);
  expect(failsMore(requestType({ failed: 0.003 }))).toBe(false);
  expect(failsMore(requestType({ failed: 0.2, usual_failed: 0.4 }))).toBe(false);
});

test("carrier names an instance that carries at least half of the cost", () => {
  const on = (part: number) =>
    carrier(suspect("cart", { own: 1 }, { instances: [{ key: "host.name", value: "cart-3", calls: 9, part }] }));
  expect(on(0.82)).toBe("host.name = cart-3 (82 % of the cost)");
  expect(on(0.49)).toBe("");
  expect(carrier(undefined)).toBe("");
});

test("toldEnds returns the last end, and those after which nobody knows, unless a later incident tells", () => {
  const ended = (id: string, hour: number, reason: Schemas["IncidentEnd"]["reason"] | null, more = {}) =>
    incident({
      id,
      opened: `2026-01-01T0${hour}:00:00Z`,
      ...(reason && {
        state: "closed",
        closed: `2026-01-01T0${hour}:30:00.5Z`,
        end: { reason, text: "", text_parts: [] },
      }),
      ...more,
    });
  const told = (...all: Incident[]) => toldEnds(all).map((x) => x.id);
  expect(told()).toEqual([]);
  expect(told(ended("open", 1, null))).toEqual([]);
  expect(told(ended("a", 1, "recovered"), ended("b", 2, "recovered"))).toEqual(["b"]);
  expect(told(ended("a", 1, "stopped"), ended("b", 2, "no_traces"))).toEqual(["b", "a"]);
  expect(told(ended("a", 1, "stopped"), ended("b", 2, "moved", { service: "stock" }))).toEqual(["b", "a"]);
  expect(told(ended("a", 1, "stopped"), ended("b", 2, "recovered"))).toEqual(["b"]);
  expect(told(ended("a", 1, "stopped"), ended("b", 2, null))).toEqual(["a"]);
  const muted = { notes: { muted: { by: "Ann", text: "", at: "2026-01-01T03:00:00Z" } }, service: "stock" };
  expect(told(ended("a", 1, "stopped", muted), ended("b", 2, "recovered"))).toEqual(["b"]);
});

test("an owner is named with the contact, if it is known", () => {
  expect(ownerText({ name: "Payments" })).toBe("Payments");
  expect(ownerText({ name: "Payments", contact: "#pay" })).toBe("Payments (#pay)");
});

test("the impact is what requests lose in a second, if it is worth a word", () => {
  const text = (lost: number, failed: number) => impactText({ lost_ns_per_second: lost, failed_per_second: failed });
  expect(text(1.234e9, 0)).toBe("1.23 s of waiting per second");
  expect(text(0, 0.5)).toBe("0.5 failures per second");
  expect(text(2e6, 3)).toBe("2 ms of waiting and 3 failures per second");
  expect(text(9e5, 0.0009)).toBe("");
});

test("earlier incidents are counted as people count", () => {
  expect([0, 1, 2, 7].map(earlierText)).toEqual(["never before", "once before", "twice before", "7 times before"]);
});

test("charts mark the onset of an incident and, once it is over, its end", () => {
  const x = { onset: "2026-01-01T10:00:00Z", ended: null, sentence: "cart is slow" } as Incident;
  const onset = { at: Date.parse(x.onset), text: "incident", title: "Incident: cart is slow" };
  expect(incidentMarks([x])).toEqual([onset]);
  const ended = "2026-01-01T10:09:00Z";
  expect(incidentMarks([{ ...x, ended }])).toEqual([
    onset,
    { at: Date.parse(ended), text: "end", title: "End of Incident: cart is slow" },
  ]);
});

test("the page has the numbers of the sentence", () => {
  const x = (answer as unknown as Schemas["IncidentDetail"]).incident;
  const told = { ...x.size! };
  expect(x.sentence).toContain(`${factor(told.now_ns / told.before_ns).slice(0, -1)} times as long`);
  expect(sizeText(told)).toBe(`${duration(told.before_ns)} → ${duration(told.now_ns)}`);
  expect(affectedText(x)).toContain(`${percent(told.share_of_requests)} of all requests`);
  const failing = { ...x, failures: { before: 0, now: 1, share_of_requests: 0.62 } };
  delete failing.size;
  expect(affectedText(failing)).toContain(`${percent(0.62)} of all requests`);
});
