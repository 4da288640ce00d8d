// Incident: an incident with its evidence, and the actions on it.
import { useState } from "react";
import { Link, useLocation } from "wouter";
import { ApiError, type Schemas, client, unwrap } from "../api/client.ts";
import { useIncident, useResource } from "../api/queries.ts";
import type { Mark } from "../charts/heatmap.tsx";
import { marksOf } from "../logic/annotations.ts";
import { count, duration, factor, keepUnits, milli, percent, range, share, span } from "../logic/format.ts";
import { costOf, failsMore, isInIncident, isSlower, likely, ownerText } from "../logic/incidents.ts";
import { useNow } from "../settings.ts";
import { query, useEnum, useID, useSectionPath } from "../url.ts";
import { Abbreviated, isAbbreviated } from "../components/abbreviated.tsx";
import { Async, Empty } from "../components/async-state.tsx";
import { StateBadge } from "../components/badges.tsx";
import { Bar, type Fact, Facts, When, useTitle } from "../components/basics.tsx";
import { More, Select } from "../components/controls.tsx";
import { Dialog } from "../components/dialog.tsx";
import { Figure, saveFile } from "../components/figure.tsx";
import { Menu } from "../components/menu.tsx";
import { Table } from "../components/table.tsx";
import { copyText, showToast } from "../components/toast.tsx";
import { Comments } from "./comments.tsx";
import { EarlierIncidents } from "./earlier.tsx";
import { Earlier, IncidentState, circumstances, effects } from "./incidents.tsx";
import { Frames, FrozenPath, LocatedPlace, MeasuredAt, Witnesses, framesTable } from "./located.tsx";
import { LatencyOverTime } from "./over-time.tsx";
import { Beside, Time } from "./services.tsx";
import { NoteButtons, dialogs, incidentSubject } from "./notes.tsx";
import { Telemetry } from "./telemetry.tsx";
import { Decisions } from "./timeline.tsx";
import {
  SteadySentence,
  PartList,
  ScoreBar,
  scoreText,
  shareMeans,
  suspectCells,
  suspectColumns,
} from "./suspects.tsx";
import { Name, OpName, Sentence, useSteady } from "../components/names.tsx";
import { Steering } from "./steering.tsx";

type Detail = Schemas["IncidentDetail"];
type Incident = Schemas["Incident"];

export default function IncidentView({ id }: { id: string }) {
  const resource = useIncident(id);
  if (resource.failure && [400, 404].includes(resource.failure.status))
    return isAbbreviated(id, idDigits) ? <Beginning of={id} /> : <NotFound />;
  return (
    <Async of={resource} what="the incident">
      {(detail) => <Content detail={detail} reload={resource.reload} />}
    </Async>
  );
}

const idDigits = 16;

// Beginning leads to the incident whose ID begins with some digits.
function Beginning({ of: id }: { of: string }) {
  const all = useResource(`incidents ${id}`, (signal) =>
    client.GET("/incidents", { params: { query: { muted: "all", limit: 1000 } }, signal }),
  );
  return (
    <Abbreviated id={id} among={all} path="/incidents/">
      <NotFound />
    </Abbreviated>
  );
}

const NotFound = () => (
  <Empty page title="Incident not found">
    Closed incidents are kept for some days. <Link href="/">Current incidents</Link>
  </Empty>
);

function Content({ detail, reload }: { detail: Detail; reload: () => void }) {
  const x = detail.incident;
  useTitle(useSteady(x.sentence, x.sentence_parts, x.id));
  return (
    <>
      <Head detail={detail} reload={reload} />
      {x.objectives.length > 0 && <Objectives of={x} />}
      <Latency of={x} />
      <RequestTypes of={x} />
      {detail.investigation ? (
        <Search of={detail.investigation} incident={x} located={detail.located} changed={reload} />
      ) : (
        detail.located && <LocatedPlace of={detail.located} search={{ incident: x.id }} />
      )}
      {listsSuspects(x) && (isTold(x) ? <FoldedSuspects of={x} /> : <Suspects of={x} />)}
      <Telemetry of={x} />
      <div className="columns">
        <Timeline detail={detail} />
        <div>
          <Comments of={detail} changed={reload} />
          <Samples detail={detail} />
          <EarlierIncidents of={detail} />
          <Problems of={x} />
        </div>
      </div>
    </>
  );
}

