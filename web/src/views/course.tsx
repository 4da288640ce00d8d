// Course: what an incident does to its requests, and since when, in little space.
import { type Schemas, client } from "../api/client.ts";
import { useResource } from "../api/queries.ts";
import { Sparkline } from "../charts/sparkline.tsx";
import { duration, percent } from "../logic/format.ts";
import { isSlower } from "../logic/incidents.ts";
import { OpName } from "../components/names.tsx";

const lead = 1_800_000; // ms, drawn before the onset

// Course draws the request type that loses most, from half an hour before the onset: its mean or, if it is not slower,
// the share of its requests that fail.
export function Course({ of: x }: { of: Schemas["Incident"] }) {
  const worst = x.request_types[0];
  const onset = Date.parse(x.onset);
  const query = { from: new Date(onset - lead).toISOString(), edge: x.onset };
  const { value } = useResource(
    worst ? `course ${worst.id} ${x.onset}` : null,
    (signal) => client.GET("/groups/{group}/latency", { params: { path: { group: worst!.id }, query }, signal }),
    true,
  );
  if (!worst || !value || value.windows.length < 2) return null;
  const slower = isSlower(worst);
  const figures = value.windows.map((w) => (slower ? (w.mean_ns ?? 0) : w.failed / Math.max(1, w.count)));
  const began = value.windows.findIndex((w) => Date.parse(w.from) >= onset);
  const what = slower ? "Mean duration" : "Failures";
  const now = slower ? duration(figures.at(-1)) : percent(figures.at(-1));
  return (
    <div className="course">
      <Sparkline of={figures} zero wide onset={began} label={`${what} of ${worst.name} over time, now ${now}`} />
      <p className="dim small">
        {what} of <OpName>{worst.name}</OpName>; dashed: the onset
      </p>
    </div>
  );
}
