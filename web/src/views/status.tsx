// Status: the health of Sibyl itself, and dead letters.
import { useState } from "react";
import { Link } from "wouter";
import { type Schemas, unwrap, client } from "../api/client.ts";
import { useResource } from "../api/queries.ts";
import { bytes, count, duration, keepUnits, percent } from "../logic/format.ts";
import { type Meaning, describeCounts, isFilling, describe, silentFor } from "../logic/health.ts";
import { Bar, Facts, When, useTitle } from "../components/basics.tsx";
import { Dialog } from "../components/dialog.tsx";
import { Figure } from "../components/figure.tsx";
import { Name } from "../components/names.tsx";
import { TruncationNote, Table } from "../components/table.tsx";
import { Async } from "../components/async-state.tsx";
import { useNow } from "../settings.ts";

export default function Status() {
  useTitle("Status");
  const status = useResource("status", (signal) => client.GET("/status", { signal }), true);
  return (
    <>
      <div className="toolbar">
        <h1>Status of Sibyl</h1>
      </div>
      <Async of={status} what="the status">
        {(s) => <Health s={s} />}
      </Async>
      <Webhooks />
      <DeadLetters />
    </>
  );
}

// accepts tells whether the service accepts traces.
function accepts(s: Schemas["Status"]): string {
  if (s.leader) return `no: ${s.leader} leads, and this replica is its standby`;
  if (!s.ready) return "not yet: the journal is being replayed";
  return s.space === "enough" ? "yes" : "no: the disk or the journal is full";
}

function Health({ s }: { s: Schemas["Status"] }) {
  const ingest = {
    requests: s.ingest.requests,
    spans: s.ingest.spans,
    duplicate_spans: s.ingest.duplicate_spans,
    late_spans: s.ingest.late_spans,
    rejected_spans: s.ingest.rejected_spans,
    open_traces: s.open.traces,
    open_spans: s.open.spans,
    checkpoints: s.ingest.checkpoints,
    checkpoints_failed: s.ingest.checkpoints_failed,
    damaged_records: s.ingest.damaged_records,
  };
  return (
    <>
      <Facts
        of={[
          ["Version", s.version],
          ["Accepts traces", accepts(s)],
          [
            "Last spans",
            <Arrival key="arrival" at={s.ingest.last_arrival} />,
            "When the last analysed request arrived, not counting duplicates",
          ],
          [
            "Learning",
            s.learning.active
              ? `${s.learning.progress === null ? "no requests yet" : percent(s.learning.progress)}`
              : "done",
            "Sibyl first learns normal behaviour; until then it reports no problems",
          ],
          [
            "Last epoch",
            <>
              <When key="ended" at={s.epoch.ended} />
              {s.epoch.warning && (
                <span className="bad">
                  {" "}
                  {keepUnits(s.epoch.warning)} {s.epoch.remedy}
                </span>
              )}
            </>,
            "When Sibyl last checked for problems and chose tracepoints",
          ],
          ["Epoch", duration(s.epoch.length_ns), "Interval of these checks"],
          [
            "Problems",
            <>
              {count(s.problems)}
              {s.problems_uninvestigated > 0 && (
                <span className="dim small"> {count(s.problems_uninvestigated)} waiting for investigation</span>
              )}
            </>,
          ],
          [
            "Request types",
            <Link key="types" href="/trees">
              {count(s.request_types)}
            </Link>,
            "Requests grouped by entry point",
          ],
          [
            "Coverage",
            <Coverage key="coverage" of={s.coverage} few={s.few_calls} />,
            "Spans of the last ten to twenty minutes that are judged; the table below gives the reasons for those left out",
          ],
          ["Groups", count(s.groups), "Request types, and requests of one type that take the same path"],
        ]}
      />
      <div className="columns">
        <div>
          <Counts
            title="Rejected"
            of={[
              ...describeCounts("refused", s.refused),
              ...describeCounts("unusable", s.unusable).map(([m, n]): Count => [
                { ...m, name: `Traces rejected: ${m.name.toLowerCase()}` },
                n,
              ]),
            ]}
            note="Since the service started. These should not grow."
          />
          <Counts
            title="Closed traces"
            of={describeCounts("closed", s.closed)}
            note="Since the service started. Most should be complete."
          />
        </div>
        <Counts
          title="Ingest"
          of={describeCounts("ingest", ingest)}
          note={`Since the service started. Open traces use ${bytes(s.open.bytes)}.`}
        />
      </div>
      <CoverageByService of={s.coverage} />
      {s.queues.length > 0 && (
        <Figure
          title="Queues"
          hint="Queues should be short. If one stays more than half full, a remedy is shown."
          table={() => ({
            header: ["queue", "meaning", "length", "capacity"],
            rows: s.queues.map((q) => [q.name, describe("queues", q.name).means, q.length, q.capacity]),
          })}
          tableOnly
        >
          <div className="gauges">
            {s.queues.map((q) => (
              <Gauge q={q} key={q.name} />
            ))}
          </div>
        </Figure>
      )}
    </>
  );
}

