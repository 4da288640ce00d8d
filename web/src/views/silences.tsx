// Silences: which incidents notify nobody for some time, with a preview for new ones.
import { useState } from "react";
import { Link } from "wouter";
import { serverNow } from "../api/clock.ts";
import { type Schemas, client, unwrap } from "../api/client.ts";
import { useResource } from "../api/queries.ts";
import { count } from "../logic/format.ts";
import { conditions, matches, weeklyText } from "../logic/silences.ts";
import { useQuery } from "../url.ts";
import { Async, Empty } from "../components/async-state.tsx";
import { SeverityBadge } from "../components/badges.tsx";
import { When, useTitle } from "../components/basics.tsx";
import { Select } from "../components/controls.tsx";
import { Dialog } from "../components/dialog.tsx";
import { exportItems } from "../components/figure.tsx";
import { Menu } from "../components/menu.tsx";
import { Table } from "../components/table.tsx";
import { showToast } from "../components/toast.tsx";

type Silence = Schemas["Silence"];
type Match = Schemas["SilenceMatch"];
type Weekday = Schemas["Weekday"];

const states = { in_force: "in force", scheduled: "scheduled", ended: "ended" } as const;

export default function Silences() {
  useTitle("Silences");
  const [service, setService] = useQuery("service"); // of a new silence
  const [adding, setAdding] = useState(service !== "");
  const resource = useResource("silences", (signal) => client.GET("/silences", { signal }), true);
  const close = () => {
    setAdding(false);
    setService("");
  };
  return (
    <>
      <div className="toolbar">
        <h1>Silences</h1>
        <button type="button" onClick={() => setAdding(true)}>
          New silence …
        </button>
        {resource.value && (
          <Menu
            label="Silences: table and export"
            icon="⋯"
            items={exportItems("Silences", () => asTable(resource.value?.items ?? []))}
          />
        )}
      </div>
      <p className="hint">
        Nobody is notified of the incidents that match. They are found, listed and counted as always. The notification
        of an incident that is still open at the end of a silence is sent then.
      </p>
      <Async of={resource} what="the silences">
        {(list) =>
          list.items.length === 0 ? (
            <Empty title="No silences">Add one before an upgrade or a load test.</Empty>
          ) : (
            <Table label="Silences" head={["Incidents of", "State", "From", "Until", "By"]}>
              {list.items.map((x) => (
                <Row key={x.id} x={x} changed={resource.reload} />
              ))}
            </Table>
          )
        }
      </Async>
      {adding && <NewSilence service={service} close={close} changed={resource.reload} />}
    </>
  );
}

function Row({ x, changed }: { x: Silence; changed: () => void }) {
  const end = async () => {
    await unwrap<unknown>(client.DELETE("/silences/{silence}", { params: { path: { silence: x.id } } }));
    showToast("Ended. Open incidents that it covered are notified now.");
    changed();
  };
  return (
    <tr>
      <td>
        {conditions(x.match)}
        <div className="dim small">
          {[x.weekly && weeklyText(x.weekly), x.text && `“${x.text}”`].filter(Boolean).join("; ")}
        </div>
      </td>
      <td className="nowrap">
        {states[x.state]}{" "}
        {x.state !== "ended" && (
          <button type="button" onClick={() => void end()} aria-label={`End the silence of ${conditions(x.match)}`}>
            End
          </button>
        )}
      </td>
      <td className="nowrap">
        <When at={x.from} />
      </td>
      <td className="nowrap">
        <When at={x.until} />
      </td>
      <td>
        {x.by}
        {x.ended_by && <div className="dim small">ended by {x.ended_by}</div>}
      </td>
    </tr>
  );
}

const durations = [
  ["1", "an hour"],
  ["2", "2 hours"],
  ["8", "8 hours"],
  ["24", "a day"],
  ["168", "a week"],
  ["720", "30 days"],
  ["2159", "90 days"],
] as const;

const days: Weekday[] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

type NewProps = { service: string; close: () => void; changed: () => void };

