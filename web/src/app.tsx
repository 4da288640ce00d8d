// The application shell: navigation, preferences, connection state and log-in.
import { QueryClientProvider } from "@tanstack/react-query";
import { type ReactNode, Suspense, lazy, useEffect, useRef, useState } from "react";
import { Link, Redirect, Route, Router, Switch, useLocation } from "wouter";
import { base, client, logOut, token, unauthorized } from "./api/client.ts";
import { connect, disconnect, pauseHidden } from "./api/events.ts";
import { queryClient, useConnection, useIncidents, useResource } from "./api/queries.ts";
import { coarseDuration, stateLabel } from "./logic/format.ts";
import { stalledFor } from "./logic/epochs.ts";
import { isMuted } from "./logic/incidents.ts";
import { useKeys } from "./use-keys.ts";
import { ErrorBoundary } from "./components/error-boundary.tsx";
import { Dialog } from "./components/dialog.tsx";
import { Menu } from "./components/menu.tsx";
import { Navigation } from "./components/navigation.tsx";
import { SavedViews } from "./components/saved-views.tsx";
import { Empty, Loading } from "./components/async-state.tsx";
import { Toast, showToast } from "./components/toast.tsx";
import { Tooltip } from "./components/tooltip.tsx";
import { kindLabels, definitions } from "./components/badges.tsx";
import {
  ThemeContext,
  NowContext,
  type Theme,
  useTheme,
  useApplyTheme,
  useClock,
  useNow,
  useZone,
} from "./settings.ts";
import { LogIn } from "./views/login.tsx";
import { Incidents } from "./views/incidents.tsx";

const Incident = lazy(() => import("./views/incident.tsx"));
const Problems = lazy(() => import("./views/problems.tsx"));
const Problem = lazy(() => import("./views/problem.tsx"));
const Trace = lazy(() => import("./views/trace.tsx"));
const Traces = lazy(() => import("./views/traces.tsx"));
const Objectives = lazy(() => import("./views/objectives.tsx"));
const Trees = lazy(() => import("./views/trees.tsx"));
const Tree = lazy(() => import("./views/tree.tsx"));
const Compare = lazy(() => import("./views/compare.tsx"));
const Tracepoints = lazy(() => import("./views/tracepoints.tsx"));
const Status = lazy(() => import("./views/status.tsx"));
const Silences = lazy(() => import("./views/silences.tsx"));
const Audit = lazy(() => import("./views/audit.tsx"));
const Services = lazy(() => import("./views/services.tsx"));
const MapView = lazy(() => import("./views/map.tsx"));
const Service = lazy(() => import("./views/service.tsx"));

const views = [
  ["/", "Incidents"],
  ["/services", "Services"],
  ["/map", "Map"],
  ["/traces", "Traces"],
  ["/problems", "Problems"],
  ["/objectives", "Objectives"],
  ["/status", "Status"],
] as const;

// tools are views that nobody needs to find the cause of an incident.
const tools = [
  ["/trees", "Trees"],
  ["/compare", "Compare"],
  ["/tracepoints", "Tracepoints"],
] as const;

export function App() {
  const [locked, setLocked] = useState(false);
  const [run, setRun] = useState(0); // incremented by each log-in
  const theme = useApplyTheme();
  const now = useClock(10_000);
  useEffect(() => {
    const close = () => setLocked(true);
    unauthorized.addEventListener("unauthorized", close);
    return () => unauthorized.removeEventListener("unauthorized", close);
  }, []);
  useEffect(() => {
    if (locked) return;
    const visible = pauseHidden();
    if (!document.hidden) connect();
    return () => {
      visible();
      disconnect();
    };
  }, [locked, run]);
  const enter = () => {
    setLocked(false);
    setRun(run + 1);
  };
  return (
    <QueryClientProvider client={queryClient}>
      <NowContext value={now}>
        <ThemeContext value={theme}>
          <Router base={base}>{locked ? <LogIn enter={enter} /> : <Frame key={run} />}</Router>
        </ThemeContext>
      </NowContext>
    </QueryClientProvider>
  );
}

