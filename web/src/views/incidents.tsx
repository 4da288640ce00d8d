// Incidents: the open incidents and those of the last day.
import { Suspense, lazy, useId, useState } from "react";
import { Link } from "wouter";
import { type Schemas, client } from "../api/client.ts";
import { useIncident, useIncidents, useResource } from "../api/queries.ts";
import { labels } from "../logic/annotations.ts";
import { coarseDuration, count, keepUnits, percent, rate, span } from "../logic/format.ts";
import {
  costOf,
  affectedText,
  carrier,
  earlierText,
  failsMore,
  impactText,
  isMuted,
  isSlower,
  isWithin,
  lasted,
  likely,
  nobodyKnows,
  relativeToOnset,
  ownerText,
  sizeText,
  toldEnds,
} from "../logic/incidents.ts";
import { type Range, rangeWords } from "../logic/range.ts";
import { quietHeadline, servicePath } from "../logic/services.ts";
import { useNow } from "../settings.ts";
import { query, useEnum, useQuery } from "../url.ts";
import { moveFocus, useKeys } from "../use-keys.ts";
import { Async, Empty, Loading } from "../components/async-state.tsx";
import { ClosedBadge, IncidentKindTag, SeverityBadge, StateBadge } from "../components/badges.tsx";
import { type Fact, Facts, When, useTitle } from "../components/basics.tsx";
import { Select } from "../components/controls.tsx";
import { type TableData, exportItems } from "../components/figure.tsx";
import { Menu } from "../components/menu.tsx";
import { RangeSelect, useRange } from "../components/range.tsx";
import { Silence, SilenceNote, useSilence } from "../components/silence.tsx";
import { TruncationNote } from "../components/table.tsx";
import { Course } from "./course.tsx";
import { type Note, NoteDialog, NoteTags, SilencedTag, incidentSubject } from "./notes.tsx";
import { scoreText, shareMeans } from "./suspects.tsx";
import { Name, OpName, Sentence } from "../components/names.tsx";

const ServicesNow = lazy(() => import("./services-now.tsx"));

type Incident = Schemas["Incident"];
type List = Schemas["IncidentList"];

export function Incidents() {
  const resource = useIncidents();
  const [range, setRange] = useRange();
  const open = (resource.value?.items ?? []).filter((x) => x.state === "open" && !isMuted(x)).length;
  useTitle(open > 0 ? openIncidents(open) : "Incidents");
  return (
    <>
      <div className="toolbar">
        <h1>Incidents</h1>
        <RangeSelect value={range} pick={setRange} />
        {resource.value && (
          <Menu
            label="Incidents: table and export"
            icon="⋯"
            items={exportItems("Incidents", () => asTable(resource.value?.items ?? []))}
          />
        )}
      </div>
      <Async of={resource} what="incidents">
        {(list) => <Lists list={list} range={range} changed={resource.reload} />}
      </Async>
    </>
  );
}

const severities = ["critical", "major", "minor"] as const;

const openIncidents = (n: number) => `${n === 0 ? "No" : count(n)} open ${n === 1 ? "incident" : "incidents"}`;

// asTable returns the incidents for export.
const asTable = (items: Incident[]): TableData => ({
  header: [
    "state",
    "kind",
    "severity",
    "sentence",
    "service",
    "owner",
    "score",
    "onset",
    "opened",
    "ended",
    "closed",
    "end",
    "request types",
    "problems",
    "earlier",
    "id",
  ],
  rows: items.map((x) => [
    x.state,
    x.kind,
    x.severity,
    x.sentence,
    x.service,
    x.owner ? ownerText(x.owner) : "",
    x.score,
    x.onset,
    x.opened,
    x.ended,
    x.closed,
    x.end?.text ?? "",
    x.request_types.length,
    x.problems.length,
    x.earlier,
    x.id,
  ]),
});

type ListsProps = { list: List; range: Range; changed: () => void };