// listsSuspects reports whether a service stands out in an incident.
const listsSuspects = (x: Incident) => x.score > 0 || x.objectives.length === 0;

// isTold reports whether the sentence of an incident says it all about its suspects: a place in the only likely one.
const isTold = (x: Incident) => x.place !== undefined && likely(x.suspects).length === 1;

// evidence returns the sections with the evidence for the names in the sentence of an incident.
function evidence({ incident: x, investigation, located }: Detail, path: (section: string) => string) {
  const links = new Map<string, string>();
  const lead = (name: string | undefined, section: string) => name && links.set(name, path(section));
  for (const t of x.request_types) lead(t.name, "request-types");
  const place = investigation ? "search" : "located";
  if (listsSuspects(x))
    for (const s of x.suspects)
      for (const name of [s.service, ...s.instances.map((i) => i.value)]) lead(name, isTold(x) ? place : "suspects");
  if (investigation || located) lead(x.place, place);
  return links;
}

function Head({ detail, reload }: { detail: Detail; reload: () => void }) {
  const x = detail.incident;
  const path = useSectionPath();
  const [, go] = useLocation();
  const asFile = () =>
    saveFile(`incident-${x.id}.json`, new Blob([JSON.stringify(detail, null, 1)], { type: "application/json" }));
  return (
    <>
      <div className="crumbs">
        <Link href="/">Incidents</Link> <span aria-hidden="true">›</span> <IncidentState of={x} /> <Earlier of={x} />
      </div>
      <h1 className="diagnosis">
        <SteadySentence of={x} links={evidence(detail, path)} />
      </h1>
      {detail.next && (
        <div className="does">
          <strong>Next</strong>
          <span>
            <Sentence of={detail.next_parts} />
          </span>
        </div>
      )}
      <div className="effects">
        <Facts of={[...effects(x), ...circumstances(x), ...linksOf(x)]} />
      </div>
      <div className="toolbar">
        <NoteButtons of={incidentSubject(x)} changed={reload} />
        {x.state === "open" && (
          <button type="button" onClick={() => go(`/silences${query({ service: x.service })}`)}>
            {x.silenced ? `Silenced by ${x.silenced.by}` : "Silence …"}
          </button>
        )}
        {x.state === "open" && <Accept of={x} changed={reload} />}
        <Menu
          label="Share this incident"
          icon="Share"
          items={[
            { text: "Copy the link", act: () => void copyText(location.href) },
            { text: "Copy as Markdown", act: () => void copyReport(x.id) },
            null,
            { text: "Save as HTML page", act: () => void saveReport(x.id, "html") },
            { text: "Save as Markdown", act: () => void saveReport(x.id, "markdown") },
            { text: "Save as JSON", act: asFile },
          ]}
        />
      </div>
    </>
  );
}

// linksOf returns the links of the suspect whose table is folded.
const linksOf = (x: Incident): Fact[] =>
  isTold(x) && x.suspects[0]!.links ? [["Links", <SuspectLinks key="links" of={x.suspects[0]!} />]] : [];

type Format = "markdown" | "html";

// readReport reads the report of an incident as a text.
async function readReport(incident: string, format: Format): Promise<string> {
  const params = { path: { incident }, query: { format } };
  return unwrap<string>(client.GET("/incidents/{incident}/report", { params, parseAs: "text" }));
}

const notRead = (error: unknown) =>
  showToast(error instanceof ApiError ? `${error.title}: ${error.detail}` : String(error));

const copyReport = (id: string) => readReport(id, "markdown").then(copyText, notRead);

const saveReport = (id: string, format: Format) =>
  readReport(id, format).then(
    (text) =>
      saveFile(`incident-${id}.${format === "html" ? "html" : "md"}`, new Blob([text], { type: `text/${format}` })),
    notRead,
  );

