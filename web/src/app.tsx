// The frame around all views: where one can go, how the page looks, whether it is live, and who may see it.
import { QueryClientProvider } from "@tanstack/react-query";
import { type ReactNode, Suspense, lazy, useEffect, useRef, useState } from "react";
import { Link, Redirect, Route, Router, Switch, useLocation } from "wouter";
import { base, client, storeToken, requireLogin, token, unauthorized } from "./api/client.ts";
import { connect, disconnect } from "./api/events.ts";
import { queryClient, useConnection, useResource } from "./api/queries.ts";
import { coarseDuration } from "./lib/format.ts";
import { useKeys } from "./use-keys.ts";
import { ErrorBoundary } from "./components/error-boundary.tsx";
import { Dialog } from "./components/dialog.tsx";
import { Menu } from "./components/menu.tsx";
import { Empty, Loading } from "./components/async-state.tsx";
import { Toast } from "./components/toast.tsx";
import { kindLabels, definitions } from "./components/badges.tsx";
import {
  ThemeContext,
  NowContext,
  type Theme,
  useNow,
  useTheme,
  useApplyTheme,
  useClock,
  useZone,
} from "./settings.ts";
import { LogIn } from "./views/login.tsx";
import { Problems } from "./views/problems.tsx";

const Problem = lazy(() => import("./views/problem.tsx"));
const Trace = lazy(() => import("./views/trace.tsx"));
const Trees = lazy(() => import("./views/trees.tsx"));
const Tree = lazy(() => import("./views/tree.tsx"));
const Compare = lazy(() => import("./views/compare.tsx"));
const Tracepoints = lazy(() => import("./views/tracepoints.tsx"));
const Service = lazy(() => import("./views/service.tsx"));

const views = [
  ["/", "Problems"],
  ["/trees", "Trees"],
  ["/compare", "Compare"],
  ["/tracepoints", "Tracepoints"],
  ["/service", "Service"],
] as const;

