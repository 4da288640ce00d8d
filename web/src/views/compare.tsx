// Compare: two populations of a group's requests, or two stretches of its time, as a difference of critical paths.
import { Link } from "wouter";
import { type Schemas, client } from "../api/client.ts";
import { useResource } from "../api/queries.ts";
import { Icicle } from "../charts/icicle.tsx";
import { count, duration, share, signed, keepUnits, time, formatTimesIn } from "../lib/format.ts";
import { boxes } from "../lib/icicle.ts";
import { useTitle } from "../components/basics.tsx";
import { Choice, Search, Select } from "../components/controls.tsx";
import { Figure } from "../components/figure.tsx";
import { Empty, Async } from "../components/async-state.tsx";
import { useNow, useZone } from "../settings.ts";
import { useID, useTimestamp, useNanos, useEnum, useSearchText } from "../url.ts";
import { ComparisonTable, hasDifference, comparisonData } from "./comparison-table.tsx";

type Comparison = Schemas["Comparison"];

const listedMost = 200; // groups to choose from; others are found by their name

const groupLabel = (g: Schemas["Group"]) =>
  `${g.request_type_name}${g.level === "group" ? ` (group ${g.id.slice(0, 6)})` : ""}, ${count(g.count)} requests`;

export default function Compare() {
  useTitle("Compare");
  const [group, setGroup] = useID("group");
  const [q, setQ] = useSearchText();
  const groups = useResource(`groups ${q}`, (signal) =>
    client.GET("/groups", { params: { query: { limit: listedMost, ...(q && { q }) } }, signal }),
  );
  const chosen = useResource(group ? `group ${group}` : null, (signal) =>
    client.GET("/groups/{group}", { params: { path: { group } }, signal }),
  );
  const known = groups.value?.items ?? [];
  const listed = known.map((g): [string, string] => [g.id, groupLabel(g)]);
  if (group && !known.some((g) => g.id === group))
    listed.unshift([group, chosen.value ? groupLabel(chosen.value.group) : `group ${group.slice(0, 6)}`]);
  return (
    <>
      <div className="toolbar">
        <h1>Compare</h1>
        <Search value={q} pick={setQ} label="Search requests ( / )" />
        <Select label="Requests" value={group} pick={setGroup} of={[["", "choose …"], ...listed]} />
        <span className="dim small" role="status">
          {groups.value?.next_cursor
            ? `The ${count(known.length)} with most requests: search for others.`
            : q && groups.value
              ? `${count(known.length)} found`
              : ""}
        </span>
      </div>
      {group ? (
        <Group key={group} id={group} detail={chosen.value} />
      ) : (
        <Async of={groups} what="groups">
          {() => (
            <Empty
              title={
                listed.length > 0 ? "Choose requests to compare" : q ? "No requests fit" : "There are no requests yet"
              }
            >
              {listed.length === 0 && q
                ? "Search for less of their name."
                : "Slow ones against the rest, or now against before."}
            </Empty>
          )}
        </Async>
      )}
    </>
  );
}

function Group({ id, detail }: { id: string; detail: Schemas["GroupDetail"] | undefined }) {
  const [by, setBy] = useEnum("by", ["slowest", "duration", "time"]);
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
  // Without any time: what is newest against when all was well.
  const newest = windows.at(-2)?.from ?? windows.at(-1)?.from;
  const bins = detail?.histogram ?? [];
  const durations =
    longer || shorter
      ? { ...(longer && { longer_ns: Number(longer) }), ...(shorter && { shorter_ns: Number(shorter) }) }
      : detail?.p50_ns
        ? { longer_ns: detail.p50_ns }
        : null;
  const box = durations && { ...durations, ...(from && { from }), ...(to && { to }) };
  const ask =
    by === "slowest"
      ? { slowest: Number(part) }
      : by === "duration"
        ? box
        : Object.keys(times).length > 0
          ? times
          : newest
            ? { from: newest }
            : null;
  const reading = useResource(ask && `compare ${id} ${JSON.stringify(ask)}`, (signal) =>
    client.GET("/groups/{group}/compare", { params: { path: { group: id }, query: ask! }, signal }),
  );
  const timesInstead = () => {
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
          onPick={setBy}
          of={[
            ["slowest", "Slowest against the rest"],
            ["duration", "By duration"],
            ["time", "Now against before"],
          ]}
        />
        {by === "slowest" ? (
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
        ) : by === "duration" ? (
          <>
            <Duration
              label="From"
              value={longer}
              pick={setLonger}
              bounds={bins.map((b) => b.low_ns)}
              none={shorter ? "the fastest" : "the median"}
            />
            <Duration
              label="to"
              value={shorter}
              pick={setShorter}
              bounds={bins.map((b) => b.high_ns)}
              none="the slowest"
            />
            <Time label="that came from" value={from} pick={setFrom} windows={windows} bound="from" none="any time" />
            <Time label="to" value={to} pick={setTo} windows={windows} bound="to" none="now" />
          </>
        ) : (
          <>
            <Time label="From" value={from} pick={setFrom} windows={windows} bound="from" none="lately" />
            <Time label="to" value={to} pick={setTo} windows={windows} bound="to" none="now" />
            <Time
              label="against from"
              value={baseFrom}
              pick={setBaseFrom}
              windows={windows}
              bound="from"
              none="when all was well"
            />
            <Time label="to" value={baseTo} pick={setBaseTo} windows={windows} bound="to" none="–" />
          </>
        )}
      </div>
      <Async of={reading} what="the comparison">
        {(c) => (
          <>
            {by === "duration" && (c.note || from || to) && (
              <SelectionNotice
                group={id}
                note={c.note}
                from={from}
                to={to}
                longer={durations?.longer_ns ?? 0}
                shorter={Number(shorter) || Infinity}
                times={timesInstead}
              />
            )}
            {c.a.requests === 0 || c.b.requests === 0 ? (
              <Empty title="One side has no requests">
                {by === "time"
                  ? "Choose other times: windows count that lie in them for the most part."
                  : by === "duration"
                    ? "Of the requests sampled all, or none, are in it. Choose other durations or times."
                    : "Too few were sampled since all was last well. Look again after an epoch, choose otherwise, or compare times."}
              </Empty>
            ) : (
              <Difference c={c} />
            )}
          </>
        )}
      </Async>
    </>
  );
}