// Accept declares, after a confirmation, the behaviour since the onset to be normal.
function Accept({ of: x, changed }: { of: Incident; changed: () => void }) {
  const [linked, setLinked] = useEnum("dialog", dialogs);
  const [asking, setAsking] = useState(linked === "accept");
  const [text, setText] = useState("");
  const close = () => {
    setAsking(false);
    if (linked) setLinked("");
  };
  const act = async () => {
    await unwrap<unknown>(
      client.POST("/incidents/{incident}/accept", { params: { path: { incident: x.id } }, body: { text } }),
    );
    showToast("Accepted: the incident closes when the epoch ends.");
    changed();
  };
  return (
    <>
      <button type="button" onClick={() => setAsking(true)}>
        Accept as normal …
      </button>
      {asking && (
        <Dialog title="Accept this as normal?" verb="Accept as normal" close={close} act={act}>
          <p>
            The incident closes. Sibyl forgets how <Name>{x.service}</Name> and the calls to it behaved before{" "}
            <When at={x.onset} />, and compares them with their behaviour since then.
          </p>
          <p>
            No incident opens for a quarter of an hour, while Sibyl learns the new level. Accept only changes that are
            intended, such as a new version that does more work: this cannot be undone. To hide the incident for a
            while, mute it.
          </p>
          <label className="field">
            Reason (visible to others)
            <input maxLength={1024} value={text} onChange={(e) => setText(e.target.value)} />
          </label>
        </Dialog>
      )}
    </>
  );
}

// Objectives lists the objectives that requests miss because of an incident.
function Objectives({ of: x }: { of: Incident }) {
  return (
    <Figure
      id="objectives"
      title="Missed objectives"
      hint="Figures of the last epoch in which an error budget burned too fast. At a burn rate of 1, a budget lasts exactly 30 days."
      table={() => ({
        header: ["objective", "entry", "kind", "below (ms)", "budget (of 1)", "share (of 1)", "burn rate", "until"],
        rows: x.objectives.map((o) => [
          o.name,
          o.entry,
          o.kind,
          milli(o.below_ns),
          o.budget,
          o.share,
          o.burn_rate,
          o.at,
        ]),
      })}
      tableOnly
    >
      <ul className="plain">
        {x.objectives.map((o) => (
          <li key={`${o.entry} ${o.below_ns}`}>
            {keepUnits(o.sentence)} <span className="dim small nowrap">burn rate {factor(o.burn_rate)}</span>
          </li>
        ))}
      </ul>
      <p className="under">
        <Link href="/objectives">All objectives</Link>
      </p>
    </Figure>
  );
}

const maxOperations = 3; // of a suspect, in the table
const maxInstances = 3;

// Suspects lists the suspects with the parts of their scores, and where the cost arises.
function Suspects({ of: x }: { of: Incident }) {
  const [shown, setShown] = useEnum("suspects", ["likely", "all"]);
  const few = likely(x.suspects);
  const listed = shown === "all" ? x.suspects : few;
  const max = Math.max(...x.suspects.map((s) => s.score));
  const cost = costOf(x.suspects);
  return (
    <Figure
      id="suspects"
      title="Suspects"
      hint="Services that make requests slower or fail: the most likely cause first, then the others by their share of the cost, which is added time and failed requests."
      table={() => ({
        header: ["service", "owner", "score", ...suspectColumns, "operations", "instances"],
        rows: x.suspects.map((s) => [
          s.service,
          s.owner ? ownerText(s.owner) : "",
          s.score,
          ...suspectCells(s),
          s.operations.map(suspectOperation).join("; "),
          s.instances.map((i) => `${i.key}=${i.value} (${percent(i.part)})`).join("; "),
        ]),
      })}
      tableOnly
    >
      <Table
        label="Suspects"
        className="suspects-table"
        head={["Service", { text: "Share of cost", title: shareMeans }, "Operations", "Mostly on"]}
      >
        {listed.map((s) => (
          <tr key={s.service}>
            <td>
              <Name>{s.service}</Name>
              {s.owner && (
                <div className="small">
                  <bdi>{ownerText(s.owner)}</bdi>
                </div>
              )}
              {!s.emits_spans && <div className="dim small">emits no spans; named by its callers</div>}
              {s.links && (
                <div className="small">
                  <SuspectLinks of={s} />
                </div>
              )}
            </td>
            <td className="bars">
              <strong title={scoreText(s)}>{percent(s.score / cost)}</strong>
              <ScoreBar of={s} max={max} />
              <PartList of={s} cost={cost} />
            </td>
            <td data-label="Operations">
              <ul className="plain">
                {s.operations
                  .filter(counts)
                  .slice(0, maxOperations)
                  .map((o, i) => (
                    <li key={i}>
                      <OpName>{suspectOperation(o)}</OpName>{" "}
                      {o.score >= leastOperation && (
                        <span className="dim small nowrap">{percent(Math.min(1, o.score / cost))}</span>
                      )}
                    </li>
                  ))}
              </ul>
            </td>
            <td data-label="Mostly on">
              <ul className="plain">
                {s.instances.slice(0, maxInstances).map((i) => (
                  <li key={`${i.key} ${i.value}`} title={`${count(i.calls)} calls`}>
                    <bdi>
                      {i.key} = <strong>{i.value}</strong>
                    </bdi>{" "}
                    <span className="dim small nowrap">{percent(i.part)} of the cost</span>
                  </li>
                ))}
              </ul>
              {s.instances.length === 0 && <span className="dim">–</span>}
            </td>
          </tr>
        ))}
      </Table>
      <More
        rest={x.suspects.length - few.length}
        what=", much less likely"
        shown={shown === "all"}
        toggle={() => setShown(shown === "all" ? "likely" : "all")}
      />
    </Figure>
  );
}

