// Problems: the list of problems, worst first.
import {
  type FocusEvent,
  type ReactNode,
  type Ref,
  memo,
  useCallback,
  useEffect,
  useMemo,
  useRef,
  useState,
} from "react";
import { Link } from "wouter";
import { type Schemas, client } from "../api/client.ts";
import { type PagedList, usePages } from "../api/queries.ts";
import { Sparkline } from "../charts/sparkline.tsx";
import { count, duration, lost, ratio, milli, range, rate, factor, stateLabel } from "../logic/format.ts";
import { firstAtPlaces } from "../logic/diagnosis.ts";
import { isInIncident, isUnsearched } from "../logic/incidents.ts";
import { stableOrder } from "../logic/stable-order.ts";
import { moveFocus, useKeys } from "../use-keys.ts";
import { When, useTitle } from "../components/basics.tsx";
import { VirtualTbody } from "../components/virtual-tbody.tsx";
import { Choice, Search, Select } from "../components/controls.tsx";
import { type TableData, exportItems } from "../components/figure.tsx";
import { Menu } from "../components/menu.tsx";
import { Sentence } from "../components/names.tsx";
import { Empty, Async } from "../components/async-state.tsx";
import { StateBadge, ProblemTags, definitions, kindLabels } from "../components/badges.tsx";
import { useEnum, useSearchText } from "../url.ts";
import { ClosedProblems } from "./closed-problems.tsx";
import { NoteDialog, NoteTags, type Note, problemSubject } from "./notes.tsx";

type Problem = Schemas["Problem"];

const sorts = ["rank", "impact", "since", "cov", "p99", "rate"] as const;
type Sort = (typeof sorts)[number];
const states = ["", "opened", "investigating", "located", "explained", "exhausted", "none"] as const;
const pageSize = 200;

const shows = ["open", "closed"] as const;

export default function Problems() {
  useTitle("Problems");
  const [show, setShow] = useEnum("show", shows);
  const choice = (
    <Choice
      label="Show"
      value={show}
      pick={setShow}
      of={[
        ["open", "Open"],
        ["closed", "Closed"],
      ]}
    />
  );
  return show === "open" ? <OpenProblems choice={choice} /> : <ClosedProblems choice={choice} />;
}

function OpenProblems({ choice }: { choice: ReactNode }) {
  const [q, setQ] = useSearchText();
  const [sort, setSort] = useEnum("sort", sorts);
  const [state, setState] = useEnum("state", states);
  const [kind, setKind] = useEnum("kind", ["", ...(Object.keys(kindLabels) as Schemas["Kind"][])]);
  const [onset, setOnset] = useEnum("onset", ["", "changed", "chronic"]);
  const [muted, setMuted] = useEnum("muted", ["false", "all", "true"]);
  const query = {
    sort,
    muted,
    limit: pageSize,
    explain: true,
    ...(q && { q }),
    ...(state && { state }),
    ...(kind && { kind }),
    ...(onset && { onset }),
  };
  const key = `problems ${JSON.stringify(query)}`;
  const resource = usePages<Problem, Schemas["ProblemList"]>(key, pageSize, (cursor, signal) =>
    client.GET("/problems", { params: { query: { ...query, ...(cursor && { cursor }) } }, signal }),
  );
  const sorted = useRef(false);
  const wasSorted = useCallback(() => {
    const was = sorted.current;
    sorted.current = false;
    return was;
  }, []);
  const sortBy = (by: Sort) => {
    sorted.current = sort !== by;
    setSort(by);
  };
  const filtered = Boolean(q || state || kind || onset || muted === "true");
  return (
    <>
      <div className="toolbar">
        <h1>Problems</h1>
        {choice}
        <Search value={q} pick={setQ} label="Search problems ( / )" />
        <Select label="State" value={state} pick={setState} of={states.map((s) => [s, stateLabel(s) || "any"])} />
        <Select label="Kind" value={kind} pick={setKind} of={[["", "any"], ...Object.entries(kindLabels)]} />
        <Select
          label="Onset"
          value={onset}
          pick={setOnset}
          of={[
            ["", "any"],
            ["changed", "changed"],
            ["chronic", "chronic"],
          ]}
        />
        <Select
          label="Muted"
          value={muted}
          pick={setMuted}
          of={[
            ["false", "hidden"],
            ["all", "shown"],
            ["true", "only"],
          ]}
        />
        {resource.value && (
          <Menu
            label="Problems: table and export"
            icon="⋯"
            items={exportItems("Problems", () => asTable(resource.value?.items ?? []))}
          />
        )}
      </div>
      <Async of={resource} what="problems">
        {(list) => (
          <ProblemTable
            key={key}
            list={list}
            setView={resource.setView}
            filtered={filtered}
            sort={sort}
            setSort={sortBy}
            wasSorted={wasSorted}
            changed={resource.reload}
          />
        )}
      </Async>
    </>
  );
}

