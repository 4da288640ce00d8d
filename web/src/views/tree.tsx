// Tree: the calling contexts of a request type with their tracepoints, the matches of its problem, and the tracepoints
// to try next.
import { useEffect, useEffectEvent, useMemo, useState } from "react";
import { Link } from "wouter";
import { type Answer, type Schemas, client } from "../api/client.ts";
import { useIncident, useResource } from "../api/queries.ts";
import { bytes, count, digits, duration, percent, share, abbreviate } from "../logic/format.ts";
import { spanName } from "../logic/waits.ts";
import { initiallyFolded, visible } from "../logic/tree.ts";
import { useKeys } from "../use-keys.ts";
import { When, useTitle } from "../components/basics.tsx";
import { Search, Select } from "../components/controls.tsx";
import { OpName } from "../components/names.tsx";
import { Figure } from "../components/figure.tsx";
import { outlineImage } from "../components/export-image.ts";
import { Empty, Async } from "../components/async-state.tsx";
import { VirtualList, indent } from "../components/virtual-list.tsx";
import { StateBadge } from "../components/badges.tsx";
import { toggled, useID, useEnum, useQuery, useSet, useSearchText } from "../url.ts";
import { TracepointOverride } from "./override.tsx";

type Node = Schemas["TreeNode"];
type Match = Schemas["Match"];
type Tree = { name: string; nodes: Node[]; matches: Match[] };

const pageSize = 1000;
const initialDepth = 4; // levels expanded at first
const maxIndent = 40; // levels
const maxServiceLength = 28; // characters
const states = ["", "on", "pending", "off", "forbidden", "baseline"] as const;

// readTree reads all pages of a tree. It starts over if the tree changes meanwhile.
async function readTree(id: string, problem: string, signal: AbortSignal): Answer<Tree> {
  let nodes: Node[] = [];
  for (let cursor = "", version = ""; ;) {
    const query = { limit: pageSize, ...(cursor && { cursor }), ...(problem && { problem }) };
    const { data: got, ...rest } = await client.GET("/trees/{request_type}", {
      params: { path: { request_type: id }, query },
      signal,
    });
    if (!got) return rest;
    const changed = version !== "" && got.version !== version;
    nodes = changed ? [] : [...nodes, ...got.items];
    if (!changed && got.next_cursor === null)
      return { data: { name: got.request_type_name, nodes, matches: got.matches }, ...rest };
    cursor = changed ? "" : got.next_cursor!;
    version = changed ? "" : got.version;
  }
}

export default function TreeView({ id }: { id: string }) {
  const [problem] = useID("problem");
  const resource = useResource(`tree ${id} ${problem}`, (signal) => readTree(id, problem, signal), "decision");
  const { value: tree, failure, reload } = resource;
  useTitle(tree ? `Tree of ${tree.name}` : "Tree");
  const investigation = useInvestigation(problem || null);
  if (failure?.status === 404)
    return (
      <Empty page title="Tree not found">
        Sibyl may not have seen requests of this type for a long time. <Link href="/trees">All trees</Link>
      </Empty>
    );
  return (
    <Async of={resource} what="the tree">
      {(tree) => (
        <>
          <div className="crumbs">
            <Link href="/trees">Trees</Link> <span aria-hidden="true">›</span> {tree.name}
            {problem && (
              <span>
                investigation of <Link href={`/problems/${problem}`}>a problem</Link>
              </span>
            )}
          </div>
          <h1>Calls of {tree.name}</h1>
          <Contexts
            tree={tree}
            requested={new Set(investigation?.requested.map((r) => r.tracepoint))}
            located={locatedTracepoint(investigation)}
            reload={reload}
          />
        </>
      )}
    </Async>
  );
}

// useProblem reads a problem with its evidence; null: none.
const useProblem = (id: string | null) =>
  useResource(
    id && `problem ${id}`,
    (signal) => client.GET("/problems/{problem}", { params: { path: { problem: id! } }, signal }),
    true,
  );

// useInvestigation returns the investigation of a problem or of the incident that contains it; undefined: neither has
// one.
function useInvestigation(problem: string | null): Schemas["InvestigationDetail"] | undefined {
  const detail = useProblem(problem).value;
  const incident = useIncident((!detail?.investigation && detail?.problem.incident) || null).value;
  return detail?.investigation ?? incident?.investigation;
}

// locatedTracepoint returns the tracepoint that an investigation located; empty if it located none or a baseline span.
function locatedTracepoint(detail: Schemas["InvestigationDetail"] | undefined): string {
  const { state, suspects } = detail?.investigation ?? {};
  return state === "located" || state === "explained" ? (suspects?.[0]?.tracepoint ?? "") : "";
}

