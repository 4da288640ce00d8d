// Server-sent events. They are read with fetch because EventSource cannot send a token. Browsers open six connections
// to a service, so streams must leave enough of them for requests: the visible pages share one, and hidden ones have
// none.
import { countFailures, delay } from "../logic/backoff.ts";
import { eventDecoder } from "../logic/event-stream.ts";
import { type Schemas, authorization, base, hasOwnToken, requireLogin } from "./client.ts";

export type ServerEvent = Schemas["Event"];

// Connection is the state of the event stream, and the time in ms at which it began.
export type Connection = { live: boolean; since: number };

type Listener = (event: ServerEvent | null) => void;

const listeners = new Set<Listener>();
const watchers = new Set<() => void>();
let connection: Connection = { live: false, since: Date.now() };
let running: AbortController | undefined;
let lastID = "";

// onEvent calls listen with every event, and with null when events were missed, so that everything must be refetched.
export function onEvent(listen: Listener): () => void {
  listeners.add(listen);
  return () => listeners.delete(listen);
}

export const currentConnection = () => connection;

export function onConnection(watch: () => void): () => void {
  watchers.add(watch);
  return () => watchers.delete(watch);
}

function update(next: Connection) {
  connection = next;
  for (const watch of watchers) watch();
}

const setLive = (live: boolean) => live !== connection.live && update({ live, since: Date.now() });

// pauseHidden closes the stream of a hidden page until the page is visible again, and at once that of a page that is
// left: the browser may keep it, with its connections.
export function pauseHidden(): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let left = false;
  const changed = () => {
    clearTimeout(timer);
    if (left) return; // browsers also report a change of visibility then
    if (document.hidden) timer = setTimeout(disconnect, hiddenGrace);
    else if (running?.signal.aborted !== false) {
      update({ ...connection, since: Date.now() });
      connect();
    }
  };
  const leave = () => {
    left = true;
    disconnect();
  };
  const comeBack = () => {
    left = false;
    changed();
  };
  document.addEventListener("visibilitychange", changed);
  addEventListener("pagehide", leave);
  addEventListener("pageshow", comeBack);
  return () => {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", changed);
    removeEventListener("pagehide", leave);
    removeEventListener("pageshow", comeBack);
  };
}

const hiddenGrace = 10_000; // ms
const heartbeatTimeout = 40_000; // ms; the service sends a heartbeat every 15 s
const checkInterval = 5000; // ms; compares clock times because timers stop while a computer sleeps

const emit = (event: ServerEvent | null) => listeners.forEach((listen) => listen(event));

// State is what the page that reads the stream tells the others: the ID of the last event, and whether the stream is
// live. A page that joins asks for it. With an event, it is the state after that event.
type State = { id: string; live: boolean; event?: ServerEvent | null };

export const disconnect = () => running?.abort();

// connect replaces the connection, if any, and reconnects until disconnect is called. One of the pages reads the stream
// and tells the others; when it leaves, the next one continues after the last event. A page reads alone if it has a
// token of its own, which the others may not have, or if the browser has no locks, as in insecure contexts.
export function connect() {
  disconnect();
  const { signal } = (running = new AbortController());
  if (!navigator.locks || hasOwnToken()) return void read(signal, () => {});
  const name = `sibyl.events${base}`;
  const channel = new BroadcastChannel(name);
  let [reading, joined] = [false, false];
  const send = (message: "join" | State) => channel.postMessage(message);
  channel.onmessage = ({ data: message }: MessageEvent<"join" | State>) => {
    if (message === "join") {
      if (reading) send({ id: lastID, live: connection.live });
    } else if (!reading && (joined || message.event === undefined)) {
      joined = true; // earlier events are in the answer to "join", or read again with the lock
      hear(message);
    }
  };
  signal.addEventListener("abort", () => channel.close());
  send("join");
  const lead = async () => {
    reading = true;
    await read(signal, send);
  };
  navigator.locks.request(name, { signal }, lead).catch(() => {}); // disconnected before its turn came
}

// hear takes the state of the page that reads the stream.
function hear({ id, live, event }: State) {
  const missed = event === undefined && live && (!id || id !== lastID);
  lastID = id || lastID;
  setLive(live);
  if (event !== undefined) emit(event);
  else if (missed) emit(null);
}

type Tell = (state: State) => void;

// read reads the stream, and reconnects until signal aborts it. It tells the other pages.
async function read(signal: AbortSignal, tell: Tell) {
  for (let failures = 0; !signal.aborted;) {
    const began = Date.now();
    let opened = false;
    try {
      await readWithTimeout(signal, tell, () => (opened = true));
    } catch {
      // Reconnect, whatever the error.
    }
    failures = countFailures(failures, Date.now() - began, opened);
    if (signal.aborted) return;
    setLive(false);
    tell({ id: lastID, live: false });
    await sleepOrOnline(delay(failures));
  }
}

// sleepOrOnline waits the given time in ms, or until the browser is online again.
function sleepOrOnline(ms: number): Promise<void> {
  return new Promise((resolve) => {
    const finish = () => {
      clearTimeout(timer);
      removeEventListener("online", finish);
      resolve();
    };
    const timer = setTimeout(finish, ms);
    addEventListener("online", finish);
  });
}

// readWithTimeout reads events until the stream ends or is silent for longer than heartbeatTimeout.
async function readWithTimeout(signal: AbortSignal, tell: Tell, onOpen: () => void) {
  const silent = new AbortController();
  let lastReceived = Date.now();
  const check = setInterval(() => Date.now() - lastReceived > heartbeatTimeout && silent.abort(), checkInterval);
  try {
    await readEvents(AbortSignal.any([signal, silent.signal]), tell, onOpen, () => (lastReceived = Date.now()));
  } finally {
    clearInterval(check);
  }
}

async function readEvents(signal: AbortSignal, tell: Tell, onOpen: () => void, onReceive: () => void) {
  const headers = { ...authorization(), ...(lastID ? { "Last-Event-ID": lastID } : {}) };
  const response = await fetch(`${base}/api/v1/events`, { headers, signal });
  if (response.status === 401) requireLogin(); // nothing else notices an expired token if no events arrive
  if (!response.ok || !response.body) throw new Error(String(response.status));
  onReceive();
  onOpen();
  setLive(true);
  tell({ id: lastID, live: true });
  if (!lastID) emit(null); // with an ID the service itself reports missed events
  const decode = eventDecoder((id, data) => {
    const event = data as ServerEvent | null;
    lastID = id || lastID;
    tell({ id: lastID, live: true, event });
    emit(event);
  });
  const text = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await text.read();
    if (done) return;
    onReceive();
    decode(value);
  }
}