// asTable returns the problems read so far, for export.
const asTable = (items: Problem[]): TableData => ({
  header: [
    "rank",
    "diagnosis",
    "onset",
    "kind",
    "request type",
    "since",
    "CoV",
    "low",
    "high",
    "mean (ms)",
    "P50 (ms)",
    "P99 (ms)",
    "rate (1/s)",
    "impact (ms/s)",
    "state",
    "id",
  ],
  rows: items.map((p) => [
    p.rank,
    p.diagnosis,
    p.onset,
    p.kind,
    p.request_type_name,
    p.since,
    p.cov.value,
    p.cov.low,
    p.cov.high,
    milli(p.mean_ns),
    milli(p.p50_ns),
    milli(p.p99_ns),
    p.rate,
    milli(p.impact),
    p.state,
    p.id,
  ]),
});

// wasSorted reports, once, whether a column head was just pressed. Sorting mounts a new table.
type TableProps = {
  list: PagedList<Problem, Schemas["ProblemList"]>;
  setView: (first: number, last: number) => void;
  filtered: boolean;
  sort: string;
  setSort: (s: Sort) => void;
  wasSorted: () => boolean;
  changed: () => void;
};

const direction = (ascending: boolean) => (ascending ? "ascending" : "descending");

function ProblemTable({ list, setView, filtered, sort, setSort, wasSorted, changed }: TableProps) {
  const table = useRef<HTMLTableElement>(null);
  useEffect(() => {
    // The button was focused in the previous table.
    if (wasSorted()) table.current?.querySelector<HTMLElement>("[aria-sort] button")?.focus();
  }, [wasSorted]);
  const { items, pending, hold, release } = useHeldRows(list.items);
  const [dialog, setDialog] = useState<{ problem: Problem; note: Note }>();
  const { total, epoch, learning } = list.first;
  const present = useMemo(() => new Set(list.items.map((p) => p.id)), [list.items]);
  const focused = () => items.find((p) => p.id === (document.activeElement as HTMLElement | null)?.dataset["problem"]);
  const note = (kind: Note) => {
    const problem = focused();
    if (problem) setDialog({ problem, note: kind });
  };
  useKeys({
    j: () => moveFocus("a[data-problem]", 1),
    k: () => moveFocus("a[data-problem]", -1),
    a: () => note("acknowledge"),
    m: () => note("mute"),
  });
  const head = (name: string, by: Sort, title: string, className = "") => {
    const ascending = by === "rank" || by === "since";
    const sorted = sort === by;
    return (
      <th scope="col" className={className} aria-sort={sorted ? direction(ascending) : undefined} title={title}>
        <button type="button" className="sort" onClick={() => setSort(by)}>
          {name} <span aria-hidden="true">{sorted && (ascending ? "▴" : "▾")}</span>
        </button>
      </th>
    );
  };
  const first = firstAtPlaces(items);
  return (
    <>
      <p className="under" role="status">
        {total === 0 ? "" : `${count(total)} ${total === 1 ? "problem" : "problems"}`}
        {epoch && (
          <span>
            as of <When at={epoch} />
          </span>
        )}
        {pending > 0 && (
          <button type="button" className="link" onClick={release}>
            {pending === 1 ? "1 row has" : `${pending} rows have`} moved: show
          </button>
        )}
      </p>
      {items.length === 0 ? (
        <NoProblems filtered={filtered} learning={learning} />
      ) : (
        // eslint-disable-next-line jsx-a11y/no-noninteractive-element-interactions -- the handlers only track pointer and focus
        <table
          ref={table}
          className="queue"
          aria-rowcount={total + 1}
          onPointerEnter={hold.point}
          onPointerLeave={hold.leave}
          onFocus={hold.focus}
          onBlur={hold.blur}
        >
          <thead>
            <tr>
              {head("#", "rank", "Changed before chronic, then by impact", "narrow")}
              <th scope="col">Problem</th>
              {head("Since", "since", "When the problem opened")}
              {head("Severity", "cov", "Coefficient of variation, or slowdown; sorted by the coefficient of variation")}
              {head("P50 → P99", "p99", "Median and 99th percentile; sorted by the latter")}
              {head("Rate", "rate", "Requests per second", "number")}
              {head("Impact", "impact", "Time lost per second, over all requests", "number")}
              <th scope="col" title="Progress of the search for the cause">
                Investigation
              </th>
            </tr>
          </thead>
          <VirtualTbody
            count={items.length}
            columns={8}
            estimate={62}
            setView={setView}
            id={(i) => items[i]!.id}
            row={(i, measure) => (
              <Row
                key={items[i]!.id}
                p={items[i]!}
                at={i}
                gone={!present.has(items[i]!.id)}
                first={first.get(items[i]!.leading) ?? 0}
                measure={measure}
              />
            )}
          />
        </table>
      )}
      {list.more && <p className="under">More problems load as you scroll.</p>}
      {dialog && (
        <NoteDialog
          subject={problemSubject(list.items.find((p) => p.id === dialog.problem.id) ?? dialog.problem)}
          note={dialog.note}
          close={() => setDialog(undefined)}
          changed={changed}
        />
      )}
    </>
  );
}

