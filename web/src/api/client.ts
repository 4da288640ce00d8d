// How the UI talks to the API: one client with the types of the contract, a token if there is one, and errors that say what to do.
import createClient, { type Middleware } from "openapi-fetch";
import { sanitize, sanitizeDeep } from "../lib/sanitize.ts";
import { store, load } from "../storage.ts";
import { syncClock } from "./clock.ts";
import type { components, paths } from "./contract.gen.ts";

export type Schemas = components["schemas"];

// base is the path that everything is served below, without a slash at its end.
export const base = new URL(document.baseURI).pathname.replace(/\/$/, "");

// Failure is why something was not answered. status is 0 if nobody answered at all.
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    readonly detail: string,
  ) {
    super(`${title}: ${detail}`);
  }

  // passes reports whether it may be over soon: nobody was there, or had time.
  get transient() {
    return [0, 502, 503, 504].includes(this.status);
  }
}

const tokenKey = "sibyl.token";

// token returns the token that somebody logged in with; empty: none.
export const token = () => load("sessionStorage", tokenKey) ?? load("localStorage", tokenKey) ?? "";

// keepToken keeps a token for this tab, or for this browser. The empty one is forgotten.
export function storeToken(secret: string, forBrowser: boolean) {
  store("sessionStorage", tokenKey, forBrowser ? null : secret || null);
  store("localStorage", tokenKey, forBrowser ? secret || null : null);
}

export const authorization = (): Record<string, string> => (token() ? { Authorization: `Bearer ${token()}` } : {});

const authorize: Middleware = {
  onRequest({ request }) {
    for (const [name, value] of Object.entries(authorization())) request.headers.set(name, value);
    return request;
  },
  onResponse({ response }) {
    syncClock(response.headers.get("Date"));
  },
};

const requestTimeout = 30_000; // ms until an answer is given up: the service itself takes 20 s at most

export const client = createClient<paths>({
  baseUrl: `${base}/api/v1`,
  fetch: (request) =>
    fetch(request, { signal: AbortSignal.any([request.signal, AbortSignal.timeout(requestTimeout)]) }),
});
client.use(authorize);

// unauthorized is told whenever the API wants a (better) token.
export const unauthorized = new EventTarget();

// lock has the page ask for a token.
export const requireLogin = () => void unauthorized.dispatchEvent(new Event("unauthorized"));

// Answer is what openapi-fetch gives.
export type Answer<T> = Promise<{ data?: T; error?: unknown; response: Response }>;

// answered returns what was answered, or throws a Failure.
export async function unwrap<T>(answer: Answer<T>): Promise<T> {
  let got;
  try {
    got = await answer;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(
      0,
      "Sibyl does not answer",
      "The service may have stopped, or the network is down. This page tries again by itself.",
    );
  }
  if (got.response.ok) return sanitizeDeep(got.data) as T;
  if (got.response.status === 401) requireLogin();
  const problem = got.error as Partial<Schemas["Error"]> | undefined;
  throw new ApiError(
    got.response.status,
    problem?.title || `Status ${got.response.status}`,
    sanitize(problem?.detail ?? "") ||
      "This answer is not Sibyl’s own: something between it and the page, such as a proxy, gave it.",
  );
}