type ContextsProps = { tree: Tree; requested: ReadonlySet<string>; located: string; reload: () => void };

function Contexts({ tree, requested, located, reload }: ContextsProps) {
  const { nodes, matches } = tree;
  const [q, setQ] = useSearchText();
  const [state, setState] = useEnum("state", states);
  const [picked, setPicked] = useQuery("node");
  const matched = useMemo(() => matchedNodes(matches.filter(isRelevant)), [matches]);
  const cause = located ? nodes.findIndex((n) => n.tracepoint_name === located) : -1;
  const leading = cause >= 0 ? cause : (matches[0]?.nodes[0]?.index ?? -1);
  // The initial state is computed once, so that updates move nothing under the pointer.
  const initialState = () => ({
    folded: initiallyFolded(
      nodes,
      [...matched.keys(), cause, ...nodes.filter((n) => requested.has(n.tracepoint_name)).map((n) => n.index)],
      initialDepth,
    ),
    leading: nodes[leading]?.context ?? "",
  });
  const [initial, setInitial] = useState(initialState);
  const [foldedSince, setFoldedSince] = useSet("folded");
  const [unfolded, setUnfolded] = useSet("unfolded");
  const folded = useMemo(
    () => new Set([...initial.folded, ...foldedSince].filter((context) => !unfolded.has(context))),
    [initial, foldedSince, unfolded],
  );
  const known = requested.size > 0 || cause >= 0; // the investigation is loaded later than the tree
  const [applied, setApplied] = useState(known);
  if (known && !applied) {
    setApplied(true);
    setInitial(initialState());
  }
  const passes = useMemo(() => {
    if (!q && !state) return undefined;
    const low = q.toLowerCase();
    const text = (n: Node) => `${n.service} ${n.operation} ${spanName(n.operation)} ${n.tracepoint_name}`.toLowerCase();
    return (n: Node) => (!state || n.state === state) && (!low || text(n).includes(low));
  }, [q, state]);
  const rows = useMemo(() => visible(nodes, folded, passes), [nodes, folded, passes]);
  const chosen = picked === "" ? undefined : nodes.find((n) => n.context === picked);
  const at = chosen ? rows.indexOf(chosen.index) : -1;
  const fold = ({ context }: Node, yes: boolean) => {
    setFoldedSince(toggled(foldedSince, context, yes));
    setUnfolded(toggled(unfolded, context, !yes && initial.folded.has(context)));
  };
  const foldChosen = (yes: boolean) => chosen && folds(chosen) && !passes && fold(chosen, yes);
  const focusedRow = () => {
    if (chosen) return at;
    return passes ? -1 : rows.findIndex((i) => nodes[i]!.context === initial.leading);
  };
  const step = (by: number) => {
    // If the selected row is hidden, start from the row that hides it.
    const from = chosen && at < 0 ? rows.findLastIndex((i) => i <= chosen.index) : at;
    const next = rows[Math.max(0, Math.min(rows.length - 1, from + by))];
    if (next !== undefined) setPicked(nodes[next]!.context);
  };
  const contextsAbove = (n: Node) =>
    pathTo(n, nodes)
      .slice(0, -1)
      .map((x) => x.context);
  const unfold = (contexts: string[]) =>
    setUnfolded(new Set([...unfolded, ...contexts.filter((context) => initial.folded.has(context))]));
  // reveal selects a context. If it is hidden, it expands its ancestors and clears the filters.
  const reveal = (n: Node) => {
    setPicked(n.context);
    if (rows.includes(n.index)) return;
    const above = contextsAbove(n);
    setFoldedSince([...foldedSince].filter((context) => !above.includes(context)));
    unfold(above);
    setQ("");
    setState("");
  };
  const showChosen = useEffectEvent(() => {
    if (chosen) unfold(contextsAbove(chosen).filter((context) => !foldedSince.has(context)));
  });
  useEffect(() => showChosen(), []); // the URL may select a context that is collapsed at first
  useKeys({
    j: () => step(1),
    k: () => step(-1),
    ArrowLeft: () => foldChosen(true),
    ArrowRight: () => foldChosen(false),
  });
  return (
    <Figure
      title="Calling contexts"
      hint={`${count(nodes.length)} calling contexts. ◆\u00a0matched to the problem, with its share of the slowdown; ▶\u00a0being tried now or next; ★\u00a0the located tracepoint.`}
      tools={
        <>
          <Search value={q} pick={setQ} label="Search operations ( / )" />
          <Select label="State" value={state} pick={setState} of={states.map((s) => [s, s || "any"])} />
        </>
      }
      table={() => ({
        header: [
          "depth",
          "service",
          "operation",
          "layer",
          "kind",
          "state",
          "tracepoint",
          "hits per request",
          "bytes per hit",
          "CPU per hit (µs)",
          "requests",
        ],
        rows: nodes.map((n) => [
          n.depth,
          n.service,
          n.operation,
          n.layer,
          n.kind,
          n.state,
          n.tracepoint_name,
          n.hits_per_request,
          n.bytes_per_hit,
          n.cost_ns / 1000,
          n.requests,
        ]),
      })}
      tableOnly
      image={() =>
        outlineImage(
          ["Operation", "State", "Hits", "CPU"],
          rows.map((i) => {
            const n = nodes[i]!;
            const marks = [
              matched.has(i) && "◆",
              i === cause && "★ located",
              requested.has(n.tracepoint_name) && "▶ next",
              !passes && folded.has(n.context) && "▸",
            ].filter(Boolean);
            return {
              depth: Math.min(n.depth, maxIndent),
              text: [
                ...marks,
                abbreviate(spanName(n.operation), 70),
                n.service && `· ${abbreviate(n.service, maxServiceLength)}`,
              ].join(" "),
              cells: [n.state, hitsOf(n), cpuOf(n)],
              strong: matched.has(i) || i === cause,
            };
          }),
        )
      }
    >
      <div className="split">
        <div className="tree">
          <VirtualList
            label="Calling contexts"
            count={rows.length}
            height={26}
            focus={{
              id: [chosen?.context ?? initial.leading, q, state].join(" "),
              at: focusedRow(),
            }}
            head={
              <div className="vhead">
                <span>Operation</span>
                <span>State</span>
                <span className="number" title="Hits per request">
                  Hits
                </span>
                <span className="number" title="CPU time per hit">
                  CPU
                </span>
                <span className="number" title="Trace data per hit">
                  Data
                </span>
                <span className="number" title="Mean share of the variance in past investigations">
                  Past
                </span>
              </div>
            }
            row={(i) => {
              const n = nodes[rows[i]!]!;
              return (
                <NodeRow
                  key={n.index}
                  n={n}
                  next={requested.has(n.tracepoint_name)}
                  cause={n.index === cause}
                  match={matched.get(n.index)}
                  folded={folded.has(n.context)}
                  fold={passes ? undefined : (yes) => fold(n, yes)}
                  selected={n.context === picked}
                  pick={() => setPicked(n.context)}
                />
              );
            }}
          />
        </div>
        <aside className="side">
          {chosen ? (
            <NodeDetails n={chosen} nodes={nodes} match={matched.get(chosen.index)} reload={reload} />
          ) : (
            <Matches tree={tree} pick={reveal} />
          )}
        </aside>
      </div>
    </Figure>
  );
}

