// Server-sent events. They are read with fetch because EventSource cannot send a token.
import { countFailures, delay } from "../logic/backoff.ts";
import { eventDecoder } from "../logic/event-stream.ts";
import { type Schemas, authorization, base, requireLogin } from "./client.ts";

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

// pauseHidden closes the stream of a hidden page until the page is visible again. Browsers open six connections to a
// service: six streams of forgotten tabs would leave none for the requests of the visible one.
export function pauseHidden(): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const changed = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(disconnect, hiddenGrace);
    else if (running?.signal.aborted !== false) {
      update({ ...connection, since: Date.now() });
      connect();
    }
  };
  document.addEventListener("visibilitychange", changed);
  return () => {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", changed);
  };
}

const hiddenGrace = 10_000; // ms
const heartbeatTimeout = 40_000; // ms; the service sends a heartbeat every 15 s
const checkInterval = 5000; // ms; compares clock times because timers stop while a computer sleeps

const emit = (event: ServerEvent | null) => listeners.forEach((listen) => listen(event));

export const disconnect = () => running?.abort();

// connect replaces the connection, if any, and reconnects until disconnect is called.
export function connect() {
  disconnect();
  const controller = (running = new AbortController());
  void (async () => {
    for (let failures = 0; !controller.signal.aborted;) {
      const began = Date.now();
      let opened = false;
      try {
        await readWithTimeout(controller.signal, () => (opened = true));
      } catch {
        // Reconnect, whatever the error.
      }
      failures = countFailures(failures, Date.now() - began, opened);
      if (controller.signal.aborted) return;
      setLive(false);
      await sleepOrOnline(delay(failures));
    }
  })();
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
async function readWithTimeout(signal: AbortSignal, onOpen: () => void) {
  const silent = new AbortController();
  let lastReceived = Date.now();
  const check = setInterval(() => Date.now() - lastReceived > heartbeatTimeout && silent.abort(), checkInterval);
  try {
    await readEvents(AbortSignal.any([signal, silent.signal]), onOpen, () => (lastReceived = Date.now()));
  } finally {
    clearInterval(check);
  }
}

async function readEvents(signal: AbortSignal, onOpen: () => void, onReceive: () => void) {
  const headers = { ...authorization(), ...(lastID ? { "Last-Event-ID": lastID } : {}) };
  const response = await fetch(`${base}/api/v1/events`, { headers, signal });
  if (response.status === 401) requireLogin(); // nothing else notices an expired token if no events arrive
  if (!response.ok || !response.body) throw new Error(String(response.status));
  onReceive();
  onOpen();
  setLive(true);
  if (!lastID) emit(null); // with an ID the service itself reports missed events
  const decode = eventDecoder((id, event) => {
    lastID = id || lastID;
    emit(event as ServerEvent | null);
  });
  const text = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await text.read();
    if (done) return;
    onReceive();
    decode(value);
  }
}