function Lists({ list, range, changed }: ListsProps) {
  const [dialog, setDialog] = useState<{ incident: Incident; note: Note }>();
  const [muted, setMuted] = useEnum("muted", ["hidden", "shown"]);
  const [earlier, setEarlier] = useEnum("earlier", ["hidden", "shown"]);
  const [severity, setSeverity] = useEnum("severity", ["", ...severities]);
  const [service, setService] = useQuery("service");
  const chosen = list.items.filter(
    (x) => (severity === "" || x.severity === severity) && (service === "" || x.service === service),
  );
  const all = chosen.filter((x) => muted === "shown" || !isMuted(x));
  const open = all.filter((x) => x.state === "open");
  const closed = all.filter((x) => x.state === "closed" && isWithin(x, range));
  const others = all.filter((x) => x.state === "closed" && !isWithin(x, range));
  const nothing = open.length === 0 && chosen.length === list.items.length; // is open, and no filter hides it
  const note = (kind: Note) => {
    const id = (document.activeElement as HTMLElement | null)?.dataset["incident"];
    const incident = list.items.find((x) => x.id === id);
    if (incident) setDialog({ incident, note: kind });
  };
  useKeys({
    j: () => moveFocus("a[data-incident]", 1),
    k: () => moveFocus("a[data-incident]", -1),
    a: () => note("acknowledge"),
    m: () => note("mute"),
  });
  return (
    <>
      <p className="under">
        {!list.learning && <span role="status">{openIncidents(open.length)}</span>}
        {list.epoch && (
          <span>
            as of <When at={list.epoch} />
          </span>
        )}
        <Toggle n={list.items.filter(isMuted).length} of="muted" value={muted} pick={setMuted} />
        {list.silenced > 0 && <Link href="/silences">{count(list.silenced)} silenced</Link>}
        <span className="push filters">
          {service !== "" && (
            <button type="button" onClick={() => setService("")} aria-label={`All services, not only ${service}`}>
              <Name>{service}</Name> <span aria-hidden="true">✕</span>
            </button>
          )}
          {list.items.length > 0 && (
            <Select
              label="Severity"
              value={severity}
              pick={setSeverity}
              of={[["", "all"], ...severities.map((s) => [s, s] as const)]}
            />
          )}
        </span>
      </p>
      {!nothing && <Silence />}
      {open.length > 0 && <Section title="Open" of={open} />}
      {open.length === 0 && chosen.length < list.items.length && (
        <p className="dim state">No open incident matches these filters.</p>
      )}
      {nothing && <NothingOpen list={list} muted={list.items.filter((x) => x.state === "open" && isMuted(x)).length} />}
      {closed.length > 0 && <Section title={`Closed ${rangeWords(range) || "in this time range"}`} of={closed} />}
      {earlier === "shown" && others.length > 0 && <Section title="Closed at other times" of={others} />}
      <p className="under">
        <Toggle n={others.length} of="closed at other times" value={earlier} pick={setEarlier} />
      </p>
      <TruncationNote list={list} how="The API lists all." />
      <Uncovered />
      <ProblemCount />
      <Suspense fallback={<Loading what="the services" />}>
        <ServicesNow range={range} />
      </Suspense>
      {dialog && (
        <NoteDialog
          subject={incidentSubject(list.items.find((x) => x.id === dialog.incident.id) ?? dialog.incident)}
          note={dialog.note}
          close={() => setDialog(undefined)}
          changed={changed}
        />
      )}
    </>
  );
}

// Toggle shows or hides n incidents.
function Toggle({ n, of, value, pick }: { n: number; of: string; value: string; pick: (value: string) => void }) {
  if (n === 0) return null;
  const hidden = value === "hidden";
  return (
    <button type="button" className="link" onClick={() => pick(hidden ? "shown" : "hidden")}>
      {hidden ? "Show" : "Hide"} {count(n)} {of}
    </button>
  );
}

function Section({ title, of }: { title: string; of: Incident[] }) {
  const heading = useId();
  return (
    <section aria-labelledby={heading}>
      <h2 id={heading} className="section">
        {title}
      </h2>
      {of.map((x, i) => (
        <Entry key={x.id} of={x} charted={i < maxCharted} />
      ))}
    </section>
  );
}