// useScrollReset scrolls a new view to its top and focuses it, unless the user went back: the browser then restores the
// scroll position.
function useScrollReset(at: string) {
  const was = useRef(at);
  const path = useRef(location.pathname);
  const back = useRef(false);
  useEffect(() => {
    const popped = () => (back.current = location.pathname !== path.current); // links within a view also fire popstate
    addEventListener("popstate", popped, true);
    return () => removeEventListener("popstate", popped, true);
  }, []);
  useEffect(() => {
    if (was.current !== at && !back.current) {
      scrollTo(0, 0);
      document.getElementById("main")?.focus({ preventScroll: true });
    }
    was.current = at;
    path.current = location.pathname;
    back.current = false;
  }, [at]);
}

function Frame() {
  const [at, go] = useLocation();
  useScrollReset(at);
  const [help, setHelp] = useState(false);
  const connection = useSteadyConnection();
  useKeys({
    "?": () => setHelp(true),
    "/": () => document.querySelector<HTMLInputElement>("[data-search]")?.focus(),
    g: () => go("/"),
    p: () => go("/problems"),
    s: () => go("/services"),
    t: () => go("/traces"),
  });
  return (
    <>
      <a className="skip" href="#main" onClick={(e) => (e.preventDefault(), document.getElementById("main")?.focus())}>
        Skip to content
      </a>
      <header className="top">
        <Link href="/" className="brand">
          Sibyl
        </Link>
        <Navigation
          views={views.map(([path, name]) => ({
            path,
            name,
            current: isCurrent(at, path),
            badge: path === "/" && <OpenCount />,
          }))}
          tools={tools.map(([path, name]) => ({ path, name, current: isCurrent(at, path) }))}
        />
        <LiveIndicator of={connection} />
        <SavedViews />
        <Preferences help={() => setHelp(true)} />
      </header>
      <Banners connection={connection} />
      <main id="main" tabIndex={-1}>
        <ErrorBoundary key={at}>
          <Suspense fallback={<Loading what="the view" />}>
            <Switch>
              <Route path="/">
                <Incidents />
              </Route>
              <Route path="/incidents">
                <Redirect to="/" />
              </Route>
              <Route path="/incidents/:id">{({ id }) => <Incident key={id} id={id} />}</Route>
              <Route path="/problems">
                <Problems />
              </Route>
              <Route path="/problems/:id">{({ id }) => <Problem key={id} id={id} />}</Route>
              <Route path="/traces">
                <Traces />
              </Route>
              <Route path="/traces/:id">{({ id }) => <Trace key={id} id={id} />}</Route>
              <Route path="/objectives">
                <Objectives />
              </Route>
              <Route path="/trees">
                <Trees />
              </Route>
              <Route path="/trees/:id">{({ id }) => <Tree key={id} id={id} />}</Route>
              <Route path="/compare">
                <Compare />
              </Route>
              <Route path="/tracepoints">
                <Tracepoints />
              </Route>
              <Route path="/services">
                <Services />
              </Route>
              <Route path="/services/:id">{({ id }) => <Service key={id} id={id} />}</Route>
              <Route path="/map">
                <MapView />
              </Route>
              <Route path="/status">
                <Status />
              </Route>
              <Route path="/silences">
                <Silences />
              </Route>
              <Route path="/audit">
                <Audit />
              </Route>
              <Route path="/service">
                <Redirect to="/status" />
              </Route>
              <Route>
                <Empty page title="Page not found">
                  The link may come from another version. <Link href="/">All incidents</Link>
                </Empty>
              </Route>
            </Switch>
          </Suspense>
        </ErrorBoundary>
        <Tooltip />
      </main>
      <Toast />
      {help && <Help close={() => setHelp(false)} />}
    </>
  );
}

const isCurrent = (at: string, path: string) =>
  path === "/" ? at === "/" || at.startsWith("/incidents") : at.startsWith(path);

