// Compare: two populations or time ranges of a group's requests, as a difference of critical paths.
import { useState } from "react";
import { Link } from "wouter";
import { type Schemas, client } from "../api/client.ts";
import { useIncidents, useResource } from "../api/queries.ts";
import { Icicle } from "../charts/icicle.tsx";
import { count, duration, share, signed, keepUnits, time, formatTimesIn } from "../logic/format.ts";
import { type Selection, samplesIn, sides, withoutOnlyGroups } from "../logic/comparison.ts";
import { boxes } from "../logic/icicle.ts";
import { useTitle } from "../components/basics.tsx";
import { Choice, More, Search, Select } from "../components/controls.tsx";
import { Figure } from "../components/figure.tsx";
import { OpName } from "../components/names.tsx";
import { Empty, Async } from "../components/async-state.tsx";
import { useNow, useZone } from "../settings.ts";
import { useID, useTimestamp, useNanos, useEnum, useSearchText } from "../url.ts";
import { Attributes } from "./attributes.tsx";
import { type ComparisonKind, ComparisonTable, hasDifference, comparisonData } from "./comparison-table.tsx";

type Comparison = Schemas["Comparison"];

const maxListed = 200; // groups in the menu; search finds others

const groupLabel = (g: Schemas["Group"]) =>
  `${g.request_type_name}${g.level === "group" ? ` (group ${g.id.slice(0, 6)})` : ""}, ${count(g.count)} ${g.count === 1 ? "request" : "requests"}`;

export default function Compare() {
  useTitle("Compare");
  const [picked, setGroup] = useID("group");
  const [q, setQ] = useSearchText();
  const worst = useWorstGroup(picked === "" && q === "");
  const group = picked || (q === "" ? (worst ?? "") : "");
  const groups = useResource(`groups ${q}`, (signal) =>
    client.GET("/groups", { params: { query: { limit: maxListed, ...(q && { q }) } }, signal }),
  );
  const chosen = useResource(group ? `group ${group}` : null, (signal) =>
    client.GET("/groups/{group}", { params: { path: { group } }, signal }),
  );
  const known = withoutOnlyGroups(groups.value?.items ?? [], group);
  const listed = known.map((g): [string, string] => [g.id, groupLabel(g)]);
  if (group && !known.some((g) => g.id === group))
    listed.unshift([group, chosen.value ? groupLabel(chosen.value.group) : `group ${group.slice(0, 6)}`]);
  return (
    <>
      <div className="toolbar">
        <h1>Compare</h1>
        <Search value={q} pick={setQ} label="Search requests ( / )" />
        <Select label="Requests" value={group} pick={setGroup} of={group ? listed : [["", "choose …"], ...listed]} />
        <span className="dim small" role="status">
          {searchStatus(q, groups.value)}
        </span>
      </div>
      {group ? (
        <Group key={group} id={group} detail={chosen.value} />
      ) : (
        <Async of={groups} what="groups">
          {() => (worst === undefined && q === "" ? null : <NothingChosen q={q} any={listed.length > 0} />)}
        </Async>
      )}
    </>
  );
}

// useWorstGroup returns the requests to compare unless others are chosen: those that lose most time in the most severe
// open incident, otherwise those of the worst problem; null: there are none, undefined: they are not known yet.
function useWorstGroup(wanted: boolean): string | null | undefined {
  const incidents = useIncidents();
  const problems = useResource(wanted ? "worst problem" : null, (signal) =>
    client.GET("/problems", { params: { query: { limit: 1 } }, signal }),
  );
  const [first, setFirst] = useState<string>(); // stays while the user reads
  if (!incidents.value || !problems.value) return incidents.failure || problems.failure ? null : undefined;
  const open = incidents.value.items.find((x) => x.state === "open" && x.request_types.length > 0);
  const worst = open?.request_types[0]?.id ?? problems.value.items[0]?.group ?? null;
  if (worst && first === undefined) setFirst(worst);
  return first ?? worst;
}

