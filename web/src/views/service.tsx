// Service: how Sibyl itself is, and what webhooks did not take.
import { useState } from "react";
import { Link } from "wouter";
import { type Schemas, unwrap, client } from "../api/client.ts";
import { useResource } from "../api/queries.ts";
import { bytes, count, duration, percent } from "../lib/format.ts";
import { type Meaning, describeCounts, isFilling, describe } from "../lib/health.ts";
import { Bar, Facts, When, useTitle } from "../components/basics.tsx";
import { Dialog } from "../components/dialog.tsx";
import { Figure } from "../components/figure.tsx";
import { TruncationNote, Table } from "../components/table.tsx";
import { Async } from "../components/async-state.tsx";

export default function Service() {
  useTitle("Service");
  const status = useResource("status", (signal) => client.GET("/status", { signal }), true);
  return (
    <>
      <div className="toolbar">
        <h1>Service</h1>
      </div>
      <Async of={status} what="the status">
        {(s) => <Health s={s} />}
      </Async>
      <Webhooks />
      <DeadLetters />
    </>
  );
}

function Health({ s }: { s: Schemas["Status"] }) {
  const taken = {
    requests: s.ingest.requests,
    spans: s.ingest.spans,
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
          ["Takes traces", s.ready ? "yes" : "not yet: the journal is being read"],
          [
            "Learning",
            s.learning.active
              ? `${s.learning.progress === null ? "no request yet" : percent(s.learning.progress)}`
              : "done",
            "Sibyl first learns what is normal; until then there are no problems",
          ],
          [
            "Last epoch",
            <When at={s.epoch.ended} />,
            "When problems were last looked for, and tracepoints decided about; longer ago than two epochs: look at the log of Sibyl",
          ],
          ["Epoch", duration(s.epoch.length_ns), "How often that is done"],
          [
            "Problems",
            <>
              {count(s.problems)}
              {s.problems_uninvestigated > 0 && (
                <span className="dim small"> {count(s.problems_uninvestigated)} wait to be investigated</span>
              )}
            </>,
          ],
          [
            "Request types",
            <Link href="/trees">{count(s.request_types)}</Link>,
            "Kinds of requests, by what they enter",
          ],
          [
            "Groups",
            count(s.groups),
            "Request types, and requests of a type that take the same path and should perform alike",
          ],
        ]}
      />
      <div className="columns">
        <div>
          <Counts
            title="What is refused or left out"
            of={[
              ...describeCounts("refused", s.refused),
              ...describeCounts("unusable", s.unusable).map(([m, n]): Count => [
                { ...m, name: `Traces left out: ${m.name.toLowerCase()}` },
                n,
              ]),
            ]}
            note="Since the start of the service. All is well while these do not grow."
          />
          <Counts
            title="Traces that are over"
            of={describeCounts("closed", s.closed)}
            note="Since the start of the service. Most should be complete."
          />
        </div>
        <Counts
          title="What is taken"
          of={describeCounts("ingest", taken)}
          note={`Since the start of the service. Open traces take ${bytes(s.open.bytes)}.`}
        />
      </div>
      {s.queues.length > 0 && (
        <Figure
          title="What waits"
          hint="Short is well: where a bar stays more than half full, it says what to do."
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
      {isFilling(q.length, q.capacity) && <p className="small bad">Fills up. {remedy}</p>}
    </div>
  );
}

type Count = [Meaning, number];

// Counts lists what was counted, with what it means, and, where there is anything of what should not be, what to do.
function Counts({ title, of, note }: { title: string; of: Count[]; note: string }) {
  return (
    <Figure
      title={title}
      hint={note}
      table={() => ({ header: ["what", "meaning", "count"], rows: of.map(([m, n]) => [m.name, m.means, n]) })}
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

// Webhooks shows who is told, and what became of it.
function Webhooks() {
  const reading = useResource("webhooks", (signal) => client.GET("/webhooks", { signal }), true);
  return (
    <Figure
      title="Webhooks"
      hint="Who is told what happens, since the start of the service. The rest of an address may be secret and is not shown."
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
        rows: (reading.value?.items ?? []).map((w) => [
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
      <Async of={reading} what="webhooks">
        {({ items }) =>
          items.length === 0 ? (
            <p className="dim">
              None is configured. Say in <code>webhooks</code> of the configuration who is to be told when a problem
              opens, is located, or closes.
            </p>
          ) : (
            <Table
              label="Webhooks"
              head={[
                "Webhook",
                "Is told",
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
                      <span className="badge state-forbidden" title="It is called again after a restart or a reload">
                        ⊘ said that it is gone
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
                      <span className="dim">not since the start</span>
                    )}
                    {w.last_error && <div className="path">failed last: {w.last_error}</div>}
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

// Dead shows events that a webhook did not take in time.
function DeadLetters() {
  const reading = useResource(
    "dead",
    (signal) => client.GET("/webhooks/dead", { params: { query: { limit: 100 } }, signal }),
    true,
  );
  const [open, setOpen] = useState<{ letter: Schemas["DeadLetter"]; verb: "show" | "resend" | "drop" }>();
  return (
    <Figure
      title="What webhooks did not take"
      hint="Events are tried for 24 hours. What is left then waits here to be sent again, or forgotten."
      table={() => ({
        header: ["number", "webhook", "event", "at", "attempts", "error"],
        rows: (reading.value?.items ?? []).map((l) => [l.number, l.endpoint, l.type, l.at, l.attempts, l.error]),
      })}
      tableOnly
    >
      <Async of={reading} what="dead letters">
        {(list) =>
          list.items.length === 0 ? (
            <p className="dim">Nothing: everything was taken, or no webhook is configured.</p>
          ) : (
            <>
              <Table
                label="Dead letters"
                head={["Webhook", "Event", "When", { text: "Attempts", number: true }, "Last error", "Do"]}
              >
                {list.items.map((letter) => (
                  <tr key={letter.number}>
                    <td>{letter.endpoint}</td>
                    <td>
                      {letter.type} {letter.problem && <Link href={`/problems/${letter.problem}`}>problem</Link>}
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
              <TruncationNote list={list} how="Send these again, or forget them, to see the others." />
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
          changed={reading.again}
        />
      )}
    </Figure>
  );
}

const names = { show: "Show", resend: "Send again", drop: "Forget" };

function DeadLetterDialog({ letter, close }: { letter: Schemas["DeadLetter"]; close: () => void }) {
  const reading = useResource(`dead ${letter.number}`, (signal) =>
    client.GET("/webhooks/dead/{letter}", { params: { path: { letter: letter.number } }, signal }),
  );
  return (
    <Dialog title={`${letter.type} for ${letter.endpoint}`} close={close} wide>
      <Async of={reading} what="what was sent">
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
          ? `${letter.endpoint} will never be told. This cannot be taken back.`
          : `It is sent to ${letter.endpoint} behind what is waiting, for another 24 hours.`}
      </p>
    </Dialog>
  );
}