const folds = (n: Node) => n.end > n.index + 1;

// pathTo returns the nodes from the root to n, inclusive.
function pathTo(n: Node, nodes: Node[]): Node[] {
  const path: Node[] = [];
  for (let at: Node | undefined = n; at; at = nodes[at.parent]) path.unshift(at);
  return path;
}

const minShare = 0.01; // share of the slowdown from which a match is shown; the first one always is

const isRelevant = (m: Match, i: number) => i === 0 || (m.score ?? 0) >= minShare;

function matchedNodes(matches: Match[]): Map<number, Match> {
  const found = new Map<number, Match>();
  for (const match of [...matches].reverse()) for (const node of match.nodes) found.set(node.index, match);
  return found;
}

const hitsOf = (n: Node) => (n.hits_per_request === null ? "–" : `${digits(n.hits_per_request)}×`);
const cpuOf = (n: Node) => (n.cost_ns ? duration(n.cost_ns) : "–");

type NodeRowProps = {
  n: Node;
  match: Match | undefined;
  next: boolean;
  cause: boolean;
  folded: boolean;
  fold: ((yes: boolean) => void) | undefined;
  selected: boolean;
  pick: () => void;
};

function NodeRow({ n, match, next, cause, folded, fold, selected, pick }: NodeRowProps) {
  return (
    // eslint-disable-next-line jsx-a11y/click-events-have-key-events, jsx-a11y/no-static-element-interactions -- j and k select rows
    <div
      className={`vrow${match ? " matched" : ""}${next ? " next" : ""}${cause ? " cause" : ""}${selected ? " selected" : ""}`}
      onClick={pick}
    >
      <div className="vname" style={indent(Math.min(n.depth, maxIndent))}>
        {fold && folds(n) ? (
          <button
            type="button"
            className="fold"
            aria-expanded={!folded}
            aria-label={`${folded ? "Expand" : "Collapse"} ${n.operation}`}
            onClick={(e) => (e.stopPropagation(), fold(!folded))}
          >
            {folded ? "▸" : "▾"}
          </button>
        ) : (
          <span className="fold" />
        )}
        <span title={`${spanName(n.operation)}, ${n.service} (${n.layer}, ${n.kind})`}>
          {match && (
            <span aria-label={`matched to the problem: ${share(match.score)} of the slowdown`}>
              ◆ {percent(Math.min(1, match.score ?? 0))}{" "}
            </span>
          )}
          {cause && <strong>★ located </strong>}
          {next && <span aria-label="being tried now or next">▶ </span>}
          {spanName(n.operation)} <span className="dim">{abbreviate(n.service, maxServiceLength)}</span>
          {n.layer !== "app" && <span className="dim"> · {n.layer}</span>}
        </span>
      </div>
      <span>
        <StateBadge of={n.state} />
      </span>
      <span className="number">{hitsOf(n)}</span>
      <span className="number">{cpuOf(n)}</span>
      <span className="number">{n.bytes_per_hit ? bytes(n.bytes_per_hit) : "–"}</span>
      <span className="number">{n.history_investigations ? percent(n.history) : "–"}</span>
    </div>
  );
}