// Coverage shows the part of the spans that is judged, with a remedy if that is too little.
function Coverage({ of, few }: { of: Schemas["Coverage"]; few: Schemas["FewCalls"] }) {
  if (of.received.spans === 0) return <>no spans in the last minutes</>;
  return (
    <>
      {keepUnits(
        `${percent(of.share_of_spans)} of ${count(of.received.spans)} spans and ${percent(of.share_of_time)} of their time are judged.`,
      )}
      {of.warning && (
        <span className="bad">
          {" "}
          {keepUnits(of.warning)} {of.remedy}
        </span>
      )}
      {few.text && (
        <span className={few.remedy ? "bad" : ""}>
          {" "}
          {keepUnits(few.text)} {few.remedy}
        </span>
      )}
      {of.hops_without_spans.map((h) => (
        <span key={`${h.caller} ${h.callee}`}>
          {" "}
          A hop between <Name>{h.caller}</Name> and <Name>{h.callee}</Name> exports no spans.
        </span>
      ))}
    </>
  );
}

// leftOut lists the spans that are left out by reason, most first: "12 late, 3 conflict".
const leftOut = (left: Schemas["SpansLeftOut"]): string =>
  Object.entries(left)
    .sort(([, a], [, b]) => b.spans - a.spans)
    .map(([reason, part]) => `${count(part.spans)} ${reason.replaceAll("_", " ")}`)
    .join(", ");