// NewSilence asks for the conditions and the time of a silence, and shows the incidents that match.
function NewSilence({ service: given, close, changed }: NewProps) {
  const [service, setService] = useState(given);
  const [type, setType] = useState("");
  const [tag, setTag] = useState("");
  const [hours, setHours] = useState("2");
  const [repeats, setRepeats] = useState("once");
  const [on, setOn] = useState<Weekday[]>([]);
  const [start, setStart] = useState("22:00");
  const [length, setLength] = useState("2");
  const [text, setText] = useState("");
  const match: Match = {
    ...(service && { service }),
    ...(type && { request_type: type }),
    ...(tag && { tags: tag.split(",").map((x) => x.trim()) }),
  };
  const act = async () => {
    const until = new Date(serverNow() + Number(hours) * 3_600_000).toISOString();
    const weekly = { days: on, start, length_ns: Math.round(Number(length) * 3.6e12), zone: zone() };
    await unwrap<unknown>(
      client.POST("/silences", { body: { match, until, text, ...(repeats === "weekly" && { weekly }) } }),
    );
    showToast("Silenced.");
    changed();
  };
  const toggle = (day: Weekday) => setOn(days.filter((x) => (x === day ? !on.includes(x) : on.includes(x))));
  return (
    <Dialog title="New silence" verb="Silence" close={close} act={act} wide>
      <p>All conditions that you give must hold; * stands for any text.</p>
      <label className="field">
        Service (the first suspect)
        <input maxLength={4096} value={service} onChange={(e) => setService(e.target.value)} />
      </label>
      <label className="field">
        Request type
        <input
          maxLength={4096}
          placeholder="shop POST /checkout"
          value={type}
          onChange={(e) => setType(e.target.value)}
        />
      </label>
      <label className="field">
        Tags, with commas between them
        <input
          maxLength={4096}
          placeholder="k8s.namespace.name=test"
          value={tag}
          onChange={(e) => setTag(e.target.value)}
        />
      </label>
      <Select label="For" value={hours} pick={setHours} of={durations} />{" "}
      <Select
        label="Repeat"
        value={repeats}
        pick={(to) => (setRepeats(to), setHours(to === "weekly" ? "720" : "2"))}
        of={[
          ["once", "no"],
          ["weekly", "every week"],
        ]}
      />
      {repeats === "weekly" && (
        <fieldset>
          <legend>Only in this window ({zone()})</legend>
          {days.map((day) => (
            <label key={day}>
              <input type="checkbox" checked={on.includes(day)} onChange={() => toggle(day)} /> {day}{" "}
            </label>
          ))}
          <label className="field">
            From
            <input type="time" required value={start} onChange={(e) => setStart(e.target.value)} />
          </label>
          <label className="field">
            Hours
            <input
              type="number"
              min="0.25"
              max="24"
              step="0.25"
              required
              value={length}
              onChange={(e) => setLength(e.target.value)}
            />
          </label>
        </fieldset>
      )}
      <label className="field">
        Reason (visible to others)
        <input maxLength={1024} value={text} onChange={(e) => setText(e.target.value)} />
      </label>
      {matches(match) && <Preview of={match} />}
    </Dialog>
  );
}

const shown = 5; // incidents of a preview

// Preview shows the open incidents that match, and those of the last week.
function Preview({ of }: { of: Match }) {
  const { value, failure } = useResource(`silence ${JSON.stringify(of)}`, (signal) =>
    client.POST("/silences/preview", { body: of, signal }),
  );
  if (failure)
    return (
      <p className="bad" role="alert">
        {failure.detail}
      </p>
    );
  if (!value) return null;
  return (
    <div role="status">
      <p>
        {value.items.length === 0
          ? "No incident of the last 7 days matches."
          : `${count(value.open)} open and ${count(value.items.length - value.open)} closed incidents of the last 7 days match:`}
      </p>
      <ul className="plain">
        {value.items.slice(0, shown).map((x) => (
          <li key={x.id}>
            <SeverityBadge of={x.severity} /> <Link href={`/incidents/${x.id}`}>{x.sentence}</Link>
          </li>
        ))}
      </ul>
    </div>
  );
}

// asTable returns the silences for export.
const asTable = (items: Silence[]) => ({
  header: ["conditions", "state", "from", "until", "weekly", "by", "text", "ended by", "id"],
  rows: items.map((x) => [
    conditions(x.match),
    x.state,
    x.from,
    x.until,
    x.weekly ? weeklyText(x.weekly) : "",
    x.by,
    x.text,
    x.ended_by,
    x.id,
  ]),
});