// Matches lists the contexts matched to the problem's edges, with their edit distances.
function Matches({ tree, pick }: { tree: Tree; pick: (n: Node) => void }) {
  const shown = tree.matches.filter(isRelevant);
  const problem = tree.matches[0]?.problem;
  const resource = useProblem(problem ?? null);
  const p = resource.value?.problem;
  return (
    <>
      <h2>Matches of the problem</h2>
      {tree.matches.length === 0 ? (
        <p className="dim">These requests have no open problem.</p>
      ) : (
        p && <p className="dim small">{slowdownMeanings[p.share_of]}</p>
      )}
      {shown.map((m) => (
        <div className="match" key={m.place.edge}>
          <OpName>{m.place.label}</OpName>
          <div className="dim">{share(m.score)} of the slowdown</div>
          <div className="small">
            {m.nodes.length === 0 && "no match: Sibyl knows no tracepoint there"}
            {m.nodes.slice(0, 5).map((x) => (
              <div key={x.index}>
                <button
                  type="button"
                  className="link"
                  onClick={() => tree.nodes[x.index] && pick(tree.nodes[x.index]!)}
                >
                  {tree.nodes[x.index]?.service} {tree.nodes[x.index]?.operation}
                </button>{" "}
                <span className="dim">{m.distance === 0 ? "exactly" : `edit distance ${m.distance}`}</span>
              </div>
            ))}
            {m.runners_up.slice(0, 3).map((r) => (
              <div key={r.index} className="dim">
                or {tree.nodes[r.index]?.service} {tree.nodes[r.index]?.operation}, distance {r.distance}
              </div>
            ))}
          </div>
        </div>
      ))}
      {shown.length < tree.matches.length && (
        <p className="dim small match">Each of the others has less than {percent(minShare)}.</p>
      )}
      <p className="dim small">Select a context to see its cost and to switch its tracepoint.</p>
    </>
  );
}

// slowdownMeanings define the slowdown of which the matches have a share.
const slowdownMeanings: Record<Schemas["Problem"]["share_of"], string> = {
  slowdown: "The slowdown is the additional time of these requests compared with before.",
  variance: "The slowdown is the variance.",
  mean: "The slowdown is the mean.",
};

function NodeDetails({
  n,
  nodes,
  match,
  reload,
}: {
  n: Node;
  nodes: Node[];
  match: Match | undefined;
  reload: () => void;
}) {
  return (
    <>
      <h2>
        {n.service} {spanName(n.operation)}
      </h2>
      <dl>
        <dt>State</dt>
        <dd>
          <StateBadge of={n.state} />
        </dd>
        <dt>Layer</dt>
        <dd>
          {n.layer}, {n.kind}
        </dd>
        {n.tracepoint_name && (
          <>
            <dt>Tracepoint</dt>
            <dd className="mono">{n.tracepoint_name}</dd>
          </>
        )}
        <dt>Requests</dt>
        <dd>
          {count(n.requests)} with it enabled{n.errors > 0 && `, ${count(n.errors)} failed`}
        </dd>
        <dt>Seen</dt>
        <dd>
          <When at={n.seen} />
        </dd>
        {match && (
          <>
            <dt>Matched</dt>
            <dd>
              {match.place.label}, {match.distance === 0 ? "exactly" : `edit distance ${match.distance}`}
            </dd>
          </>
        )}
      </dl>
      <p className="small dim path">
        {pathTo(n, nodes)
          .map((w) => `${w.service} ${w.operation}`)
          .join(" → ")}
      </p>
      {n.tracepoint ? (
        <TracepointOverride id={n.tracepoint} changed={reload} />
      ) : (
        <p className="dim small">Part of the baseline: always on.</p>
      )}
    </>
  );
}
