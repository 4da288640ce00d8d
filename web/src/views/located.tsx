// The evidence of a located place, as it was measured then.
import { Link } from "wouter";
import type { Schemas } from "../api/client.ts";
import { HeatLegend, Icicle, heat } from "../charts/icicle.tsx";
import { boxes } from "../logic/icicle.ts";
import { wholes } from "../logic/located.ts";
import { count, duration, keepUnits, percent, range, share, time } from "../logic/format.ts";
import { Bar, ContextPath } from "../components/basics.tsx";
import { Figure } from "../components/figure.tsx";
import { OpName } from "../components/names.tsx";
import { Table } from "../components/table.tsx";
import { useNow, useZone } from "../settings.ts";
import { query } from "../url.ts";

type Place = Schemas["LocatedPlace"];

const maxFrames = 5; // in the table
const leastFrame = 0.01; // share

// framesTable has all frames, for export.
export const framesTable = (of: Place) => ({
  header: ["operation", "context", "tracepoint", "located", "share (of 1)", "low (of 1)", "high (of 1)", "requests"],
  rows: of.frames.map((f) => [
    f.operation,
    f.context.join(" > "),
    f.tracepoint,
    f.located ? "yes" : "",
    f.share.value,
    f.share.low,
    f.share.high,
    f.requests,
  ]),
});

type Props = { of: Place; search: Record<string, string | undefined> }; // search: parameters of links to traces

// LocatedPlace shows the critical path with the place, when it was measured, and traces that contain it.
export function LocatedPlace({ of, search }: Props) {
  const whole = wholes[of.of];
  return (
    <Figure
      id="located"
      title="Located place"
      hint={
        <>
          <MeasuredAt of={of} /> Callers are above callees. Width, colour and number: share {whole}, without callees.
        </>
      }
      table={() => framesTable(of)}
    >
      <FrozenPath of={of} />
      <Frames of={of} />
      <Witnesses of={of} search={search} />
    </Figure>
  );
}

// MeasuredAt says when a place was located, with the figures of then, and whether that can be measured now.
export function MeasuredAt({ of }: { of: Place }) {
  const [zone] = useZone();
  const now = useNow();
  const requests = of.requests > 0 ? ` from ${count(of.requests)} requests` : "";
  const state = of.enabled ? "its tracepoint is on." : "its tracepoints are off now, so current charts do not show it.";
  return (
    <>
      Located at {time(of.at, zone, now)}
      {of.tracepoint ? `${requests}; ${state}` : `${requests}.`}
    </>
  );
}

// FrozenPath draws the critical path with the place.
export function FrozenPath({ of }: { of: Place }) {
  const { frames } = of;
  const all = boxes(
    frames.map((f) => ({ context: f.context, label: f.operation })),
    (i) => Math.max(0, frames[i]!.share.value ?? 0),
  );
  const whole = wholes[of.of];
  const part = (is: number[]) => is.reduce((sum, i) => sum + (frames[i]!.share.value ?? 0), 0);
  return (
    <>
      <Icicle
        boxes={all}
        label={`Critical path with ${of.operation}; the table has the numbers`}
        look={(b) => ({
          ...heat(part(b.edges)),
          note: part(b.edges) >= 0.005 ? percent(Math.min(1, part(b.edges))) : "",
          located: b.edges.some((i) => frames[i]!.located),
        })}
        title={(b) =>
          [
            b.label,
            ...(b.edges.some((i) => frames[i]!.located) ? ["The located place"] : []),
            `${percent(Math.min(1, part(b.edges)))} ${whole}`,
          ].join("\n")
        }
      />
      <HeatLegend share={whole} located />
    </>
  );
}

// isUncertain reports whether the interval of a share says more than the share.
const isUncertain = (f: Schemas["LocatedFrame"]) => f.requests > 0 && f.share.low !== f.share.high;

// Frames lists the places with the largest shares.
export function Frames({ of }: { of: Place }) {
  const listed = of.frames.filter((f, i) => i === 0 || (f.share.value ?? 0) >= leastFrame).slice(0, maxFrames);
  const sampled = listed.some((f) => f.requests > 0);
  return (
    <Table
      label="Places"
      className="results"
      head={[
        "Operation",
        `Share ${wholes[of.of]}`,
        ...(sampled
          ? [{ text: "Requests", number: true, title: "Requests that the share is based on; a dash means all of them" }]
          : []),
      ]}
    >
      {listed.map((f, i) => (
        <tr key={i}>
          <td>
            <OpName>{f.operation}</OpName> {f.located && <span className="badge">located</span>}
            <div className="small dim">
              <ContextPath of={f.context} />
            </div>
          </td>
          <td className="bars">
            {share(f.share.value)}{" "}
            {isUncertain(f) && <span className="dim small range">{range(f.share, percent)}</span>}
            <Bar of={f.share.value} low={f.share.low} high={f.share.high} />
          </td>
          {sampled && <td className="number">{f.requests > 0 ? count(f.requests) : "–"}</td>}
        </tr>
      ))}
    </Table>
  );
}

// Witnesses links to traces that contain the place.
export function Witnesses({ of, search }: Props) {
  if (of.traces.length === 0 && !of.tracepoint)
    return <p className="under dim small">Its spans are always on, so sample traces contain it.</p>;
  if (of.traces.length === 0)
    return <p className="under dim small">No stored trace contains a span from this place.</p>;
  return (
    <p className="under">
      <span>Traces that contain it:</span>
      {of.traces.map((t, i) => (
        <span key={t.trace}>
          <Link href={`/traces/${t.trace}${query({ ...search, span: t.span })}`}>
            {keepUnits(`${duration(t.span_ns)} of ${duration(t.duration_ns)}`)}
          </Link>
          {i < of.traces.length - 1 && ","}
        </span>
      ))}
    </p>
  );
}
