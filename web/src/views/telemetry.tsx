// Logs, metrics and events of Kubernetes about the first suspect of an incident, from the servers in the configuration.
import { type Schemas, client } from "../api/client.ts";
import { useResource } from "../api/queries.ts";
import { bytes, count, digits, duration, percent } from "../logic/format.ts";
import { When } from "../components/basics.tsx";
import { Figure } from "../components/figure.tsx";
import { Name } from "../components/names.tsx";
import { Table } from "../components/table.tsx";

type Answer = Schemas["IncidentTelemetry"];
type Metric = Schemas["TelemetryMetric"];

// Telemetry shows nothing if no server is configured. It asks once, because each answer costs these servers a query.
export function Telemetry({ of: x }: { of: Schemas["Incident"] }) {
  const { value, reload } = useResource(`telemetry ${x.id}`, (signal) =>
    client.GET("/incidents/{incident}/telemetry", { params: { path: { incident: x.id } }, signal }),
  );
  if (!value?.logs && !value?.metrics && !value?.kubernetes) return null;
  return (
    <Figure
      id="telemetry"
      title="Logs and metrics of the first suspect"
      hint="From the servers in the configuration: metrics from half an hour before the onset, logs from a minute before it, until the end or an hour after the onset."
      table={() => rowsOf(value)}
      tools={
        <button type="button" onClick={reload}>
          Ask again
        </button>
      }
      tableOnly
    >
      {value.metrics && <Metrics of={value.metrics} answer={value} />}
      {value.kubernetes && <Pods of={value.kubernetes} />}
      {value.logs && <Logs of={value.logs} />}
    </Figure>
  );
}

const rowsOf = ({ metrics = [], kubernetes, logs }: Answer) => ({
  header: ["kind", "time", "name", "value", "text"],
  rows: [
    ...metrics.flatMap((m) => m.points.map((p) => ["metric", p.at, m.name, p.value, ""])),
    ...(kubernetes?.events ?? []).map((e) => ["event", e.at, e.pod, e.reason, e.text]),
    ...(logs?.lines ?? []).map((l) => ["log", l.at, l.error ? "error" : "", l.count, l.text]),
  ],
});

const Failure = ({ of: text }: { of: string | undefined }) => text && <p className="warning small">{text}.</p>;

const formats: Record<Schemas["TelemetryUnit"], (x: number) => string> = {
  number: (x) => digits(x),
  bytes,
  seconds: (x) => duration(1e9 * x),
  share: percent,
};

// Metrics lists the metrics with values, and names the others.
function Metrics({ of: all, answer }: { of: Metric[]; answer: Answer }) {
  const drawn = all.filter((m) => m.points.length > 0);
  const empty = all.filter((m) => m.points.length === 0 && !m.error).map((m) => m.name);
  return (
    <>
      {drawn.length > 0 && (
        <Table label="Metrics" head={["Metric", "Over time", "Before the onset", "Since then"]}>
          {drawn.map((m) => (
            <tr key={m.name}>
              <td title={m.query}>{m.name}</td>
              <td>
                <Course of={m} answer={answer} />
              </td>
              <td data-label="Before the onset">{valueOf(m, m.before)}</td>
              <td data-label="Since then">
                <strong>{valueOf(m, m.after)}</strong>
              </td>
            </tr>
          ))}
        </Table>
      )}
      {[...new Set(all.map((m) => m.error))].map((text) => (
        <Failure key={text} of={text} />
      ))}
      {empty.length > 0 && <p className="dim small">No values of {empty.join(", ")}.</p>}
    </>
  );
}

const valueOf = (m: Metric, x: number | undefined) => (x === undefined ? "–" : formats[m.unit](x));

const [width, height] = [220, 28]; // of the chart of a metric, in pixels

// Course draws a metric from 0 on, with a line at the onset.
function Course({ of: m, answer }: { of: Metric; answer: Answer }) {
  const [from, to] = [Date.parse(answer.from), Date.parse(answer.to)];
  const x = (at: string) => (((Date.parse(at) - from) / Math.max(1, to - from)) * width).toFixed(1);
  const high = Math.max(...m.points.map((p) => p.value)) || 1;
  const y = (value: number) => (height - 2 - (Math.max(0, value) / high) * (height - 4)).toFixed(1);
  const label = `${m.name}: ${valueOf(m, m.before)} before the onset, ${valueOf(m, m.after)} since then, at most ${valueOf(m, high)}`;
  return (
    <svg width={width} height={height} role="img" aria-label={label} data-tip={label} className="spark">
      <polyline points={m.points.map((p) => `${x(p.at)},${y(p.value)}`).join(" ")} />
      <line x1={x(answer.onset)} x2={x(answer.onset)} y1={0} y2={height} />
    </svg>
  );
}

function Pods({ of: { events, error } }: { of: Schemas["TelemetryPods"] }) {
  return (
    <>
      <h3>Kubernetes</h3>
      <Failure of={error} />
      {events.length === 0 && !error && <p className="dim small">No restarts and no events.</p>}
      <ul className="plain">
        {events.map((e, i) => (
          <li key={i}>
            <When at={e.at} brief /> <Name>{e.pod}</Name> {e.warning ? <strong>{e.reason}</strong> : e.reason}:{" "}
            <bdi>{e.text}</bdi>
          </li>
        ))}
      </ul>
    </>
  );
}

function Logs({ of: { lines, error } }: { of: Schemas["TelemetryLogs"] }) {
  return (
    <>
      <h3>Logs</h3>
      <Failure of={error} />
      {lines.length === 0 && !error && <p className="dim small">No lines.</p>}
      <div className="log-lines" tabIndex={0} role="group" aria-label="Log lines, the newest errors first">
        <ul className="plain">
          {lines.map((l, i) => (
            <li key={i}>
              <span className="dim small nowrap">
                <When at={l.at} brief /> {l.count > 1 && <span title="Lines that are alike">{count(l.count)}×</span>}
              </span>{" "}
              <bdi className={l.error ? "mono error" : "mono"}>{l.text}</bdi>
            </li>
          ))}
        </ul>
      </div>
    </>
  );
}
