// Compare: two populations of a group's requests, or two stretches of its time, as a difference of critical paths.
import { type Schemas, client } from "../api/client.ts";
import { useRead } from "../api/read.ts";
import { Icicle } from "../charts/icicle.tsx";
import { count, duration, percent, signed, time } from "../compute/format.ts";
import { boxes } from "../compute/icicle.ts";
import { Choice, Empty, Read, Select, useTitle } from "../parts/basics.tsx";
import { Figure } from "../parts/figure.tsx";
import { useNow, useZone } from "../settings.ts";
import { useID, useOneOf, useQuery } from "../url.ts";
import { Places, places } from "./places.tsx";

type Comparison = Schemas["Comparison"];

export default function Compare() {
  useTitle("Compare");
  const [group, setGroup] = useID("group");
  const groups = useRead("groups", (signal) => client.GET("/groups", { params: { query: { limit: 200 } }, signal }));
  const known = groups.value?.items ?? [];
  const listed: [string, string][] = known.map((g) => [g.id, `${g.request_type_name}${g.level === "group" ? ` (group ${g.id.slice(0, 6)})` : ""}, ${count(g.count)} requests`]);
  if (group && !known.some((g) => g.id === group)) listed.unshift([group, `group ${group.slice(0, 6)}`]);
  return (
    <>
      <div className="toolbar">
        <h1>Compare</h1>
        <Select label="Requests" value={group} pick={setGroup} of={[["", "choose …"], ...listed]} />
      </div>
      {group ? <Group key={group} id={group} /> : <Read of={groups} what="groups">{() => <Empty title={listed.length > 0 ? "Choose requests to compare" : "There are no requests yet"}>Slow ones against the rest, or now against before.</Empty>}</Read>}
    </>
  );
}

function Group({ id }: { id: string }) {
  const [by, setBy] = useOneOf("by", ["slowest", "duration", "time"]);
  const [part, setPart] = useOneOf("part", ["0.1", "0.01", "0.05", "0.25", "0.5"]);
  const [from, setFrom] = useQuery("from");
  const [to, setTo] = useQuery("to");
  const [baseFrom, setBaseFrom] = useQuery("base_from");
  const [baseTo, setBaseTo] = useQuery("base_to");
  const [longer, setLonger] = useQuery("longer");
  const [shorter, setShorter] = useQuery("shorter");
  const detail = useRead(`group ${id}`, (signal) => client.GET("/groups/{group}", { params: { path: { group: id } }, signal }));
  const windows = detail.value?.windows ?? [];
  const times = { ...(from && { from }), ...(to && { to }), ...(baseFrom && { base_from: baseFrom }), ...(baseTo && { base_to: baseTo }) };
  // Without any time: what is newest against when all was well.
  const newest = windows.at(-2)?.from ?? windows.at(-1)?.from;
  const bins = detail.value?.histogram ?? [];
  const durations = longer || shorter ? { ...(longer && { longer_ns: Number(longer) }), ...(shorter && { shorter_ns: Number(shorter) }) } : detail.value?.p50_ns ? { longer_ns: detail.value.p50_ns } : null;
  const ask = by === "slowest" ? { slowest: Number(part) } : by === "duration" ? durations : Object.keys(times).length > 0 ? times : newest ? { from: newest } : null;
  const reading = useRead(ask && `compare ${id} ${JSON.stringify(ask)}`, (signal) => client.GET("/groups/{group}/compare", { params: { path: { group: id }, query: ask! }, signal }));
  return (
    <>
      <div className="toolbar">
        <Choice label="Compare" value={by} pick={setBy} of={[["slowest", "Slowest against the rest"], ["duration", "By duration"], ["time", "Now against before"]]} />
        {by === "slowest" ? (
          <Select label="Slowest" value={part} pick={setPart} of={[["0.01", "1 %"], ["0.05", "5 %"], ["0.1", "10 %"], ["0.25", "25 %"], ["0.5", "50 %"]]} />
        ) : by === "duration" ? (
          <>
            <Duration label="From" value={longer} pick={setLonger} bounds={bins.map((b) => b.low_ns)} none={shorter ? "the fastest" : "the median"} />
            <Duration label="to" value={shorter} pick={setShorter} bounds={bins.map((b) => b.high_ns)} none="the slowest" />
          </>
        ) : (
          <>
            <Time label="From" value={from} pick={setFrom} windows={windows} bound="from" none="lately" />
            <Time label="to" value={to} pick={setTo} windows={windows} bound="to" none="now" />
            <Time label="against from" value={baseFrom} pick={setBaseFrom} windows={windows} bound="from" none="when all was well" />
            <Time label="to" value={baseTo} pick={setBaseTo} windows={windows} bound="to" none="–" />
          </>
        )}
      </div>
      <Read of={reading} what="the comparison">
        {(c) => (c.a.requests === 0 || c.b.requests === 0 ? <Empty title="One side has no requests">Choose other times, of which windows count that lie in them for the most part, or other durations.</Empty> : <Difference c={c} />)}
      </Read>
    </>
  );
}