// useHeldRows keeps the order of rows while one is under the pointer or focused, or until release is called.
function useHeldRows(now: Problem[]) {
  const [pointed, setPointed] = useState(false);
  const [focused, setFocused] = useState(false);
  const held = pointed || focused;
  const [before, setBefore] = useState(now);
  const { items, pending } = stableOrder(held ? before : now, now);
  if (items.length !== before.length || items.some((item, i) => item !== before[i])) setBefore(items);
  const hold = {
    point: () => setPointed(true),
    leave: () => setPointed(false),
    focus: (e: FocusEvent) => setFocused(e.target.closest("tbody") !== null),
    blur: () => setFocused(false),
  };
  const release = () => {
    setPointed(false);
    setFocused(false);
  };
  return { items, pending: held ? pending : 0, hold, release };
}

// first is the rank of the first problem in the same place.
type RowProps = { p: Problem; at: number; gone: boolean; first: number; measure: Ref<HTMLTableRowElement> };

const Row = memo(function Row({ p, at, gone, first, measure }: RowProps) {
  return (
    <tr ref={measure} data-index={at} className={`${p.onset}${gone ? " gone" : ""}`} aria-rowindex={at + 2}>
      <td className="narrow number rank">{p.rank}</td>
      <td className="problem">
        <Link href={`/problems/${p.id}`} data-problem={p.id} title={p.why}>
          <Sentence of={p.diagnosis_parts} />
        </Link>
        <div className="where">
          <ProblemTags onset={p.onset} kind={p.kind} />
          <NoteTags of={p.notes} />
          <span className="dim" title={`Request type ${p.request_type_name}`}>
            {p.level === "group" ? `one group of ${p.request_type_name}` : p.request_type_name}
            {first > 0 && first < p.rank && `, in the same place as #${first}`}
          </span>
        </div>
      </td>
      <td data-label="Since" className="nowrap">
        {p.since ? <When at={p.since} brief /> : <span className="dim">chronic</span>}
      </td>
      <td data-label="Severity">
        <Severity p={p} />
      </td>
      <td data-label="P50 → P99" className="nowrap">
        <span>
          {duration(p.p50_ns)} → <strong>{duration(p.p99_ns)}</strong>
          <Sparkline
            of={p.trend_ns}
            label={`Mean over time, from ${duration(p.trend_ns[0])} to ${duration(p.trend_ns.at(-1))}`}
          />
        </span>
      </td>
      <td data-label="Rate" className="number nowrap">
        {rate(p.rate)}
      </td>
      <td data-label="Impact" className="number nowrap">
        {lost(p.impact)}
      </td>
      <td data-label="Investigation">{gone ? <StateBadge of="unlisted" /> : <Investigation p={p} />}</td>
    </tr>
  );
});

// Investigation shows how far the search for the cause of p is, or why there is none.
function Investigation({ p }: { p: Problem }) {
  if (isInIncident(p))
    return (
      <Link href={`/incidents/${p.incident}`} title={definitions.joined}>
        in an incident
      </Link>
    );
  if (isUnsearched(p))
    return (
      <span className="dim" title="Sibyl searches for added latency; these requests are no slower">
        not searched
      </span>
    );
  return <StateBadge of={p.state} />;
}

// Severity shows the measure that makes it a problem: slowdown, call flow or coefficient of variation.
function Severity({ p }: { p: Problem }) {
  if (p.kind !== "variable" && p.expected_ns) {
    return (
      <span title={`${duration(p.mean_ns)} on average, ${duration(p.expected_ns)} expected`}>
        {factor(p.mean_ns / p.expected_ns)} <span className="dim small range">{duration(p.expected_ns)} expected</span>
      </span>
    );
  }
  if (p.kind === "shifted") return <span>{kindLabels.shifted}</span>;
  return (
    <span title="Coefficient of variation with its 95 % interval">
      CoV {ratio(p.cov.value)} <span className="dim small range">{range(p.cov, ratio)}</span>
    </span>
  );
}

function NoProblems({ filtered, learning }: { filtered: boolean; learning: boolean }) {
  if (filtered) return <Empty title="No matching problems">Remove a filter to see more.</Empty>;
  if (learning)
    return (
      <Empty title="No problems yet">
        Sibyl is learning normal behaviour. Problems appear here when requests deviate from it.
      </Empty>
    );
  return (
    <Empty title="No problems">
      All requests behave as expected. See also: <Link href="/trees">calling contexts</Link>,{" "}
      <Link href="/services">services</Link>.
    </Empty>
  );
}