// CoverageByService lists the services with spans that are left out, and those with requests of their own.
function CoverageByService({ of }: { of: Schemas["Coverage"] }) {
  const rows = of.services.filter((x) => x.received.spans > x.requests.spans);
  if (rows.length === 0) return null;
  const table = () => ({
    header: ["service", "spans", "of requests", "of requests of their own", "left out"],
    rows: rows.map((x) => [
      x.service || "(unknown)",
      x.received.spans,
      x.requests.spans,
      x.requests_of_their_own.spans,
      leftOut(x.left_out),
    ]),
  });
  return (
    <Figure
      title="Spans by service"
      hint="Services whose spans are not all part of ordinary requests. Requests of their own are work that starts after its parent ended, messages, and entries below a missing span; they are judged as well."
      table={table}
      tableOnly
    >
      <table>
        <thead>
          <tr>
            {table().header.map((name, i) => (
              <th key={name} scope="col" className={i > 0 && i < 4 ? "number" : undefined}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((x) => (
            <tr key={x.service}>
              <th scope="row">{x.service ? <Name>{x.service}</Name> : "(unknown)"}</th>
              <td className="number">{count(x.received.spans)}</td>
              <td className="number">{count(x.requests.spans)}</td>
              <td className="number">{count(x.requests_of_their_own.spans)}</td>
              <td>{leftOut(x.left_out)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Figure>
  );
}

// Arrival shows when the last spans arrived, and what to check if that is long ago.
function Arrival({ at }: { at: string | null }) {
  const now = useNow();
  const silent = silentFor(at, now);
  return (
    <>
      {at ? <When at={at} /> : "none since the start"}
      {silent && (
        <span className="bad">
          {" "}
          None for {silent}: check that the senders run, and that their address and token for Sibyl are right.
        </span>
      )}
    </>
  );
}

const amount = (name: string, n: number) => (name.endsWith("_bytes") ? bytes(n) : count(n));

function Gauge({ q }: { q: Schemas["Queue"] }) {
  const { name, means, remedy } = describe("queues", q.name);
  return (
    <div className="gauge">
      <div className="small">
        <strong>{name}</strong>
        <span className="dim nowrap">
          {amount(q.name, q.length)} {q.capacity > 0 && `of ${amount(q.name, q.capacity)}`}
        </span>
      </div>
      <Bar of={q.capacity > 0 ? q.length / q.capacity : 0} />
      <p className="small dim">{means}</p>
      {isFilling(q.length, q.capacity) && <p className="small bad">Filling up. {remedy}</p>}
    </div>
  );
}

type Count = [Meaning, number];

// Counts lists counters with their meaning, and with their remedy if they are above 0.
function Counts({ title, of, note }: { title: string; of: Count[]; note: string }) {
  return (
    <Figure
      title={title}
      hint={note}
      table={() => ({ header: ["name", "meaning", "count"], rows: of.map(([m, n]) => [m.name, m.means, n]) })}
      tableOnly
    >
      <table>
        <tbody>
          {of.map(([m, n]) => (
            <tr key={m.name}>
              <th scope="row">
                {m.name}
                <div className="small dim">{m.means}</div>
                {n > 0 && m.remedy && <div className="small">If it grows: {m.remedy}</div>}
              </th>
              <td className="number">{count(n)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Figure>
  );
}

// Webhooks lists webhooks with their deliveries.
function Webhooks() {
  const resource = useResource("webhooks", (signal) => client.GET("/webhooks", { signal }), true);
  return (
    <Figure
      title="Webhooks"
      hint="Deliveries since the service started. Only the origin of an address is shown, since the rest may be secret."
      table={() => ({
        header: [
          "webhook",
          "origin",
          "format",
          "events",
          "signed",
          "delivered",
          "last delivered",
          "failed attempts",
          "last error",
          "waiting",
          "dead",
        ],
        rows: (resource.value?.items ?? []).map((w) => [
          w.name,
          w.origin,
          w.format,
          w.events.join(" "),
          w.signed ? "yes" : "no",
          w.delivered,
          w.last_delivered,
          w.failed,
          w.last_error,
          w.waiting,
          w.dead,
        ]),
      })}
      tableOnly
    >
      <Async of={resource} what="webhooks">
        {({ items }) =>
          items.length === 0 ? (
            <p className="dim">
              No webhooks are configured. Add them under <code>webhooks</code> or <code>email</code> in the
              configuration to be notified when an incident opens or closes.
            </p>
          ) : (
            <Table
              label="Webhooks"
              head={[
                "Webhook",
                "Events",
                "Last delivery",
                { text: "Delivered", number: true },
                { text: "Failed attempts", number: true },
                { text: "Waiting", number: true },
                { text: "Given up", number: true },
              ]}
            >
              {items.map((w) => (
                <tr key={w.name}>
                  <td>
                    <strong>{w.name}</strong>{" "}
                    {w.disabled && (
                      <span className="badge state-forbidden" title="Deliveries resume after a restart or a reload">
                        ⊘ disabled: answered 410 Gone
                      </span>
                    )}
                    <div className="small dim path">{w.origin}/…</div>
                  </td>
                  <td>
                    {w.events.length > 0 ? w.events.join(", ") : "everything"}
                    <div className="small dim">
                      as {w.format}, {w.signed ? "signed" : "not signed"}
                    </div>
                  </td>
                  <td className="small">
                    {w.last_delivered ? (
                      <When at={w.last_delivered} />
                    ) : (
                      <span className="dim">none since the start</span>
                    )}
                    {w.last_error && <div className="path">last error: {w.last_error}</div>}
                  </td>
                  <td className="number">{count(w.delivered)}</td>
                  <td className="number">{count(w.failed)}</td>
                  <td className="number">{count(w.waiting)}</td>
                  <td className="number">{count(w.dead)}</td>
                </tr>
              ))}
            </Table>
          )
        }
      </Async>
    </Figure>
  );
}

// DeadLetters lists events that could not be delivered in time.
function DeadLetters() {
  const resource = useResource(
    "dead",
    (signal) => client.GET("/webhooks/dead", { params: { query: { limit: 100 } }, signal }),
    true,
  );
  const [open, setOpen] = useState<{ letter: Schemas["DeadLetter"]; verb: "show" | "resend" | "drop" }>();
  return (
    <Figure
      title="Dead letters"
      hint="Events that could not be delivered within 24 hours. Resend or delete them."
      table={() => ({
        header: ["number", "webhook", "event", "at", "attempts", "error"],
        rows: (resource.value?.items ?? []).map((l) => [l.number, l.endpoint, l.type, l.at, l.attempts, l.error]),
      })}
      tableOnly
    >
      <Async of={resource} what="dead letters">
        {(list) =>
          list.items.length === 0 ? (
            <p className="dim">No dead letters: everything was delivered, or no webhook is configured.</p>
          ) : (
            <>
              <Table
                label="Dead letters"
                head={["Webhook", "Event", "When", { text: "Attempts", number: true }, "Last error", "Action"]}
              >
                {list.items.map((letter) => (
                  <tr key={letter.number}>
                    <td>{letter.endpoint}</td>
                    <td>
                      {letter.type} {letter.problem && <Link href={`/problems/${letter.problem}`}>problem</Link>}
                      {letter.incident && <Link href={`/incidents/${letter.incident}`}>incident</Link>}
                    </td>
                    <td className="small">
                      <When at={letter.at} />
                    </td>
                    <td className="number">{letter.attempts}</td>
                    <td className="small path">{letter.error}</td>
                    <td>
                      <div className="buttons" style={{ margin: 0 }}>
                        {(["show", "resend", "drop"] as const).map((verb) => (
                          <button type="button" key={verb} onClick={() => setOpen({ letter, verb })}>
                            {names[verb]}
                          </button>
                        ))}
                      </div>
                    </td>
                  </tr>
                ))}
              </Table>
              <TruncationNote list={list} how="Resend or delete these to see the others." />
            </>
          )
        }
      </Async>
      {open?.verb === "show" && <DeadLetterDialog letter={open.letter} close={() => setOpen(undefined)} />}
      {open && open.verb !== "show" && (
        <DeadLetterAction
          letter={open.letter}
          verb={open.verb}
          close={() => setOpen(undefined)}
          changed={resource.reload}
        />
      )}
    </Figure>
  );
}

const names = { show: "Show", resend: "Resend", drop: "Delete" };

function DeadLetterDialog({ letter, close }: { letter: Schemas["DeadLetter"]; close: () => void }) {
  const resource = useResource(`dead ${letter.number}`, (signal) =>
    client.GET("/webhooks/dead/{letter}", { params: { path: { letter: letter.number } }, signal }),
  );
  return (
    <Dialog title={`${letter.type} for ${letter.endpoint}`} close={close} wide>
      <Async of={resource} what="the message">
        {({ body }) => (
          <pre className="mono" tabIndex={0}>
            {body}
          </pre>
        )}
      </Async>
    </Dialog>
  );
}

function DeadLetterAction({
  letter,
  verb,
  close,
  changed,
}: {
  letter: Schemas["DeadLetter"];
  verb: "resend" | "drop";
  close: () => void;
  changed: () => void;
}) {
  const params = { params: { path: { letter: letter.number } } };
  const act = async () => {
    await unwrap<unknown>(
      verb === "drop"
        ? client.DELETE("/webhooks/dead/{letter}", params)
        : client.POST("/webhooks/dead/{letter}/resend", params),
    );
    changed();
  };
  return (
    <Dialog title={`${names[verb]}: ${letter.type}?`} close={close} act={act} verb={names[verb]}>
      <p>
        {verb === "drop"
          ? `${letter.endpoint} will never receive it. This cannot be undone.`
          : `It is queued for ${letter.endpoint} behind the waiting messages, for another 24 hours.`}
      </p>
    </Dialog>
  );
}