// Duration picks the bound of a bin of durations. One that is none, such as one that was brushed, stays.
function Duration(props: { label: string; value: string; pick: (v: string) => void; bounds: number[]; none: string }) {
  const all = [...new Set([...props.bounds, ...(props.value ? [Number(props.value)] : [])])].sort((a, b) => a - b);
  return <Select label={props.label} value={props.value} pick={props.pick} of={[["", props.none], ...all.map((ns) => [String(ns), duration(ns)] as const)]} />;
}

// Time picks the bound of a window. A time that is none, such as one that was brushed, stays.
function Time(props: { label: string; value: string; pick: (v: string) => void; windows: Schemas["Window"][]; bound: "from" | "to"; none: string }) {
  const [zone] = useZone();
  const now = useNow();
  const all = props.windows.map((w) => w[props.bound]);
  if (props.value && !all.includes(props.value)) all.push(props.value);
  return <Select label={props.label} value={props.value} pick={props.pick} of={[["", props.none], ...all.map((at) => [at, time(at, zone, now)] as const)]} />;
}

function Difference({ c }: { c: Comparison }) {
  const total = (c.a.mean_ns ?? 0) - (c.b.mean_ns ?? 0);
  const most = Math.max(1, ...c.edges.map((e) => Math.abs(e.difference_ns ?? 0)));
  const difference = (is: number[]) => is.reduce((sum, i) => sum + (c.edges[i]!.difference_ns ?? 0), 0);
  const table = () => places(c);
  return (
    <>
      <p className="diagnosis" style={{ fontSize: 17 }}>
        {duration(c.a.mean_ns)} on average for {c.a.label} ({count(c.a.requests)}), {duration(c.b.mean_ns)} for {c.b.label} ({count(c.b.requests)}): {signed(total, duration)}
        {c.edges[0] && <>, of which {percent(c.edges[0].part)} {total < 0 ? "less" : "more"} in {c.edges[0].place.label}</>}.
      </p>
      <Figure
        title="Difference of critical paths"
        hint="As wide as the longer of both sides, callers above callees. + and orange: the first side spends more in itself; − and blue: less."
        table={table}
      >
        <Icicle
          boxes={boxes(c.edges.map((e) => e.place), (i) => Math.max(c.edges[i]!.a_ns ?? 0, c.edges[i]!.b_ns ?? 0))}
          label="Difference of critical paths; the table has the numbers"
          look={(b) => {
            const d = difference(b.edges);
            const strength = Math.round(Math.min(1, Math.abs(d) / most) * 90);
            return { fill: `color-mix(in srgb, var(--${d >= 0 ? "more" : "less"}) ${strength}%, var(--heat-0))`, ink: strength > 50 ? "var(--heat-ink)" : "var(--text)", note: b.edges.length > 0 ? signed(d, duration) : "" };
          }}
          title={(b) => `${b.label}\n${signed(difference(b.edges), duration)} in itself`}
        />
      </Figure>
      <Figure title="Places" table={table} tableOnly>
        <Places label="Places" c={c} />
      </Figure>
    </>
  );
}