function searchStatus(q: string, groups: Schemas["GroupList"] | undefined): string {
  if (!groups) return "";
  const found = count(groups.items.length);
  if (groups.next_cursor !== null) return `Showing the ${found} with the most requests; search to find others.`;
  return q ? `${found} found` : "";
}

function NothingChosen({ q, any }: { q: string; any: boolean }) {
  if (any) return <Empty title="Choose requests to compare">{compareHint}</Empty>;
  if (q) return <Empty title="No matching requests">Try a shorter search.</Empty>;
  return <Empty title="No requests yet">{compareHint}</Empty>;
}

const compareHint = "Compare slow requests with the rest, or now with before.";

type Durations = { longer_ns?: number; shorter_ns?: number };

// chosenDurations returns the selected bounds; without any, those above the median.
function chosenDurations(longer: string, shorter: string, median: number | null | undefined): Durations | null {
  if (!longer && !shorter) return median ? { longer_ns: median } : null;
  return { ...(longer && { longer_ns: Number(longer) }), ...(shorter && { shorter_ns: Number(shorter) }) };
}

const emptySide: Record<ComparisonKind, string> = {
  slowest: "Too few requests were sampled. Wait for the next epoch, choose another share, or compare time ranges.",
  selection: "All or none of the sampled requests are in the selection. Choose a larger or a smaller one.",
  duration: "All or none of the sampled requests match. Choose other durations or times.",
  time: "No window lies completely within these times. Choose other times, or a longer range.",
};

function Group({ id, detail }: { id: string; detail: Schemas["GroupDetail"] | undefined }) {
  const [by, setBy] = useEnum<ComparisonKind>("by", ["slowest", "duration", "time", "selection"]);
  const [part, setPart] = useEnum("part", ["0.1", "0.01", "0.05", "0.25", "0.5"]);
  const [from, setFrom] = useTimestamp("from");
  const [to, setTo] = useTimestamp("to");
  const [baseFrom, setBaseFrom] = useTimestamp("base_from");
  const [baseTo, setBaseTo] = useTimestamp("base_to");
  const [longer, setLonger] = useNanos("longer");
  const [shorter, setShorter] = useNanos("shorter");
  const windows = detail?.windows ?? [];
  const times = {
    ...(from && { from }),
    ...(to && { to }),
    ...(baseFrom && { base_from: baseFrom }),
    ...(baseTo && { base_to: baseTo }),
  };
  const bins = detail?.histogram ?? [];
  const durations = chosenDurations(longer, shorter, detail?.p50_ns);
  const parameters = () => {
    if (by === "slowest") return { slowest: Number(part) };
    if (by === "selection")
      return {
        longer_ns: Number(longer) || 1,
        ...(shorter && { shorter_ns: Number(shorter) }),
        ...(from && { from }),
        ...(to && { to }),
      };
    if (by === "duration") return durations && { ...durations, ...(from && { from }), ...(to && { to }) };
    if (Object.keys(times).length > 0) return times;
    const newest = windows.at(-2)?.from ?? windows.at(-1)?.from; // against the last healthy period
    return newest ? { from: newest } : null;
  };
  const query = parameters();
  const resource = useResource(query && `compare ${id} ${JSON.stringify(query)}`, (signal) =>
    client.GET("/groups/{group}/compare", { params: { path: { group: id }, query: query! }, signal }),
  );
  const compareTimes = () => {
    setBy("time");
    setBaseFrom(windows[0]?.from ?? "");
    setBaseTo(from);
  };
  return (
    <>
      <div className="toolbar">
        <Choice
          label="Compare"
          value={by}
          pick={setBy}
          of={[
            ["slowest", "Slowest vs. the rest"],
            ["duration", "By duration"],
            ["time", "Now vs. before"],
            ...(by === "selection" ? ([["selection", "Selection vs. the rest"]] as const) : []),
          ]}
        />
        {by === "slowest" && (
          <Select
            label="Slowest"
            value={part}
            pick={setPart}
            of={[
              ["0.01", "1 %"],
              ["0.05", "5 %"],
              ["0.1", "10 %"],
              ["0.25", "25 %"],
              ["0.5", "50 %"],
            ]}
          />
        )}
        {(by === "duration" || by === "selection") && (
          <>
            <Duration
              label="From"
              value={longer}
              pick={setLonger}
              bounds={bins.map((b) => b.low_ns)}
              none={shorter || by === "selection" ? "the fastest" : "the median"}
            />
            <Duration
              label="to"
              value={shorter}
              pick={setShorter}
              bounds={bins.map((b) => b.high_ns)}
              none="the slowest"
            />
            <Time label="received from" value={from} pick={setFrom} windows={windows} bound="from" none="any time" />
            <Time label="to" value={to} pick={setTo} windows={windows} bound="to" none="now" />
          </>
        )}
        {by === "time" && (
          <>
            <Time label="From" value={from} pick={setFrom} windows={windows} bound="from" none="recently" />
            <Time label="to" value={to} pick={setTo} windows={windows} bound="to" none="now" />
            <Time
              label="compared with"
              value={baseFrom}
              pick={setBaseFrom}
              windows={windows}
              bound="from"
              none="last healthy period"
            />
            <Time label="to" value={baseTo} pick={setBaseTo} windows={windows} bound="to" none="–" />
          </>
        )}
      </div>
      <Async of={resource} what="the comparison">
        {(c) => (
          <>
            {(by === "duration" || by === "selection") && (c.note || from || to) && (
              <SelectionNotice
                group={id}
                note={c.note}
                from={from}
                to={to}
                longer={by === "selection" ? Number(longer) : (durations?.longer_ns ?? 0)}
                shorter={Number(shorter) || Infinity}
                compareTimes={compareTimes}
              />
            )}
            {c.a.requests === 0 || c.b.requests === 0 ? (
              <Empty title="One side has no requests">{emptySide[by]}</Empty>
            ) : (
              <Difference kind={by} c={c} />
            )}
          </>
        )}
      </Async>
    </>
  );
}

