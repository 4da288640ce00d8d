// Server-sent events. Read by fetch, since EventSource cannot show a token.
import { type Schemas, authorization, base, requireLogin } from "./client.ts";
import { Parser } from "../lib/parser.ts";
import { countFailures, delay } from "../lib/backoff.ts";

export type Happened = Schemas["Event"];

// Connection says whether events come: "live", or since when they do not.
export type Connection = { live: boolean; since: number };

type Listener = (event: Happened | null) => void;

const listeners = new Set<Listener>();
const watchers = new Set<() => void>();
let connection: Connection = { live: false, since: Date.now() };
let running: AbortController | undefined;
let lastID = "";

// onEvent calls listen with every event, and with null when some were missed: what is shown must be read again.
export function onEvent(listen: Listener): () => void {
  listeners.add(listen);
  return () => listeners.delete(listen);
}

export const currentConnection = () => connection;

export function onConnection(watch: () => void): () => void {
  watchers.add(watch);
  return () => watchers.delete(watch);
}

function connected(live: boolean) {
  if (live === connection.live) return;
  connection = { live, since: Date.now() };
  for (const watch of watchers) watch();
}

const silence = 40_000; // ms without a sign of life, of which the service gives one every 15 s, after which nobody is there any more
const looking = 5000; // ms between two looks at that, by the clock: timers stand still while a computer sleeps

const tell = (event: Happened | null) => listeners.forEach((listen) => listen(event));

// disconnect ends what connect began.
export const disconnect = () => running?.abort();

// connect begins to read events, in place of whatever read them before, and goes on until it is called again.
export function connect() {
  disconnect();
  const mine = (running = new AbortController());
  void (async () => {
    for (let failures = 0; !mine.signal.aborted;) {
      const began = Date.now();
      let made = false;
      try {
        await read(mine.signal, () => (made = true));
      } catch {
        // Whatever it was: try again.
      }
      failures = countFailures(failures, Date.now() - began, made);
      if (mine.signal.aborted) return;
      connected(false);
      await rest(delay(failures));
    }
  })();
}

// rest waits so many ms, or until there is a network again.
function rest(ms: number): Promise<void> {
  return new Promise((done) => {
    const over = () => {
      clearTimeout(timer);
      removeEventListener("online", over);
      done();
    };
    const timer = setTimeout(over, ms);
    addEventListener("online", over);
  });
}

// read reads events until they end, or nothing is heard for too long.
async function read(signal: AbortSignal, made: () => void) {
  const given = new AbortController(); // up
  let heard = Date.now();
  const watch = setInterval(() => Date.now() - heard > silence && given.abort(), looking);
  try {
    await follow(AbortSignal.any([signal, given.signal]), made, () => (heard = Date.now()));
  } finally {
    clearInterval(watch);
  }
}

async function follow(signal: AbortSignal, made: () => void, heard: () => void) {
  const headers = { ...authorization(), ...(lastID ? { "Last-Event-ID": lastID } : {}) };
  const response = await fetch(`${base}/api/v1/events`, { headers, signal });
  if (response.status === 401) requireLogin(); // else a page whose token is over waits for ever: it reads nothing without events
  if (!response.ok || !response.body) throw new Error(String(response.status));
  heard();
  made();
  connected(true);
  if (!lastID) tell(null); // else the service says what was missed
  const parser = new Parser((id, type, data) => {
    lastID = id || lastID;
    tell(type === "reset" ? null : (JSON.parse(data) as Happened));
  });
  const text = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await text.read();
    if (done) return;
    heard();
    parser.push(value);
  }
}