const maxCharted = 10; // open incidents with a chart: each reads it in each epoch

// Entry shows an incident in the list: an open one with its effects and circumstances, a closed one in short.
function Entry({ of: x, charted }: { of: Incident; charted: boolean }) {
  const open = x.state === "open";
  const detail = useIncident(open ? x.id : null);
  const suspects = likely(x.suspects).slice(0, 3);
  return (
    <article className={`incident ${x.state} severity-${x.severity}`} aria-labelledby={`incident-${x.id}`}>
      <div className="what">
        <div className="crumbs">
          <IncidentState of={x} />
          <Earlier of={x} />
        </div>
        <h3 id={`incident-${x.id}`}>
          <Link href={`/incidents/${x.id}`} data-incident={x.id}>
            <Sentence of={x.sentence_parts} />
          </Link>
        </h3>
        {open && (
          <Facts
            of={[
              ["Next", detail.value ? <Sentence key="next" of={detail.value.next_parts} /> : "…"],
              ...(suspects.length > 1 ? [suspectFact(suspects, costOf(x.suspects))] : []),
              ...circumstances(x),
            ]}
          />
        )}
      </div>
      {open && (
        <div className="effect">
          <Facts of={effects(x)} />
          {charted && <Course of={x} />}
        </div>
      )}
    </article>
  );
}

// suspectFact lists suspects with their shares of a cost; the sentence names a single one.
const suspectFact = (suspects: Incident["suspects"], cost: number): Fact => [
  "Suspects",
  <span key="suspects" className="suspects">
    {suspects.map((s, i) => (
      <span key={s.service} title={scoreText(s)}>
        {i > 0 && ", "}
        <Name>{s.service}</Name> {keepUnits(percent(s.score / cost))}
      </span>
    ))}
  </span>,
  shareMeans,
];

// Earlier tells how often the first suspect of an incident had one before, with a link to these.
export function Earlier({ of: x }: { of: Incident }) {
  if (x.earlier === 0) return <span className="dim">first for this service</span>;
  return <Link href={`/${query({ service: x.service, earlier: "shown" })}`}>{earlierText(x.earlier)}</Link>;
}

// IncidentState shows the state of an incident, its time, and who looks after it.
export function IncidentState({ of: x }: { of: Incident }) {
  const now = useNow();
  return (
    <>
      <SeverityBadge of={x.severity} reason={x.severity_reason} />
      <IncidentKindTag of={x.kind} />
      {x.end ? <ClosedBadge of={x.end} /> : <StateBadge of="open" />}
      {x.ended ? (
        <span>
          {nobodyKnows(x) ? "last seen" : "ended"} <When at={x.ended} />, {nobodyKnows(x) ? "after" : "lasted"}{" "}
          {keepUnits(span(1e6 * lasted(x, now)))}
          {x.end && (
            <span className="end">
              : <Sentence of={x.end.text_parts} />
            </span>
          )}
        </span>
      ) : (
        <span>
          since <When at={x.onset} />
          {x.reopened && (
            <>
              , returned <When at={x.reopened} brief />
            </>
          )}
        </span>
      )}
      <NoteTags of={x.notes} />
      {x.silenced && <SilencedTag of={x.silenced} />}
      {x.comments > 0 && (
        <span className="tag">{x.comments === 1 ? "1 comment" : `${count(x.comments)} comments`}</span>
      )}
    </>
  );
}