type NoticeProps = Selection & { group: string; note: string | undefined; compareTimes: () => void };

// SelectionNotice shows the API's note on a selection and the sample traces in it.
function SelectionNotice({ group, note, from, to, longer, shorter, compareTimes }: NoticeProps) {
  const [zone] = useZone();
  const now = useNow();
  const exemplars = useResource(`exemplars ${group}`, (signal) =>
    client.GET("/exemplars", { params: { query: { group } }, signal }),
  );
  const selected = samplesIn(exemplars.value?.items ?? [], { from, to, longer, shorter });
  return (
    <p className="notice" role="status">
      {note && (
        <>
          <strong>{formatTimesIn(sentence(note), zone, now)}</strong>{" "}
        </>
      )}
      {selected.length > 0 ? (
        <>
          Sample traces in this selection:{" "}
          {selected.map((e, i) => (
            <span key={e.trace}>
              {i > 0 && ", "}
              <Link href={`/traces/${e.trace}`}>{duration(e.duration_ns)}</Link>
            </span>
          ))}
          .{" "}
        </>
      ) : (
        exemplars.value && "No stored trace is in this selection. "
      )}
      {from && (
        <button type="button" onClick={compareTimes}>
          Compare this time range with before
        </button>
      )}
    </p>
  );
}

// sentence capitalizes a text of the API and adds a full stop.
const sentence = (text: string) => `${text[0]!.toUpperCase()}${text.slice(1)}.`;