const SuspectLinks = ({ of: s }: { of: Incident["suspects"][number] }) =>
  s.links!.map((l) => (
    <a key={l.url} href={l.url} target="_blank" rel="noreferrer">
      {l.name}{" "}
    </a>
  ));

// FoldedSuspects has the table of suspects when the sentence tells the only likely one.
function FoldedSuspects({ of: x }: { of: Incident }) {
  const [open, setOpen] = useEnum("suspect", ["folded", "open"]);
  return (
    <details
      className="more"
      open={open === "open"}
      onToggle={(e) => setOpen(e.currentTarget.open ? "open" : "folded")}
    >
      <summary>
        Suspects: <Name>{x.suspects[0]!.service}</Name>, {percent(x.suspects[0]!.score / costOf(x.suspects))} of the
        cost
      </summary>
      {open === "open" && <Suspects of={x} />}
    </details>
  );
}

// counts reports whether an operation of a suspect adds enough to be listed.
const counts = (o: Schemas["SuspectOperation"], i: number) => i === 0 || o.score >= leastOperation;

const leastOperation = 0.005; // of the usual time of a request, that an operation adds

// suspectOperation names an operation of a suspect, with the callee of a call.
const suspectOperation = (o: Schemas["SuspectOperation"]) =>
  `${o.service} ${o.operation}${o.target ? ` → ${[o.target.service, o.target.operation].filter(Boolean).join(" ")}` : ""}`;

const maxCharted = 20; // request types to choose from
const maxPlaces = 5; // of the search
const leastPlace = 0.01; // share of the added latency

type SearchProps = {
  of: Schemas["InvestigationDetail"];
  incident: Incident;
  located: Schemas["LocatedPlace"] | undefined;
  changed: () => void;
};

// Search shows how far the search for the place has come: its state, the places with their shares of the added latency, the
// tracepoints that are on, and the decisions. Once the place is located, it shows the evidence of that time.
function Search({ of: detail, incident: x, located: found, changed }: SearchProps) {
  const v = detail.investigation;
  const located = v.state === "investigating" || v.state === "opened" ? undefined : found;
  const places = v.suspects.filter((s, i) => i === 0 || (s.share.value ?? 0) >= leastPlace).slice(0, maxPlaces);
  const sampled = places.some((s) => s.requests > 0);
  return (
    <Figure
      id="search"
      title="Place"
      hint="Where requests through the first suspect lose time. Sibyl switches tracepoints on and off to find the place."
      tools={
        <>
          {v.problem && <Link href={`/problems/${v.problem}`}>Located for a problem</Link>}
          {!x.closed && <Steering subject={x.id} investigation={v} changed={changed} />}
        </>
      }
      table={() => (located ? framesTable(located) : placesTable(v))}
      tableOnly
      image={located !== undefined}
    >
      <p className="does">
        {v.state !== "gone" && <StateBadge of={v.state} title={searchStates[v.state]} />}
        <span>{searchText(v, x)}</span>
      </p>
      {located && (
        <>
          <p className="hint dim">
            <MeasuredAt of={located} />
          </p>
          <FrozenPath of={located} />
          <Frames of={located} />
          <Witnesses of={located} search={{ incident: x.id }} />
        </>
      )}
      {!located && places.length > 0 && (
        <Table
          label="Places"
          className="results"
          head={["Operation", "Share of the added latency", ...(sampled ? [{ text: "Requests", number: true }] : [])]}
        >
          {places.map((s, i) => (
            <tr key={i}>
              <td title={s.context.join(" → ")}>
                <Name>{s.operation}</Name> {s.tracepoint && <span className="dim small mono path">{s.tracepoint}</span>}
              </td>
              <td className="bars">
                {share(s.share.value)}{" "}
                {s.requests > 0 && <span className="dim small range">{range(s.share, percent)}</span>}
                <Bar of={s.share.value} low={s.share.low} high={s.share.high} />
              </td>
              {sampled && <td className="number">{s.requests > 0 ? count(s.requests) : "–"}</td>}
            </tr>
          ))}
        </Table>
      )}
      {detail.requested.length > 0 && (
        <p className="under">
          <span>
            On now:{" "}
            <span className="mono path">
              <bdi>{detail.requested.map((r) => r.tracepoint).join(", ")}</bdi>
            </span>
          </span>
          <Link href={`/tracepoints${query({ state: "on" })}`}>Active tracepoints</Link>
        </p>
      )}
      <SearchLog of={v} />
    </Figure>
  );
}