// effects lists how bad an incident is.
export function effects(x: Incident): Fact[] {
  const worst = x.request_types[0];
  const all: Fact[] = [];
  const lost = impactText(x.impact);
  const lostMeans = "Extra time and failures of all affected requests, on average since the onset";
  if (x.size)
    all.push([
      x.closed ? "They took" : "They take",
      <strong key="size">{keepUnits(sizeText(x.size))}</strong>,
      `Mean duration of the affected requests, before the onset and since${lost && `. ${lostMeans}: ${lost}`}`,
    ]);
  else if (worst && isSlower(worst))
    all.push([
      "Slowed most",
      <span key="worst">
        <OpName>{worst.name}</OpName>{" "}
        <strong>{keepUnits(sizeText({ before_ns: worst.usual_ns, now_ns: worst.mean_ns }))}</strong>
      </span>,
      "Usual mean duration of the request type with the largest loss, and that since the onset",
    ]);
  if (x.failures)
    all.push([
      "Failed",
      <strong key="failed">{keepUnits(`${percent(x.failures.before)} → ${percent(x.failures.now)}`)}</strong>,
      "Share of the affected requests that failed, before the onset and since",
    ]);
  else if (worst && x.kind !== "silent" && failsMore(worst))
    all.push([
      "Failed",
      <span key="failed">
        <strong>{keepUnits(percent(worst.failed))}</strong> of <OpName>{worst.name}</OpName>,{" "}
        <span className="dim">{keepUnits(`usually ${percent(worst.usual_failed)}`)}</span>
      </span>,
      "Share of the failed requests of the type with the largest loss",
    ]);
  if (x.queue?.now_ns && x.queue.before_ns !== null)
    all.push([
      "They wait",
      <strong key="wait">{keepUnits(sizeText({ before_ns: x.queue.before_ns, now_ns: x.queue.now_ns }))}</strong>,
      "Mean time of a message in the queue, before the onset and since",
    ]);
  if (x.kind !== "silent") all.push(["Affected", keepUnits(affectedText(x))]);
  else if (x.stopped_per_second)
    all.push([
      "Came before",
      rate(x.stopped_per_second),
      `Requests to the first suspect before the onset; there ${x.closed ? "were none until it ended" : "have been none since"}`,
    ]);
  if (lost && x.kind !== "silent" && !x.size && !x.failures) all.push(["Lost", keepUnits(lost), lostMeans]);
  return all;
}

// circumstances lists what points to the cause of an incident, beyond its sentence.
export function circumstances(x: Incident): Fact[] {
  const on = carrier(x.suspects[0]);
  const latest = x.annotations[0];
  const all: Fact[] = [];
  if (latest)
    all.push([
      labels[latest.kind],
      <span key="annotation">
        <bdi>{latest.title}</bdi>, {relativeToOnset(latest.at, x.onset)}
      </span>,
      "The latest deploy or other annotation of a suspect, or of no service",
    ]);
  if (on && !x.sentence.includes(x.suspects[0]!.instances[0]!.value))
    all.push(["Mostly on", <bdi key="on">{on}</bdi>, "Accounts for most of the cost of the first suspect"]);
  if (x.owner) all.push(["Owner", <bdi key="owner">{ownerText(x.owner)}</bdi>, "Of the first suspect"]);
  return all;
}

// NothingOpen says that all is well, since when, or why Sibyl cannot say so.
function NothingOpen({ list, muted }: { list: List; muted: number }) {
  const { value: status } = useResource("status", (signal) => client.GET("/status", { signal }), true);
  const left = list.learning_left_ns;
  const silent = useSilence(status);
  if (list.learning) {
    return (
      <Empty title="Learning normal behaviour">
        Sibyl compares requests with their own history, so it reports incidents only after about ten minutes of traffic.
        {left !== undefined && ` About ${coarseDuration(left / 1e6)} left.`}
      </Empty>
    );
  }
  if (silent) {
    return (
      <div className="state short">
        <strong>No traces are arriving</strong>
        <SilenceNote of={silent} />
      </div>
    );
  }
  const ends = toldEnds(list.items);
  const unequal = (status?.learning.provisional ?? []).length > 0; // from the start, so that it is no incident
  const uncovered = Boolean(status?.coverage.warning || status?.few_calls.remedy);
  return (
    <div className="state short">
      <strong>{quietHeadline(list.attention, muted, { unknown: ends.some(nobodyKnows), unequal, uncovered })}</strong>
      <Attention of={list.attention} />
      <p>
        {list.attention.length === 0 &&
          `${quietSubject(muted, uncovered)} are no slower than usual and fail no more often. `}
        {ends.length === 0 && "There was no incident in the last day."}
      </p>
      {ends.slice(0, mostEnds).map((x, i) => (
        <p key={x.id}>
          {i === 0 ? "The last incident" : "Another one"} (<Link href={`/incidents/${x.id}`}>{x.service}</Link>) closed{" "}
          <When at={x.closed} />
          {x.end && (
            <>
              : <Sentence of={x.end.text_parts} />
            </>
          )}
          .
        </p>
      ))}
      {status && <NotJudged learning={status.learning} />}
    </div>
  );
}

