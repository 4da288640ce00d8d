// Switching: a person enables, pins or forbids a tracepoint, knowing first what that costs.
import { useState } from "react";
import { present } from "../api/clock.ts";
import { Failure, type Schemas, answered, client } from "../api/client.ts";
import { useRead } from "../api/read.ts";
import { bytes, digits, percent, rate } from "../compute/format.ts";
import { When } from "../parts/basics.tsx";
import { Select } from "../parts/controls.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { Menu } from "../parts/menu.tsx";
import { Read } from "../parts/reading.tsx";
import { say } from "../parts/said.tsx";

type Tracepoint = Schemas["Tracepoint"];
type Kind = "enable" | "pin" | "forbid";

const verbs: Record<Kind, [verb: string, means: string]> = {
  enable: ["Enable", "It is switched on when the epoch ends, if the budget has room, until the time is over."],
  pin: ["Pin", "It is switched on, and the search may not take it off to make room."],
  forbid: ["Forbid", "It is switched off, and the search may not switch it on."],
};

const lengths = [
  ["1", "an hour"],
  ["8", "8 hours"],
  ["24", "a day"],
  ["168", "a week"],
  ["", "until somebody takes it back"],
] as const;

export function Switching({ id, changed }: { id: string; changed: () => void }) {
  const reading = useRead(
    `tracepoint ${id}`,
    (signal) => client.GET("/tracepoints/{tracepoint}", { params: { path: { tracepoint: id } }, signal }),
    true,
  );
  return (
    <Read of={reading} what="the tracepoint">
      {(t) => <Switch t={t} changed={() => (reading.again(), changed())} />}
    </Read>
  );
}

export function Switch({ t, changed }: { t: Tracepoint; changed: () => void }) {
  const [kind, setKind] = useState<Kind>();
  const withdraw = () =>
    void answered<unknown>(client.DELETE("/tracepoints/{tracepoint}", { params: { path: { tracepoint: t.id } } })).then(
      changed,
      (error: unknown) => {
        say(`The search does not decide yet: ${error instanceof Failure ? error.detail : String(error)}`);
        changed();
      },
    );
  return (
    <>
      {t.wish && (
        <p className="small">
          {t.wish.by} decided: {t.wish.kind}
          {t.wish.forced && ", beyond the budget"}
          {t.wish.until && (
            <>
              {" "}
              until <When at={t.wish.until} />
            </>
          )}
        </p>
      )}
      <Menu
        label={`Switch ${t.operation}`}
        icon="Switch ▾"
        items={[
          ...(Object.keys(verbs) as Kind[]).map((k) => ({ text: `${verbs[k][0]} …`, act: () => setKind(k) })),
          ...(t.wish ? [{ text: "Let the search decide", act: withdraw }] : []),
        ]}
      />
      {kind && <Confirm t={t} kind={kind} close={() => setKind(undefined)} changed={changed} />}
    </>
  );
}

function Confirm({ t, kind, close, changed }: { t: Tracepoint; kind: Kind; close: () => void; changed: () => void }) {
  const [hours, setHours] = useState(kind === "enable" ? "1" : "");
  const [force, setForce] = useState(false);
  const budget = useRead("budget", (signal) => client.GET("/budget", { signal }));
  const act = async () => {
    const until = hours ? { until: new Date(present() + Number(hours) * 3_600_000).toISOString() } : {};
    await answered(
      client.PUT("/tracepoints/{tracepoint}", {
        params: { path: { tracepoint: t.id } },
        body: { kind, force, ...until },
      }),
    );
    changed();
  };
  return (
    <Dialog title={`${verbs[kind][0]} ${t.operation}?`} close={close} act={act} verb={verbs[kind][0]}>
      <p className="mono small path">{t.name}</p>
      <p>{verbs[kind][1]}</p>
      {kind !== "forbid" && (
        <p>
          <strong>Estimated overhead</strong> on all requests: {rate(t.cost.hits)} hits, {bytes(t.cost.bytes)}/s of
          trace data, {digits((t.cost.cpu ?? 0) * 1000)} ms of CPU a second
          {budget.value && budget.value.total.bytes > 0 && (
            <>
              ; that is {percent((t.cost.bytes ?? 0) / budget.value.total.bytes)} of the budget for data, of which{" "}
              {percent((budget.value.estimate.bytes ?? 0) / budget.value.total.bytes)} is used
            </>
          )}
          .
        </p>
      )}
      <Select label="For" value={hours} pick={setHours} of={kind === "enable" ? lengths.slice(0, 4) : lengths} />
      {kind !== "forbid" && (
        <label className="check">
          <input type="checkbox" checked={force} onChange={(e) => setForce(e.target.checked)} /> Even beyond the budget
          (needs the role admin)
        </label>
      )}
    </Dialog>
  );
}