type BoxProps = {
  group: string;
  note: string | undefined;
  from: string;
  to: string;
  longer: number;
  shorter: number;
  times: () => void;
};

// OfBox says what to know of a box of times and durations, and which requests in it are kept.
function SelectionNotice({ group, note, from, to, longer, shorter, times }: BoxProps) {
  const [zone] = useZone();
  const now = useNow();
  const exemplars = useResource(`exemplars ${group}`, (signal) =>
    client.GET("/exemplars", { params: { query: { group } }, signal }),
  );
  const came = (at: number) => (!from || at >= Date.parse(from)) && (!to || at < Date.parse(to));
  const within = (exemplars.value?.items ?? []).filter(
    (e) => e.duration_ns >= longer && e.duration_ns < shorter && came(Date.parse(e.start)),
  );
  return (
    <p className="notice" role="status">
      {note && (
        <>
          <strong>{formatTimesIn(sentence(note), zone, now)}</strong>{" "}
        </>
      )}
      {within.length > 0 ? (
        <>
          Requests to look at that lie in the box:{" "}
          {within.map((e, i) => (
            <span key={e.trace}>
              {i > 0 && ", "}
              <Link href={`/traces/${e.trace}`}>{duration(e.duration_ns)}</Link>
            </span>
          ))}
          .{" "}
        </>
      ) : (
        exemplars.value && "No request that is kept to look at lies in the box. "
      )}
      {from && (
        <button type="button" onClick={times}>
          Compare its time with before
        </button>
      )}
    </p>
  );
}

// sentence makes one of a text of the API.
const sentence = (text: string) => `${text[0]!.toUpperCase()}${text.slice(1)}.`;

// Duration picks the bound of a bin of durations. One that is none, such as one that was brushed, stays.
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

// Time picks the bound of a window. A time that is none, such as one that was brushed, stays.
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

function Difference({ c }: { c: Comparison }) {
  const [zone] = useZone();
  const now = useNow();
  const total = (c.a.mean_ns ?? 0) - (c.b.mean_ns ?? 0);
  const most = Math.max(1, ...c.edges.map((e) => Math.abs(e.difference_ns ?? 0)));
  const difference = (is: number[]) => is.reduce((sum, i) => sum + (c.edges[i]!.difference_ns ?? 0), 0);
  const leading = hasDifference(c) ? c.edges.find((e) => (e.part ?? 0) > 0) : undefined; // those that differ most come first, the other way, too
  const table = () => comparisonData(c);
  return (
    <>
      <p className="diagnosis" style={{ fontSize: 17 }}>
        {keepUnits(
          `${duration(c.a.mean_ns)} on average for ${formatTimesIn(c.a.label, zone, now)} (${count(c.a.requests)}), ${duration(c.b.mean_ns)} for ${c.b.label} (${count(c.b.requests)}): ${signed(total, duration)}`,
        )}
        {leading && keepUnits(`, ${share(leading.part)} of it in ${leading.place.label}`)}.
      </p>
      <Figure
        title="Difference of critical paths"
        hint="As wide as the longer of both sides, callers above callees. + and orange: the first side spends more in itself; − and blue: less."
        table={table}
      >
        <Icicle
          boxes={boxes(
            c.edges.map((e) => e.place),
            (i) => Math.max(c.edges[i]!.a_ns ?? 0, c.edges[i]!.b_ns ?? 0),
          )}
          label="Difference of critical paths; the table has the numbers"
          look={(b) => {
            const d = difference(b.edges);
            const strength = Math.round(Math.min(1, Math.abs(d) / most) * 90);
            return {
              fill: `color-mix(in srgb, var(--${d >= 0 ? "more" : "less"}) ${strength}%, var(--heat-0))`,
              ink: strength > 50 ? "var(--heat-ink)" : "var(--text)",
              note: b.edges.length > 0 ? signed(d, duration) : "",
            };
          }}
          title={(b) => `${b.label}\n${signed(difference(b.edges), duration)} in itself`}
        />
      </Figure>
      <Figure title="Places" table={table} tableOnly>
        <ComparisonTable label="Places" c={c} />
      </Figure>
    </>
  );
}