// Duration selects a bound of a bin. A value that is not a bound, such as one from the heat map, is listed, too.
function Duration(props: { label: string; value: string; pick: (v: string) => void; bounds: number[]; none: string }) {
  const all = [...new Set([...props.bounds, ...(props.value ? [Number(props.value)] : [])])].sort((a, b) => a - b);
  return (
    <Select
      label={props.label}
      value={props.value}
      pick={props.pick}
      of={[["", props.none], ...all.map((ns) => [String(ns), duration(ns)] as const)]}
    />
  );
}

// Time selects a bound of a window. A value that is not a bound, such as one from the heat map, is listed, too.
function Time(props: {
  label: string;
  value: string;
  pick: (v: string) => void;
  windows: Schemas["Window"][];
  bound: "from" | "to";
  none: string;
}) {
  const [zone] = useZone();
  const now = useNow();
  const all = props.windows.map((w) => w[props.bound]);
  if (props.value && !all.includes(props.value)) all.push(props.value);
  return (
    <Select
      label={props.label}
      value={props.value}
      pick={props.pick}
      of={[["", props.none], ...all.map((at) => [at, time(at, zone, now)] as const)]}
    />
  );
}

function Difference({ kind, c }: { kind: ComparisonKind; c: Comparison }) {
  const [zone] = useZone();
  const now = useNow();
  const total = (c.a.mean_ns ?? 0) - (c.b.mean_ns ?? 0);
  const max = Math.max(1, ...c.edges.map((e) => Math.abs(e.difference_ns ?? 0)));
  const difference = (is: number[]) => is.reduce((sum, i) => sum + (c.edges[i]!.difference_ns ?? 0), 0);
  // Edges are sorted by absolute difference: the first may differ in the opposite direction.
  const leading = hasDifference(c) ? c.edges.find((e) => (e.part ?? 0) > 0) : undefined;
  const table = () => comparisonData(c);
  return (
    <>
      <p className="diagnosis" style={{ fontSize: 17 }}>
        {keepUnits(`${sides(c, zone, now)}: ${signed(total)}`)}
        {leading && (
          <>
            {keepUnits(`, ${share(leading.part)} of it in `)}
            <OpName>{leading.place.label}</OpName>
          </>
        )}
        .
      </p>
      <Figure
        title="Critical path difference"
        hint="Width: the longer of the two sides; callers above callees. Orange (+): the first side spends more self time there; blue (−): less."
        table={table}
      >
        <Icicle
          boxes={boxes(
            c.edges.map((e) => e.place),
            (i) => Math.max(c.edges[i]!.a_ns ?? 0, c.edges[i]!.b_ns ?? 0),
          )}
          label="Critical path difference; the table has the numbers"
          look={(b) => {
            const d = difference(b.edges);
            const strength = Math.round(Math.min(1, Math.abs(d) / max) * 90);
            return {
              fill: `color-mix(in srgb, var(--${d >= 0 ? "more" : "less"}) ${strength}%, var(--heat-0))`,
              ink: strength > 50 ? "var(--heat-ink)" : "var(--text)",
              note: b.edges.length > 0 ? signed(d) : "",
            };
          }}
          title={(b) => `${b.label}\n${signed(difference(b.edges))} self time`}
        />
      </Figure>
      <Attributes title="Attributes" kind={kind} of={c.attributes} />
      <Locations kind={kind} c={c} />
    </>
  );
}

const fewLocations = 10;

// Locations lists those with the largest differences, and the others on demand.
function Locations({ kind, c }: { kind: ComparisonKind; c: Comparison }) {
  const [shown, setShown] = useEnum("locations", ["few", "all"]);
  const rest = c.edges.length - fewLocations;
  return (
    <Figure title="Locations" table={() => comparisonData(c)} tableOnly>
      <ComparisonTable
        label="Locations"
        kind={kind}
        c={shown === "all" ? c : { ...c, edges: c.edges.slice(0, fewLocations) }}
      />
      <More
        rest={rest}
        what=", with smaller differences"
        shown={shown === "all"}
        toggle={() => setShown(shown === "all" ? "few" : "all")}
      />
    </Figure>
  );
}