// OpenCount shows the number of open incidents that are not muted, in every view.
function OpenCount() {
  const { value } = useIncidents();
  const n = (value?.items ?? []).filter((x) => x.state === "open" && !isMuted(x)).length;
  if (n === 0) return null;
  return (
    <span className="count" title={`${n} open`}>
      {n} <span className="hidden">open</span>
    </span>
  );
}

const interruption = 3000; // ms; shorter interruptions of the connection are not shown

// useSteadyConnection is useConnection without short interruptions.
function useSteadyConnection() {
  const connection = useConnection();
  const [lasted, setLasted] = useState(connection);
  const [ever, setEver] = useState(connection.live);
  useEffect(() => {
    if (connection.live === lasted.live) return;
    const timer = setTimeout(() => (setLasted(connection), setEver(true)), ever && !connection.live ? interruption : 0);
    return () => clearTimeout(timer);
  }, [connection, lasted, ever]);
  return { ...lasted, ever };
}

// useElapsed returns the ms since a time of the browser's clock, updated every second.
function useElapsed(since: number) {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return Math.max(0, now - since);
}

type SteadyConnection = ReturnType<typeof useSteadyConnection>;

function LiveIndicator({ of: { live, since, ever } }: { of: SteadyConnection }) {
  const elapsed = useElapsed(since);
  const long = !live && elapsed > 4000;
  const offline = ever || long ? "Not live" : "Connecting";
  const state = live ? "Live" : offline; // announced to screen readers, without the duration
  return (
    <span
      className={live ? "live" : "live off"}
      title={live ? "Live: this page updates as events arrive." : "Not receiving events; reconnecting."}
    >
      <span aria-hidden="true">{live ? "●" : "○"}</span> <span role="status">{state}</span>
      {long && ` for ${coarseDuration(elapsed)}`}
    </span>
  );
}

function Preferences({ help }: { help: () => void }) {
  const [theme, setTheme] = useTheme();
  const [zone, setZone] = useZone();
  const [, go] = useLocation();
  const { value: me } = useResource("me", (signal) => client.GET("/me", { signal }));
  const leave = () => void logOut().catch(() => showToast("Sibyl did not answer: you are still logged in."));
  const tenants = (me?.tenants ?? []).map(({ name, path }) => ({
    text: `Tenant ${name}`,
    checked: path === base,
    act: () => location.assign(`${path}/`),
  }));
  const themed = (value: Theme, text: string) => ({ text, checked: theme === value, act: () => setTheme(value) });
  return (
    <Menu
      label="Theme, time, help"
      icon="☰"
      items={[
        themed("system", "System theme"),
        themed("light", "Light"),
        themed("dark", "Dark"),
        null,
        { text: "Local time", checked: zone === "local", act: () => setZone("local") },
        { text: "UTC", checked: zone === "utc", act: () => setZone("utc") },
        null,
        ...(tenants.length > 0 ? [...tenants, null] : []),
        { text: "Keyboard shortcuts and terms", act: help },
        { text: "Silences", act: () => go("/silences") },
        ...(me?.role === "admin" ? [{ text: "Audit log", act: () => go("/audit") }] : []),
        ...(token() || me?.via === "login"
          ? [{ text: me ? `Log out ${me.name} (${me.role})` : "Log out", act: leave }]
          : []),
      ]}
    />
  );
}

const outage = 10_000; // ms without events until a banner says so

