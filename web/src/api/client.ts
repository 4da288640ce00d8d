// The API client: types of the contract, token and errors.
import createClient, { type Middleware } from "openapi-fetch";
import { sanitize, sanitizeDeep } from "../logic/sanitize.ts";
import { store, load } from "../storage.ts";
import { syncClock } from "./clock.ts";
import type { components, paths } from "./contract.gen.ts";

export type Schemas = components["schemas"];

// base is the base path of the service, without a trailing slash.
export const base = new URL(document.baseURI).pathname.replace(/\/$/, "");

// ApiError is a failed request. status is 0 if there was no response.
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    readonly detail: string,
  ) {
    super(`${title}: ${detail}`);
  }

  // transient reports whether a retry may succeed: the service was unreachable or overloaded.
  get transient() {
    return [0, 502, 503, 504].includes(this.status);
  }
}

const tokenKey = "sibyl.token";

// token returns the stored token; empty: none.
export const token = () => load("sessionStorage", tokenKey) ?? load("localStorage", tokenKey) ?? "";

// hasOwnToken reports whether this tab has a token that others don't have.
export const hasOwnToken = () => Boolean(load("sessionStorage", tokenKey));

// storeToken stores a token for this tab or this browser; the empty token deletes it.
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

const requestTimeout = 30_000; // ms; the service gives up after 20 s

export const client = createClient<paths>({
  baseUrl: `${base}/api/v1`,
  fetch: (request) =>
    fetch(request, { signal: AbortSignal.any([request.signal, AbortSignal.timeout(requestTimeout)]) }),
});
client.use(authorize);

// unauthorized receives an event whenever the API rejects the token.
export const unauthorized = new EventTarget();

// requireLogin makes the page ask people to log in, or for a token.
export const requireLogin = () => void unauthorized.dispatchEvent(new Event("unauthorized"));

// loginAddress returns the address at which people log in and return to this page; empty: they need a token.
export async function loginAddress() {
  const { error } = await client.GET("/me");
  const to = location.pathname + location.search + location.hash;
  return error?.login ? `${error.login}?${new URLSearchParams({ to })}` : "";
}

// logOut forgets the token or, without one, ends the session.
export async function logOut() {
  if (token()) {
    storeToken("", false);
    return requireLogin();
  }
  const answer = await fetch(`${base}/logout`, { method: "POST" });
  if (!answer.ok) throw new Error(`Status ${answer.status}`);
  location.assign(((await answer.json()) as { url: string }).url);
}

// Answer is the result of a call with openapi-fetch.
export type Answer<T> = Promise<{ data?: T; error?: unknown; response: Response }>;

// unwrap returns the data of an answer, sanitized, or throws an ApiError.
export async function unwrap<T>(answer: Answer<T>): Promise<T> {
  let got;
  try {
    got = await answer;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(
      0,
      "Sibyl is not responding",
      "The service may have stopped, or the network may be down. This page retries automatically.",
    );
  }
  if (got.response.ok) return sanitizeDeep(got.data) as T;
  if (got.response.status === 401) requireLogin();
  const problem = got.error as Partial<Schemas["Error"]> | undefined;
  throw new ApiError(
    got.response.status,
    problem?.title || `Status ${got.response.status}`,
    sanitize([problem?.detail, problem?.hint].filter(Boolean).join(": ")) ||
      "This response did not come from Sibyl, but from something in between, such as a proxy.",
  );
}