const placesTable = (v: Schemas["Investigation"]) => ({
  header: ["place", "tracepoint", "share of the added latency (of 1)", "low (of 1)", "high (of 1)", "requests"],
  rows: v.suspects.map((s) => [
    s.context.join(" → "),
    s.tracepoint,
    s.share.value,
    s.share.low,
    s.share.high,
    s.requests,
  ]),
});

// searchStates define the states of the search of an incident.
const searchStates: Record<Schemas["State"], string> = {
  none: "",
  opened: "The search starts with the next epoch",
  investigating: "Tracepoints are being switched on and off to find the place",
  located: "The place is known; no tracepoint below it is left to try",
  explained:
    "The place is known, and so is the reason: what its threads wait for, or attributes that correlate with it",
  exhausted: "Every available tracepoint was tried; no place is certain",
  gone: "The search has ended",
};

// searchText says how far a search has come, with the reason that the next step and the command line give, too.
function searchText(v: Schemas["Investigation"], x: Incident): string {
  const on = v.on === 1 ? "1 tracepoint" : `${count(v.on)} tracepoints`;
  const tried = `${v.tried === 1 ? "1 tracepoint" : `${count(v.tried)} tracepoints`} tried.`;
  switch (v.state) {
    case "opened":
    case "investigating":
      return keepUnits(`${sentence(v.reason) || `Sibyl is about to search in ${x.service}.`} ${on} on, ${tried}`);
    case "gone":
      return keepUnits(
        `${x.state === "open" ? `The search ended: ${v.reason}.` : "The search ended with the incident."}${v.tried > 0 ? ` ${tried}` : ""}`,
      );
    default:
      return keepUnits(`${sentence(v.reason)}${v.tried > 0 ? ` ${tried}` : ""}`);
  }
}

const sentence = (reason: string) => (reason ? `${reason[0]!.toUpperCase()}${reason.slice(1)}.` : "");

// SearchLog lists, folded, the decisions of a search.
function SearchLog({ of: v }: { of: Schemas["Investigation"] }) {
  const [open, setOpen] = useEnum("decisions", ["folded", "open"]);
  const of = v.incident ? { incident: v.incident } : { problem: v.problem };
  const resource = useResource(
    open === "open" ? `decisions ${v.incident ?? v.problem}` : null,
    (signal) => client.GET("/decisions", { params: { query: { ...of, limit: 100 } }, signal }),
    "decision",
  );
  return (
    <details open={open === "open"} onToggle={(e) => setOpen(e.currentTarget.open ? "open" : "folded")}>
      <summary>Decisions</summary>
      {open === "open" && (
        <Async of={resource} what="the decisions">
          {(list) => <Decisions of={list.items} />}
        </Async>
      )}
    </details>
  );
}

const lead = 1_800_000; // ms, shown before the onset