// Banners show messages that concern all views.
function Banners({ connection: { live, since, ever } }: { connection: SteadyConnection }) {
  const elapsed = useElapsed(since);
  const now = useNow();
  const { value: status, failure } = useResource("status", (signal) => client.GET("/status", { signal }), true);
  const notices: ReactNode[] = [];
  if (failure && failure.status !== 401)
    notices.push(
      <>
        <strong>{failure.title}.</strong> {failure.detail} This page may be out of date.
      </>,
    );
  else if (ever && !live && elapsed > outage)
    notices.push(
      <>
        <strong>Sibyl is not responding.</strong> The service may have stopped, or the network may be down. This page
        retries automatically. This page may be out of date.
      </>,
    );
  const stalled = live && status?.ready ? stalledFor(status.epoch, now, elapsed) : 0;
  if (stalled > 0)
    notices.push(
      <>
        <strong>No new figures for {coarseDuration(stalled)}.</strong> Sibyl answers, but has not judged anything since
        then: it may be overloaded. See <Link href="/status">its status</Link> and its log.
      </>,
    );
  const [version, setVersion] = useState(status?.version); // that served this page
  if (status && version === undefined) setVersion(status.version);
  if (status && version !== undefined && status.version !== version)
    notices.push(
      <>
        <strong>Sibyl was updated to version {status.version}.</strong> This page is from version {version}.{" "}
        <button type="button" onClick={() => location.reload()}>
          Reload
        </button>
      </>,
    );
  if (status?.leader)
    notices.push(
      <>
        <strong>Standby.</strong> <a href={status.leader}>Another replica</a> leads; this one shows the same, and
        accepts neither traces nor changes.
      </>,
    );
  else if (status && !status.ready)
    notices.push(
      <>
        <strong>Starting.</strong> The journal is being replayed; traces are accepted once that is done.
      </>,
    );
  if (status && status.space !== "enough")
    notices.push(
      <>
        <strong>Traces are refused: the disk or the journal is full.</strong>{" "}
        {status.space === "none"
          ? "Nothing is judged until there is space."
          : "Incidents are missed until there is space."}
      </>,
    );
  if (status?.learning.active) {
    const done = status.learning.progress;
    notices.push(
      <>
        <strong>
          Learning normal behaviour
          {done === null
            ? ""
            : `: ${Math.floor(done * 100)} % done${status.learning.left_ns === undefined ? "" : `, about ${coarseDuration(status.learning.left_ns / 1e6)} left`}`}
          .
        </strong>{" "}
        {done === null
          ? "No requests yet. Learning starts when the service receives traces (OTLP)."
          : "Until then no incidents or problems are reported, and statistics are provisional."}
      </>,
    );
  }
  return notices.map((notice, i) => (
    <p key={i} className="notice" role="status">
      {notice}
    </p>
  ));
}

const keys: [string, string][] = [
  ["j, k", "next, previous row"],
  ["Enter", "open the focused row"],
  ["/", "search"],
  ["g", "all incidents"],
  ["p", "all problems"],
  ["s", "all services"],
  ["t", "search traces"],
  ["a", "acknowledge the incident or problem"],
  ["m", "mute the incident or problem"],
  ["← →", "collapse and expand, in a waterfall or tree"],
  ["?", "show this list"],
  ["Esc", "close a dialog, or leave the search"],
];

// helpTerms are the terms of the problem list that the help explains.
const helpTerms = [
  "changed",
  "chronic",
  "variable",
  "slow",
  "shifted",
  "none",
  "opened",
  "investigating",
  "located",
  "explained",
  "exhausted",
];

function termLabel(name: string): string {
  if (name === "none" || name === "exhausted") return stateLabel(name);
  return name in kindLabels ? kindLabels[name as keyof typeof kindLabels] : name;
}

function Help({ close }: { close: () => void }) {
  return (
    <Dialog title="Keyboard shortcuts and terms" close={close} wide>
      <div className="help">
        <section>
          <h3>Keyboard shortcuts</h3>
          <dl className="keys">
            {keys.map(([key, does]) => (
              <div key={key}>
                <dt>
                  <kbd>{key}</kbd>
                </dt>
                <dd>{does}</dd>
              </div>
            ))}
          </dl>
        </section>
        <section>
          <h3>Problem terms</h3>
          <dl className="keys">
            {helpTerms.map((name) => (
              <div key={name}>
                <dt>{termLabel(name)}</dt>
                <dd>{definitions[name]}</dd>
              </div>
            ))}
          </dl>
        </section>
      </div>
    </Dialog>
  );
}