const mostEnds = 3;

// quietSubject names the requests that are as usual.
function quietSubject(muted: number, uncovered: boolean): string {
  if (uncovered) return muted > 0 ? "Other requests that are judged" : "The requests that are judged";
  return muted > 0 ? "Other requests" : "Requests";
}

// Uncovered says which spans are not judged, and which operations have too few calls, in all states of the first page.
function Uncovered() {
  const { value: status } = useResource("status", (signal) => client.GET("/status", { signal }), true);
  if (!status) return null;
  const { coverage, few_calls: few } = status;
  return (
    <>
      {coverage.warning && (
        <p className="under">
          {keepUnits(coverage.warning)} {coverage.remedy} <Link href="/status">Status</Link> has the numbers.
        </p>
      )}
      {few.text && (
        <p className="under">
          <span className={few.remedy ? "" : "dim"}>
            {keepUnits(few.text)} {few.remedy}
          </span>
        </p>
      )}
    </>
  );
}

const mostAttention = 5;

// Attention lists the services that need attention, with the reasons.
function Attention({ of }: { of: List["attention"] }) {
  return (
    <>
      {of.slice(0, mostAttention).map((x) => (
        <p key={x.id}>
          <Link href={servicePath(x.service, x.id)}>
            <Name>{x.service}</Name>
          </Link>{" "}
          is {x.state}: {keepUnits(x.reason)}
        </p>
      ))}
      {of.length > mostAttention && (
        <p>
          <Link href="/services">{count(of.length - mostAttention)} more</Link>
        </p>
      )}
    </>
  );
}

const mostProvisional = 3;

const inWords = new Intl.ListFormat("en");

// NotJudged names the changes that Sibyl cannot judge in the first hour and the first days, and instances that it may wrongly take for
// usual.
function NotJudged({ learning }: { learning: Schemas["Learning"] }) {
  const parts = [
    [learning.silence_left_ns, "after an hour of traffic, requests that stop"],
    [learning.operations_left_ns, "after a day, single operations"],
    [learning.growth_left_ns, "after a week, changes that take days"],
  ] as const;
  const missing = parts.flatMap(([ns, text]) =>
    ns === undefined ? [] : [`${text} (${coarseDuration(ns / 1e6)} left)`],
  );
  return (
    <>
      {missing.length > 0 && <p className="dim">Sibyl judges whole services now and, {inWords.format(missing)}.</p>}
      {learning.provisional?.slice(0, mostProvisional).map((x) => (
        <p key={`${x.service} ${x.value}`}>
          <Sentence of={x.text_parts} />{" "}
          <span className="dim">It has done so since Sibyl first saw it, so Sibyl considers it normal.</span>
        </p>
      ))}
    </>
  );
}

// ProblemCount links to the list of problems.
function ProblemCount() {
  const { value } = useResource(
    "number of problems",
    (signal) => client.GET("/problems", { params: { query: { limit: 1 } }, signal }),
    true,
  );
  if (!value || value.total === 0) return null;
  return (
    <p className="under">
      <span>
        <Link href="/problems">
          {count(value.total)} {value.total === 1 ? "problem" : "problems"}
        </Link>
        : request types that are slow or erratic, with or without an incident.
      </span>
    </p>
  );
}