// Latency shows the durations of an affected request type from half an hour before the onset to a while after the end.
function Latency({ of: x }: { of: Incident }) {
  const types = x.request_types.slice(0, maxCharted);
  const [picked, pick] = useID("type");
  const now = useNow();
  const shown = types.find((t) => t.id === picked) ?? types[0];
  if (!shown) return null;
  const marks: Mark[] = [
    { at: Date.parse(x.onset), text: "onset", title: "The change began, by estimate" },
    { at: Date.parse(x.opened), text: "opened", title: "The incident opened" },
    ...marksOf(x.annotations),
  ];
  if (x.closed && x.end)
    marks.push({ at: Date.parse(x.closed), text: "closed", title: `The incident closed: ${x.end.text}` });
  const onset = Date.parse(x.onset);
  return (
    <LatencyOverTime
      group={shown.id}
      times={{
        from: minuteOf(onset - lead),
        to: x.closed ? Math.min(now, Date.parse(x.closed) + lead / 2) : now,
        live: !x.closed,
      }}
      edge={onset}
      marks={marks}
      expected={shown.usual_ns}
      link={{ incident: x.id }}
      annotations={x.annotations}
      tools={
        types.length > 1 && (
          <Select label="Request type" value={shown.id} pick={pick} of={types.map((t) => [t.id, t.name] as const)} />
        )
      }
    />
  );
}

const minuteOf = (ms: number) => ms - (ms % 60_000);

// RequestTypes lists the affected request types, worst first. Their names link to the requests before and after the
// onset.
function RequestTypes({ of: x }: { of: Incident }) {
  if (x.queue && x.request_types.length === 0) return null; // no request waits for its messages
  const slowest = Math.max(...x.request_types.map((t) => t.mean_ns));
  return (
    <Figure
      id="request-types"
      title="Affected request types"
      hint="Values since the onset; usual values are below, in small print. Select a name to compare the two."
      table={() => ({
        header: [
          "request type",
          "requests",
          "mean (ms)",
          "usual (ms)",
          "P50 (ms)",
          "usual P50 (ms)",
          "P99 (ms)",
          "usual P99 (ms)",
          "failed (of 1)",
          "usually failed (of 1)",
          "id",
        ],
        rows: x.request_types.map((t) => [
          t.name,
          t.requests,
          milli(t.mean_ns),
          milli(t.usual_ns),
          milli(t.p50_ns),
          milli(t.usual_p50_ns),
          milli(t.p99_ns),
          milli(t.usual_p99_ns),
          t.failed,
          t.usual_failed,
          t.id,
        ]),
      })}
      tableOnly
    >
      {x.request_types.length === 0 ? (
        <p className="dim">No request type is clearly slower yet, and none fails clearly more often.</p>
      ) : (
        <Table
          label="Affected request types"
          className="affected"
          head={[
            "Request type",
            { text: "Mean", title: "Since the onset, with the usual value" },
            { text: "Slower", number: true },
            { text: "P50", number: true, title: "Median since the onset, with the usual value" },
            { text: "P99", number: true, title: "99th percentile since the onset, with the usual value" },
            { text: "Failed", number: true, title: "Share of requests since the onset, with the usual value" },
            {
              text: "Requests",
              number: true,
              title:
                "From the onset until the type had lost the most time. All figures except the usual ones are about these requests",
            },
          ]}
        >
          {x.request_types.map((t) => (
            <tr key={t.id}>
              <td>
                <Link href={`/compare${query({ group: t.id, by: "time", from: x.onset, base_to: x.onset })}`}>
                  <OpName>{t.name}</OpName>
                </Link>
              </td>
              <td data-label="Mean" className="bars">
                <strong>{duration(t.mean_ns)}</strong>{" "}
                <span className="dim nowrap">usually {duration(t.usual_ns)}</span>
                <Bar of={t.mean_ns} max={slowest} />
                <Bar of={t.usual_ns} max={slowest} />
              </td>
              <td data-label="Slower" className="number nowrap">
                {isSlower(t) ? <strong>{factor(t.mean_ns / t.usual_ns)}</strong> : <span className="dim">none</span>}
              </td>
              <td data-label="P50" className="number">
                <Time now={t.p50_ns} usual={t.usual_p50_ns} />
              </td>
              <td data-label="P99" className="number">
                <Time now={t.p99_ns} usual={t.usual_p99_ns} />
              </td>
              <td data-label="Failed" className="number">
                <Beside now={percent(t.failed)} usual={percent(t.usual_failed)} notable={failsMore(t)} />
              </td>
              <td data-label="Requests" className="number">
                {count(t.requests)}{" "}
                {t.span_ns > 0 && <span className="dim nowrap">in {keepUnits(span(t.span_ns))}</span>}
              </td>
            </tr>
          ))}
        </Table>
      )}
    </Figure>
  );
}