export function App() {
  const [locked, setLocked] = useState(false);
  const [run, setRun] = useState(0); // a new one begins with each log-in
  const theme = useApplyTheme();
  const now = useClock(10_000);
  useEffect(() => {
    const close = () => setLocked(true);
    unauthorized.addEventListener("unauthorized", close);
    return () => unauthorized.removeEventListener("unauthorized", close);
  }, []);
  useEffect(() => {
    if (locked) return;
    connect();
    return disconnect;
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

// useArrival begins a view where it begins, for eyes and for screen readers. Going back leads to where one was, which the browser knows.
function useScrollReset(at: string) {
  const was = useRef(at);
  const path = useRef(location.pathname);
  const back = useRef(false);
  useEffect(() => {
    const popped = () => (back.current = location.pathname !== path.current); // links within a view pop, too
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
  });
  return (
    <>
      <a className="skip" href="#main" onClick={(e) => (e.preventDefault(), document.getElementById("main")?.focus())}>
        To the content
      </a>
      <header className="top">
        <Link href="/" className="brand">
          Sibyl
        </Link>
        <nav aria-label="Views">
          {views.map(([path, name]) => (
            <Link key={path} href={path} aria-current={isCurrent(at, path) ? "page" : undefined}>
              {name}
            </Link>
          ))}
        </nav>
        <LiveIndicator of={connection} />
        <Preferences help={() => setHelp(true)} />
      </header>
      <Banners connection={connection} />
      <main id="main" tabIndex={-1}>
        <ErrorBoundary key={at}>
          <Suspense fallback={<Loading what="the view" />}>
            <Switch>
              <Route path="/">
                <Problems />
              </Route>
              <Route path="/problems">
                <Redirect to="/" />
              </Route>
              <Route path="/problems/:id">{({ id }) => <Problem key={id} id={id} />}</Route>
              <Route path="/traces/:id">{({ id }) => <Trace key={id} id={id} />}</Route>
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
              <Route path="/service">
                <Service />
              </Route>
              <Route>
                <Empty page title="There is no such page">
                  The link may be of another version. <Link href="/">All problems</Link>
                </Empty>
              </Route>
            </Switch>
          </Suspense>
        </ErrorBoundary>
      </main>
      <Toast />
      {help && <Help close={() => setHelp(false)} />}
    </>
  );
}

const isCurrent = (at: string, path: string) =>
  path === "/" ? at === "/" || at.startsWith("/problems") || at.startsWith("/traces") : at.startsWith(path);

const lasting = 3000; // ms for which the connection must be otherwise before that is said: it may be cut now and then

// useLasting is useConnection without losses that do not last.
function useSteadyConnection() {
  const connection = useConnection();
  const [lasted, setLasted] = useState(connection);
  const [ever, setEver] = useState(connection.live);
  useEffect(() => {
    if (connection.live === lasted.live) return;
    const timer = setTimeout(() => (setLasted(connection), setEver(true)), ever && !connection.live ? lasting : 0);
    return () => clearTimeout(timer);
  }, [connection, lasted, ever]);
  return { ...lasted, ever };
}

type SteadyConnection = ReturnType<typeof useSteadyConnection>;

function LiveIndicator({ of: { live, since, ever } }: { of: SteadyConnection }) {
  useNow(); // what follows is drawn again as time passes
  const lately = Date.now() - since;
  const long = !live && lately > 4000;
  const state = live ? "Live" : ever || long ? "Not live" : "Connecting"; // which is read out, but not for how long
  return (
    <span
      className={live ? "live" : "live off"}
      title={live ? "What is shown follows what happens." : "Events do not come; trying again."}
    >
      <span aria-hidden="true">{live ? "●" : "○"}</span> <span role="status">{state}</span>
      {long && ` for ${coarseDuration(lately)}`}
    </span>
  );
}

function Preferences({ help }: { help: () => void }) {
  const [theme, setTheme] = useTheme();
  const [zone, setZone] = useZone();
  const themed = (value: Theme, text: string) => ({ text, checked: theme === value, act: () => setTheme(value) });
  return (
    <Menu
      label="Theme, time, help"
      icon="☰"
      items={[
        themed("system", "Theme of the system"),
        themed("light", "Light"),
        themed("dark", "Dark"),
        null,
        { text: "Local time", checked: zone === "local", act: () => setZone("local") },
        { text: "UTC", checked: zone === "utc", act: () => setZone("utc") },
        null,
        { text: "Keys and words", act: help },
        ...(token() ? [{ text: "Log out", act: () => (storeToken("", false), requireLogin()) }] : []),
      ]}
    />
  );
}

const outage = 10_000; // ms without events after which that is said above all that is shown

// Notices say what holds for everything that is shown.
function Banners({ connection: { live, since, ever } }: { connection: SteadyConnection }) {
  useNow(); // what follows is drawn again as time passes
  const { value: status, failure } = useResource("status", (signal) => client.GET("/status", { signal }), true);
  const notices: ReactNode[] = [];
  if (failure && failure.status !== 401)
    notices.push(
      <>
        <strong>{failure.title}.</strong> {failure.detail} What is shown may be old.
      </>,
    );
  else if (ever && !live && Date.now() - since > outage)
    notices.push(
      <>
        <strong>Sibyl does not answer.</strong> It may have stopped, or the network is down; this page tries again by
        itself. What is shown may be old.
      </>,
    );
  const version = useRef(status?.version); // that the page came from, or soon after
  version.current ??= status?.version;
  if (status && status.version !== version.current)
    notices.push(
      <>
        <strong>Sibyl is now of version {status.version}.</strong> This page is of {version.current}.{" "}
        <button type="button" onClick={() => location.reload()}>
          Load it again
        </button>
      </>,
    );
  if (status && !status.ready)
    notices.push(
      <>
        <strong>Starting.</strong> The journal is being read; traces are taken when that is done.
      </>,
    );
  if (status?.learning.active) {
    const done = status.learning.progress;
    notices.push(
      <>
        <strong>Learning what is normal{done === null ? "" : `: ${Math.floor(done * 100)} % done`}.</strong>{" "}
        {done === null
          ? "No request came yet. Send traces (OTLP) to the service, and learning begins."
          : "Until that ends there are no problems; statistics are provisional."}
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
  ["Enter", "open what is focused"],
  ["/", "search"],
  ["g", "all problems"],
  ["a", "acknowledge the problem"],
  ["m", "mute the problem"],
  ["← →", "fold and unfold, in a waterfall or tree"],
  ["?", "this list"],
  ["Esc", "close, or leave the search"],
];

// words are those of the list of problems that the key ? explains.
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

const termLabel = (name: string) =>
  name === "none" ? "queued" : name in kindLabels ? kindLabels[name as keyof typeof kindLabels] : name;

function Help({ close }: { close: () => void }) {
  return (
    <Dialog title="Keys and words" close={close} wide>
      <div className="help">
        <section>
          <h3>Keys</h3>
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
          <h3>What is said of problems</h3>
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
