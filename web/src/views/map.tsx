// Map: the services and the calls between them, with their state and their share of the slowdown.
import {
  type KeyboardEvent,
  type ReactNode,
  startTransition,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "react";
import { Link } from "wouter";
import { type Schemas, client } from "../api/client.ts";
import { useResource } from "../api/queries.ts";
import { useSize } from "../charts/use-size.ts";
import { abbreviate, count, milli, percent, rate, stateLabel } from "../logic/format.ts";
import {
  type Edge,
  type Layout,
  type Scope,
  isCrowded,
  layoutOf,
  shareOf,
  shownOf,
  widthOf,
} from "../logic/service-map.ts";
import { failsNotably, figuresOf, isNotable, isUnwell, servicePath, summary } from "../logic/services.ts";
import { Async, Empty } from "../components/async-state.tsx";
import { When, useTitle } from "../components/basics.tsx";
import { Choice, More, Search } from "../components/controls.tsx";
import { Figure } from "../components/figure.tsx";
import { RangeSelect, useRange } from "../components/range.tsx";
import { Silence } from "../components/silence.tsx";
import { Table } from "../components/table.tsx";
import { useEnum, useQuery, useSearchText } from "../url.ts";
import { Beside, CallCells, LoadFigure, ServiceBadge, callColumns } from "./services.tsx";
import { Name } from "../components/names.tsx";

type ServiceMap = Schemas["ServiceMap"];
type Service = Schemas["Service"];
type Call = Schemas["ServiceCall"];

export default function MapView() {
  useTitle("Map");
  const [range, setRange] = useRange();
  const parameters = range.live ? {} : { to: new Date(range.to).toISOString() };
  const resource = useResource(
    `service map ${JSON.stringify(parameters)}`,
    (signal) => client.GET("/service-map", { params: { query: parameters }, signal }),
    "incident",
  );
  return (
    <>
      {range.live && <Silence effect="recent figures drop" />}
      <Async of={resource} what="the map">
        {(map) =>
          map.services.length === 0 ? (
            <Empty page title="No services yet">
              Services appear once their spans arrive (OTLP) and the first ten-second epoch ends.
            </Empty>
          ) : (
            <Content map={map} range={<RangeSelect value={range} pick={setRange} />} />
          )
        }
      </Async>
    </>
  );
}

function Content({ map, range }: { map: ServiceMap; range: ReactNode }) {
  const [scope, setScope] = useEnum<Scope>("scope", ["auto", "all", "unwell", "near"]);
  const [selected, setSelected] = useQuery("service");
  const [q, setQ] = useSearchText();
  const shown = useMemo(() => shownOf(map.services, map.calls, scope, selected), [map, scope, selected]);
  const services = useMemo(() => map.services.filter((s) => shown.names.has(s.service)), [map, shown]);
  const calls = useMemo(
    () => map.calls.filter((c) => shown.names.has(c.caller) && shown.names.has(c.callee) && c.caller !== c.callee),
    [map, shown],
  );
  const counts: Record<string, number> = {};
  for (const s of map.services) counts[s.state] = (counts[s.state] ?? 0) + 1;
  const unwell = map.services.some((s) => isUnwell(s.state));
  const chosen = map.services.find((s) => s.service === selected);
  const pick = (name: string) => setSelected(name === selected ? "" : name);
  return (
    <>
      <div className="toolbar">
        <h1>Map</h1>
        <Search value={q} pick={setQ} label="Find a service ( / )" />
        {range}
        <Choice
          label="Services shown"
          value={shown.as}
          pick={setScope}
          of={[
            ["all", "All"],
            ...(unwell || shown.as === "unwell" ? [["unwell", "Not well"] as const] : []),
            ...(chosen ? [["near", `Near ${abbreviate(selected, 24)}`] as const] : []),
          ]}
        />
      </div>
      <p className="under">
        <span role="status">
          {count(services.length)} of {count(map.services.length)} services shown; {summary(counts)}
        </span>
        <span>
          in the ten minutes to <When at={map.to} />
        </span>
      </p>
      <div className="map-columns">
        <Figure
          title="Calls between services"
          hint="Callers are on the left. Arrow keys move between boxes."
          table={() => ({
            header: [
              "service",
              "state",
              "rate (1/s)",
              "failed (of 1)",
              "P50 (ms)",
              "P99 (ms)",
              "share of the slowdown (of 1)",
            ],
            rows: services.map((s) => [
              s.service,
              s.state,
              s.now.rate,
              s.now.failed,
              milli(s.now.p50_ns),
              milli(s.now.p99_ns),
              shareOf(s),
            ]),
          })}
          image
        >
          <Diagram
            recent={Date.parse(map.to) - recently}
            services={services}
            calls={calls}
            selected={selected}
            pick={pick}
            q={q}
          />
        </Figure>
        <div>
          {chosen && <Chosen of={chosen} calls={map.calls} pick={pick} />}
          <CallTable calls={calls} selected={selected} />
        </div>
      </div>
    </>
  );
}

// Sizes in px. Widths have a range.
const box = { width: [132, 168], height: 44, low: 24 } as const; // low: of many services
const gap = { x: [36, 180], y: 14, low: 6 } as const;
const margin = 10;
const perCharacter = 7.4; // of a name
const padding = 9; // of a box

// sizesFor returns the width of boxes and the distance between columns, in px, with which these fit into a width if they
// can.
function sizesFor(columns: number, width: number): Sizes {
  const within = (x: number, [least, most]: readonly [number, number]) => Math.max(least, Math.min(most, x));
  const room = width - 2 * margin;
  const boxX = Math.floor(within((room - (columns - 1) * gap.x[0]) / Math.max(1, columns), box.width));
  return { boxX, gapX: within((room - columns * boxX) / Math.max(1, columns - 1), gap.x) };
}

type Sizes = { boxX: number; gapX: number };

// useLayout computes the layout after the page was drawn, and again only if services or calls appear or vanish.
function useLayout(services: Service[], calls: Call[]): Layout | undefined {
  const graph = JSON.stringify([services.map((s) => s.service).sort(), calls.map((c) => [c.caller, c.callee]).sort()]);
  const [done, setDone] = useState<{ graph: string; layout: Layout }>();
  useEffect(() => {
    const timer = setTimeout(() => {
      const [names, edges] = JSON.parse(graph) as [string[], Edge[]];
      const layout = layoutOf(names, edges);
      startTransition(() => setDone({ graph, layout }));
    });
    return () => clearTimeout(timer);
  }, [graph]);
  return done?.layout;
}

const recently = 3_600_000; // ms; later deploys are marked

type DiagramProps = {
  recent: number; // ms; deploys since then are marked
  services: Service[];
  calls: Call[];
  selected: string;
  pick: (name: string) => void;
  q: string;
};

function Diagram(props: DiagramProps) {
  const layout = useLayout(props.services, props.calls);
  const [room, { width }] = useSize<HTMLDivElement>({ width: 0, height: 0 });
  return (
    <div ref={room}>
      {layout ? (
        <Drawing {...props} layout={layout} {...sizesFor(layout.columns, width)} />
      ) : (
        <p className="state">Arranging {count(props.services.length)} services …</p>
      )}
    </div>
  );
}

type DrawingProps = DiagramProps & Sizes & { layout: Layout };

function Drawing({ recent, services, calls, selected, pick, q, layout, boxX, gapX }: DrawingProps) {
  const crowded = isCrowded(services.length);
  const [boxY, gapY] = crowded ? [box.low, gap.low] : [box.height, gap.y];
  const [pointed, setPointed] = useState("");
  const svg = useRef<SVGSVGElement>(null);
  const placed = services.filter((s) => layout.spots.has(s.service));
  const x = (name: string) => margin + layout.spots.get(name)!.column * (boxX + gapX);
  const top = (row: number) => margin + row * (boxY + gapY);
  const y = (name: string) => top(layout.spots.get(name)!.row);
  const drawn = 2 * margin + layout.columns * (boxX + gapX) - gapX;
  const height = 2 * margin + layout.rows * (boxY + gapY) - gapY;
  const longestName = Math.floor((boxX - 2 * padding) / perCharacter); // characters
  const most = Math.max(1e-9, ...calls.map((c) => c.now.rate));
  const focus = pointed || selected;
  const near = new Set(calls.flatMap((c) => (c.caller === focus || c.callee === focus ? [c.caller, c.callee] : [])));
  const found = (name: string) => q === "" || name.toLowerCase().includes(q.toLowerCase());
  const faint = (name: string) => (focus !== "" && name !== focus && !near.has(name)) || !found(name);
  const suspect = placed.find((s) => s.state === "incident")?.service;
  const middle = suspect === undefined ? undefined : x(suspect) + boxX / 2;
  useLayoutEffect(() => {
    const view = svg.current!.parentElement!; // on a phone, the suspect is out of view at first
    if (middle !== undefined) view.scrollLeft = middle - view.clientWidth / 2;
  }, [middle]);
  const isNew = (s: Service) => s.deploy !== null && Date.parse(s.deploy.at) >= recent;
  const move = (event: KeyboardEvent, name: string) => {
    const to = neighbour(layout, name, event.key);
    if (to === undefined) return;
    event.preventDefault();
    svg.current?.querySelector<SVGElement>(`[data-service="${CSS.escape(to)}"]`)?.focus();
  };
  const marks: Marks = {
    unwell: placed.some((s) => isUnwell(s.state)),
    deploys: placed.some(isNew),
    shares: placed.some((s) => shareOf(s) !== null),
    bad: calls.some(isBad),
    back: calls.some((c) => layout.spots.has(c.caller) && layout.spots.has(c.callee) && x(c.callee) <= x(c.caller)),
    figures: !crowded,
  };
  return (
    <>
      <div className="scroll map" role="group" aria-label="Map of services" tabIndex={0}>
        <svg
          ref={svg}
          width={drawn}
          height={height}
          viewBox={`0 0 ${drawn} ${height}`}
          className={crowded && focus === "" ? "crowded" : undefined}
        >
          {calls
            .filter((c) => layout.spots.has(c.caller) && layout.spots.has(c.callee))
            .map((c) => (
              <CallLine
                key={`${c.caller}\n${c.callee}`}
                of={c}
                from={[x(c.caller), y(c.caller)]}
                to={[x(c.callee), y(c.callee)]}
                lanes={lanesOf(layout, c).map(top)}
                boxX={boxX}
                boxY={boxY}
                gapX={gapX}
                most={most}
                faint={focus !== "" && c.caller !== focus && c.callee !== focus}
              />
            ))}
          {placed.map((s) => (
            <g
              key={s.service}
              role="button"
              tabIndex={0}
              data-service={s.service}
              aria-pressed={s.service === selected}
              className={`spot state-${s.state}${faint(s.service) ? " faint" : ""}${s.service === selected ? " selected" : ""}`}
              transform={`translate(${x(s.service)} ${y(s.service)})`}
              data-tip={`${s.service}\n${figuresOf(s, Infinity)}\n${describe(s, isNew(s))}`}
              onPointerEnter={() => setPointed(s.service)}
              onPointerLeave={() => setPointed("")}
              onFocus={() => setPointed(s.service)}
              onBlur={() => setPointed("")}
              onClick={() => pick(s.service)}
              onKeyDown={(e) => {
                if (e.key === "Enter" || e.key === " ") {
                  e.preventDefault();
                  pick(s.service);
                } else move(e, s.service);
              }}
            >
              <desc>{describe(s, isNew(s))}</desc>
              <rect width={boxX} height={boxY} rx="6" className="body" />
              {shareOf(s) !== null && (
                <rect className="share" x="1" y={boxY - 5} height="4" width={(boxX - 2) * shareOf(s)!} rx="2" />
              )}
              {isNew(s) && <path className="mark-annotation" d={`M${boxX - 14} -5 l5 8 h-10 z`} />}
              <text x={padding} y={crowded ? 16 : 17} className="spot-name">
                {isUnwell(s.state) && "▲ "}
                {abbreviate(s.service, isUnwell(s.state) ? longestName - 2 : longestName)}
              </text>
              {!crowded && (
                <text x={padding} y="33" className="figures">
                  {figuresOf(s, longestName + 3)}
                </text>
              )}
            </g>
          ))}
        </svg>
      </div>
      <MapLegend of={marks} />
    </>
  );
}

// Marks are those that a map shows, besides boxes and lines.
type Marks = { unwell: boolean; deploys: boolean; shares: boolean; bad: boolean; back: boolean; figures: boolean };

// MapLegend explains the marks of a map.
function MapLegend({ of: marks }: { of: Marks }) {
  return (
    <ul className="legend plain" aria-label="Legend">
      {marks.unwell && (
        <li>
          <svg className="key spot state-failing" width="34" height="16" aria-hidden="true">
            <rect className="body" x="2" y="2" width="30" height="12" rx="3" />
          </svg>
          ▲ in a box: a service that is not well
        </li>
      )}
      {marks.deploys && (
        <li>
          <svg className="key" width="14" height="16" aria-hidden="true">
            <path className="mark-annotation" d="M7 4 l5 8 h-10 z" />
          </svg>
          on a box: deployed in the last hour
        </li>
      )}
      {marks.shares && (
        <li>
          <svg className="key spot" width="34" height="16" aria-hidden="true">
            <rect className="body" x="1" y="1" width="32" height="14" rx="3" />
            <rect className="share" x="2" y="10.5" width="20" height="4" rx="2" />
          </svg>
          share of the slowdown of an open incident
        </li>
      )}
      {marks.figures && <li>text: rate, failures, and P50, or P99 if only that is longer than usual</li>}
      <li>
        <svg className="key call" width="34" height="16" aria-hidden="true">
          <path d="M0 8 H15" strokeWidth={widthOf(0, 1)} />
          <path d="M19 8 H34" strokeWidth={widthOf(1, 1)} />
        </svg>
        few to many calls
      </li>
      {marks.back && (
        <li>
          <svg className="key call back" width="34" height="16" aria-hidden="true">
            <path d="M0 8 H34" strokeWidth="2" />
          </svg>
          calls that lead back to the left
        </li>
      )}
      {marks.bad && (
        <li>
          <svg className="key call bad" width="34" height="16" aria-hidden="true">
            <path d="M0 8 H34" strokeWidth="3" />
            <text x="17" y="12" textAnchor="middle">
              ▲
            </text>
          </svg>
          calls that fail more often, or take longer between the two services, than usual
        </li>
      )}
    </ul>
  );
}

// lanesOf returns the rows of the lanes that the line of a call passes, from the caller to the callee.
function lanesOf({ spots, lanes }: Layout, { caller, callee }: Call): number[] {
  const [from, to] = [spots.get(caller)!.column, spots.get(callee)!.column];
  const step = Math.sign(to - from);
  const rows: number[] = [];
  for (let at = from + step; at * step < to * step; at += step) {
    const row = lanes.get(callee)?.get(at);
    if (row !== undefined) rows.push(row);
  }
  return rows;
}

const describe = (s: Service, isNew: boolean) =>
  [
    stateLabel(s.state),
    ...(isNew ? [`deployed ${s.deploy!.version}`] : []),
    ...(shareOf(s) === null ? [] : [`${percent(shareOf(s))} of the slowdown`]),
  ].join(", ");

// neighbour returns the service that an arrow key leads to: the next in the column, or the nearest in the next column.
function neighbour({ spots }: Layout, from: string, key: string): string | undefined {
  const at = spots.get(from);
  if (!at) return undefined;
  const [dx, dy] =
    { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key] ?? ([0, 0] as const);
  if (dx === 0 && dy === 0) return undefined;
  let best: string | undefined;
  let least = Infinity;
  for (const [name, s] of spots) {
    const [columns, rows] = [s.column - at.column, s.row - at.row];
    if (dx !== 0 ? columns !== dx : columns !== 0 || rows * dy! <= 0) continue;
    const distance = Math.abs(rows);
    if (distance < least) [best, least] = [name, distance];
  }
  return best;
}

type LineProps = {
  of: Call;
  from: [number, number];
  to: [number, number];
  lanes: number[]; // y in each column between the two
  boxX: number;
  boxY: number;
  gapX: number;
  most: number;
  faint: boolean;
};

function CallLine({ of: c, from, to, lanes, boxX, boxY, gapX, most, faint }: LineProps) {
  const back = to[0] <= from[0];
  const step = back ? -1 : 1;
  const middle = boxY / 2;
  let [x, y] = [from[0] + (back ? 0 : boxX), from[1] + middle];
  const [endX, endY] = [to[0] + (back ? boxX : 0), to[1] + middle];
  let path = `M${x} ${y}`;
  const curve = (toX: number, toY: number) => {
    const bend = Math.max(20, Math.abs(toX - x) / 2) * step;
    path += ` C${x + bend} ${y} ${toX - bend} ${toY} ${toX} ${toY}`;
    [x, y] = [toX, toY];
  };
  for (const lane of lanes) {
    curve(x + step * gapX, lane);
    x += step * boxX;
    path += ` H${x}`;
  }
  const before = y; // the last curve
  curve(endX - 4 * step, endY);
  const bad = isBad(c);
  const left = 0.22; // of the last curve, where the mark is
  const kind = `${bad ? "bad" : ""}${back ? " back" : ""}`;
  return (
    <g className={`call ${kind}${faint ? " faint" : ""}`} aria-hidden="true">
      <path d={path} strokeWidth={widthOf(c.now.rate, most)} />
      {bad && (
        <text x={endX - step * left * gapX} y={endY - 0.45 * left * (endY - before) + 4} textAnchor="middle">
          ▲
        </text>
      )}
    </g>
  );
}

const isBad = (c: Call) => failsNotably(c.now, c.usual) || isNotable(c.now.own_ns, c.usual?.own_ns);

// Chosen shows the selected service.
function Chosen({ of: s, calls, pick }: { of: Service; calls: Call[]; pick: (name: string) => void }) {
  const callers = calls.filter((c) => c.callee === s.service).length;
  const callees = calls.filter((c) => c.caller === s.service).length;
  return (
    <section className="figure" aria-label={`Selected: ${s.service}`}>
      <header>
        <h2>
          <Link href={servicePath(s.service, s.id)}>
            <Name>{s.service}</Name>
          </Link>
        </h2>
        <button type="button" onClick={() => pick(s.service)}>
          Deselect
        </button>
      </header>
      <p>
        <ServiceBadge of={s} /> {s.reason}
      </p>
      <dl className="facts">
        <div>
          <dt>Rate</dt>
          <dd>
            <Beside now={rate(s.now.rate)} usual={s.usual && rate(s.usual.rate)} notable={s.state === "silent"} />
          </dd>
        </div>
        <div>
          <dt>Errors</dt>
          <dd>
            <LoadFigure of={s} figure="failed" />
          </dd>
        </div>
        <div>
          <dt>P50</dt>
          <dd>
            <LoadFigure of={s} figure="p50_ns" />
          </dd>
        </div>
        <div>
          <dt>P99</dt>
          <dd>
            <LoadFigure of={s} figure="p99_ns" />
          </dd>
        </div>
        {shareOf(s) !== null && (
          <div>
            <dt>Share of the slowdown</dt>
            <dd>{percent(shareOf(s))}</dd>
          </div>
        )}
      </dl>
      <p className="under">
        Called by {count(callers)}, calls {count(callees)}{" "}
        <Link href={servicePath(s.service, s.id)}>Operations, instances, deploys</Link>
      </p>
    </section>
  );
}

const few = 30; // calls in the table at first

// CallTable lists the calls: those that are not as usual first, then by rate.
function CallTable({ calls, selected }: { calls: Call[]; selected: string }) {
  const [listed, setListed] = useEnum("calls", ["few", "all"]);
  const all = listed === "all";
  const rows = calls
    .filter((c) => selected === "" || c.caller === selected || c.callee === selected)
    .sort((a, b) => Number(isBad(b)) - Number(isBad(a)) || b.now.rate - a.now.rate);
  return (
    <Figure
      title={selected ? "Its calls" : "Calls"}
      hint="Usual values are in small print. ▲ marks values clearly above usual."
      table={() => ({
        header: [
          "caller",
          "callee",
          "rate (1/s)",
          "usual rate (1/s)",
          "failed (of 1)",
          "time between them (ms)",
          "usual time between them (ms)",
        ],
        rows: rows.map((c) => [
          c.caller,
          c.callee,
          c.now.rate,
          c.usual?.rate ?? null,
          c.now.failed,
          milli(c.now.own_ns),
          milli(c.usual?.own_ns),
        ]),
      })}
      tableOnly
    >
      <Table label="Calls" className="results" head={["Caller → callee", ...callColumns]}>
        {rows.slice(0, all ? rows.length : few).map((c) => (
          <tr key={`${c.caller}\n${c.callee}`}>
            <td className="mono">
              <bdi>{c.caller}</bdi> → <bdi>{c.callee}</bdi>
            </td>
            <CallCells of={c} />
          </tr>
        ))}
      </Table>
      {rows.length === 0 && <p className="dim">No calls between these services.</p>}
      <More rest={rows.length - few} shown={all} toggle={() => setListed(all ? "few" : "all")} />
    </Figure>
  );
}