// isEvent reports whether an entry belongs on the timeline: comments have a list of their own.
const isEvent = (e: Schemas["TimelineEntry"]) => e.kind !== "commented";

// Timeline lists the events of an incident, oldest first.
function Timeline({ detail }: { detail: Detail }) {
  return (
    <Figure
      id="timeline"
      title="Timeline"
      table={() => ({ header: ["at", "kind", "text"], rows: detail.timeline.map((e) => [e.at, e.kind, e.text]) })}
      tableOnly
    >
      <ol className="timeline">
        {detail.timeline.filter(isEvent).map((e, i) => (
          <li key={i} className={e.kind === "annotation" ? "annotated" : ""}>
            <div className="dim small">
              <When at={e.at} />
            </div>
            <div className="path">
              {e.kind === "annotation" && "▲ "}
              <Sentence of={e.text_parts} />
            </div>
          </li>
        ))}
      </ol>
    </Figure>
  );
}

// Samples links to slow and failed sample traces.
function Samples({ detail: { incident, exemplars } }: { detail: Detail }) {
  const names = new Map(incident.request_types.map((t) => [t.id, t.name]));
  return (
    <Figure
      id="exemplars"
      title="Sample traces"
      table={() => ({
        header: ["stratum", "trace", "request type", "start", "duration (ms)"],
        rows: exemplars.map((e) => [e.stratum, e.trace, names.get(e.group) ?? "", e.start, milli(e.duration_ns)]),
      })}
      tableOnly
    >
      {exemplars.length === 0 ? (
        <p className="dim">No sample traces from its time are stored.</p>
      ) : (
        <ul className="plain">
          {exemplars.map((e) => (
            <li key={e.trace}>
              <Link href={`/traces/${e.trace}${query({ incident: incident.id })}`}>{duration(e.duration_ns)}</Link>{" "}
              {e.stratum === "failed" && <span className="bad">failed </span>}
              {names.has(e.group) && <OpName>{names.get(e.group)!}</OpName>}{" "}
              <span className="dim small">
                <When at={e.start} brief />
              </span>
            </li>
          ))}
        </ul>
      )}
    </Figure>
  );
}

const maxProblems = 20; // in the list

// Problems lists, folded, the problems of an incident.
function Problems({ of: x }: { of: Incident }) {
  const [open, setOpen] = useEnum("problems", ["folded", "open"]);
  if (x.problems.length === 0) return null;
  return (
    <section className="figure more" id="problems">
      <details open={open === "open"} onToggle={(e) => setOpen(e.currentTarget.open ? "open" : "folded")}>
        <summary>
          {count(x.problems.length)} {x.problems.length === 1 ? "problem" : "problems"} in the same places
        </summary>
        {open === "open" && (
          <ul className="problems">
            {x.problems.slice(0, maxProblems).map((id) => (
              <ProblemLink key={id} id={id} />
            ))}
          </ul>
        )}
        {x.problems.length > maxProblems && (
          <p>
            See the list of <Link href="/problems">problems</Link> for the others.
          </p>
        )}
      </details>
    </section>
  );
}

function ProblemLink({ id }: { id: string }) {
  const resource = useResource(
    `problem ${id}`,
    (signal) => client.GET("/problems/{problem}", { params: { path: { problem: id } }, signal }),
    true,
  );
  if (resource.failure?.status === 404) return <li className="dim">It has since closed.</li>;
  const p = resource.value?.problem;
  if (!p) return <li aria-busy={resource.failure === undefined}>{resource.failure?.title ?? "…"}</li>;
  return (
    <li>
      {p.closed ? <span className="dim small">closed</span> : !isInIncident(p) && <StateBadge of={p.state} />}{" "}
      <Link href={`/problems/${id}`}>{keepUnits(p.diagnosis)}</Link>
    </li>
  );
}
