// Overrides: a person enables, pins or forbids a tracepoint after seeing its cost.
import { useState } from "react";
import { serverNow } from "../api/clock.ts";
import { ApiError, type Schemas, unwrap, client } from "../api/client.ts";
import { useResource } from "../api/queries.ts";
import { bytes, digits, percent, rate } from "../logic/format.ts";
import { When } from "../components/basics.tsx";
import { Select } from "../components/controls.tsx";
import { Dialog } from "../components/dialog.tsx";
import { Menu } from "../components/menu.tsx";
import { Async } from "../components/async-state.tsx";
import { showToast } from "../components/toast.tsx";

type Tracepoint = Schemas["Tracepoint"];
type Kind = "enable" | "pin" | "forbid";

const verbs: Record<Kind, [verb: string, means: string]> = {
  enable: ["Enable", "It is switched on at the end of the epoch, if the budget allows, until the override expires."],
  pin: ["Pin", "It is switched on, and the search cannot switch it off to make room."],
  forbid: ["Forbid", "It is switched off, and the search cannot switch it on."],
};

const durations = [
  ["1", "an hour"],
  ["8", "8 hours"],
  ["24", "a day"],
  ["168", "a week"],
  ["", "until withdrawn"],
] as const;

export function TracepointOverride({ id, changed }: { id: string; changed: () => void }) {
  const resource = useResource(
    `tracepoint ${id}`,
    (signal) => client.GET("/tracepoints/{tracepoint}", { params: { path: { tracepoint: id } }, signal }),
    true,
  );
  return (
    <Async of={resource} what="the tracepoint">
      {(t) => <OverrideMenu t={t} changed={() => (resource.reload(), changed())} />}
    </Async>
  );
}

export function OverrideMenu({ t, changed }: { t: Tracepoint; changed: () => void }) {
  const [kind, setKind] = useState<Kind>();
  const withdraw = () =>
    void unwrap<unknown>(client.DELETE("/tracepoints/{tracepoint}", { params: { path: { tracepoint: t.id } } })).then(
      changed,
      (error: unknown) => {
        showToast(`Could not withdraw the override: ${error instanceof ApiError ? error.detail : String(error)}`);
        changed();
      },
    );
  return (
    <>
      {t.override && (
        <p className="small">
          Override by {t.override.by}: {t.override.kind}
          {t.override.forced && ", beyond the budget"}
          {t.override.until && (
            <>
              {" "}
              until <When at={t.override.until} />
            </>
          )}
        </p>
      )}
      <Menu
        label={`Switch ${t.operation}`}
        icon="Switch ▾"
        items={[
          ...(Object.keys(verbs) as Kind[]).map((k) => ({ text: `${verbs[k][0]} …`, act: () => setKind(k) })),
          ...(t.override ? [{ text: "Let the search decide", act: withdraw }] : []),
        ]}
      />
      {kind && <OverrideDialog t={t} kind={kind} close={() => setKind(undefined)} changed={changed} />}
    </>
  );
}

function OverrideDialog({
  t,
  kind,
  close,
  changed,
}: {
  t: Tracepoint;
  kind: Kind;
  close: () => void;
  changed: () => void;
}) {
  const [hours, setHours] = useState(kind === "enable" ? "1" : "");
  const [force, setForce] = useState(false);
  const budget = useResource("budget", (signal) => client.GET("/budget", { signal }));
  const act = async () => {
    const until = hours ? { until: new Date(serverNow() + Number(hours) * 3_600_000).toISOString() } : {};
    await unwrap(
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
          trace data, {digits((t.cost.cpu ?? 0) * 1000)} ms of CPU per second
          {budget.value && budget.value.total.bytes > 0 && (
            <>
              , which is {percent((t.cost.bytes ?? 0) / budget.value.total.bytes)} of the data budget;{" "}
              {percent((budget.value.estimate.bytes ?? 0) / budget.value.total.bytes)} is already used
            </>
          )}
          .
        </p>
      )}
      <Select label="For" value={hours} pick={setHours} of={kind === "enable" ? durations.slice(0, 4) : durations} />
      {kind !== "forbid" && (
        <label className="check">
          <input type="checkbox" checked={force} onChange={(e) => setForce(e.target.checked)} /> Exceed the budget
          (requires the admin role)
        </label>
      )}
    </Dialog>
  );
}
