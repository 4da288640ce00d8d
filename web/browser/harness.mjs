// The harness of the browser tests: a service with a seeded state, a browser, and pages that record errors.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, beforeEach } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { chromium } from "playwright-core";

const requireEnv = (name) => process.env[name] || fail(`${name} is not set: run web/browser/run`);
const fail = (text) => {
  throw new Error(text);
};

const sibyl = requireEnv("SIBYL");
const seed = requireEnv("SEED"); // a data directory
const seeder = requireEnv("SEEDER"); // the program that made it

const patience = 60_000; // ms; timeout for what should happen at once

// freePorts returns n free ports of the loopback interface.
async function freePorts(n) {
  const servers = Array.from({ length: n }, () => net.createServer().listen(0, "127.0.0.1"));
  await Promise.all(servers.map((server) => once(server, "listening")));
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => new Promise((done) => server.close(done))));
  return ports;
}

// serve runs the real binary on a copy of the seeded data. empty starts it without data, large with the large state,
// fresh with data up to now: an incident closes some minutes after the last traces; token is the role of a token that it
// then requires. files holds the contents of files by the flags that name them.
export async function serve({
  base = "",
  token = "",
  empty = false,
  large = false,
  fresh = false,
  args = [],
  files = {},
} = {}) {
  const dir = join(mkdtempSync(join(tmpdir(), "sibyl-ui-")), "data");
  if (large)
    execFileSync(seeder, ["--dir", dir, "--large"]); // its last epoch must be recent
  else if (fresh) execFileSync(seeder, ["--dir", dir]);
  else if (!empty) cpSync(seed, dir, { recursive: true });
  const [port, grpc, otlp] = await freePorts(3);
  const address = `127.0.0.1:${port}`;
  const secret = token
    ? execFileSync(sibyl, ["token", "create", "--role", token, "--name", "night", "--data-dir", dir], {
        encoding: "utf8",
      }).match(/\S{20,}/)[0]
    : "";
  const url = `http://${address}${base}`;
  const named = Object.entries(files).flatMap(([flag, text]) => {
    const name = join(dirname(dir), flag);
    writeFileSync(name, text);
    return [flag, name];
  });
  let child;
  const start = async () => {
    child = spawn(
      sibyl,
      [
        "serve",
        "--data-dir",
        dir,
        "--http",
        address,
        "--otlp-grpc",
        `127.0.0.1:${grpc}`,
        "--otlp-http",
        `127.0.0.1:${otlp}`,
        "--learning",
        "1m",
        "--api-base-path",
        base,
        "--trace-url",
        '[{name: Jaeger, url: "https://jaeger.example/trace/{trace_id}"}]',
        ...args,
        ...named,
      ],
      { stdio: ["ignore", "ignore", "inherit"], env: { ...process.env, SIBYL_LOG_LEVEL: "error" } },
    );
    for (let i = 0; ; i++) {
      if (
        await fetch(`${url}/readyz`).then(
          (r) => r.ok,
          () => false,
        )
      )
        break;
      if (i > patience / 100 || child.exitCode !== null) fail("the service did not become ready");
      await new Promise((done) => setTimeout(done, 100));
    }
  };
  const end = () => new Promise((done) => (child.once("exit", done), child.kill("SIGTERM")));
  await start();
  const api = async (path) => {
    const response = await fetch(`${url}/api/v1${path}`, {
      headers: secret ? { Authorization: `Bearer ${secret}` } : {},
    });
    return response.ok ? response.json() : fail(`${path}: ${await response.text()}`);
  };
  // Chronic problems appear when the first epoch ends.
  for (let i = 0; !empty && i < patience / 100 && (await api("/problems")).items.length < 2; i++)
    await new Promise((done) => setTimeout(done, 100));
  const proxies = [];
  // proxy starts a proxy in front of the service and returns its URL. intercept may change requests; it returns true
  // for those that it answers itself.
  const proxy = async (intercept) => {
    const server = http.createServer(async (request, response) => {
      if (await intercept(request, response)) return;
      const upstream = http.request(
        { host: "127.0.0.1", port, path: request.url, method: request.method, headers: request.headers },
        (answer) => {
          response.writeHead(answer.statusCode, answer.headers);
          answer.pipe(response);
        },
      );
      upstream.on("error", () => response.destroy());
      request.pipe(upstream);
      response.on("close", () => upstream.destroy());
    });
    proxies.push(server);
    await new Promise((done) => server.listen(0, "127.0.0.1", done));
    return `http://127.0.0.1:${server.address().port}`;
  };
  const stop = () => {
    proxies.forEach((server) => (server.closeAllConnections(), server.close()));
    return end();
  };
  const restart = async () => {
    await end();
    await start();
  };
  // send exports traces as OTLP/JSON.
  const send = async (request) => {
    const response = await fetch(`http://127.0.0.1:${otlp}/v1/traces`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(request),
    });
    if (!response.ok) fail(`spans were not accepted: ${await response.text()}`);
  };
  return { url, api, send, secret, proxy, stop, restart, pid: child.pid };
}

const maxAge = 150_000; // ms

// useService starts a service for the tests of a file, and another one in its place before a test when its state gets
// old: without new traces, an incident closes after five minutes, and what changed is no problem after ten. ready
// receives each of them.
export function useService(options, ready) {
  let service, began;
  const start = async () => {
    service = await serve(options);
    began = Date.now();
    await ready(service);
  };
  before(start);
  beforeEach(async () => {
    if (Date.now() - began < maxAge) return;
    await service.stop();
    await start();
  });
  after(() => service?.stop());
}

// unfolded is the query that unfolds all of a problem's page.
const unfolded = "unfolded=slowest-tenth-vs-the-rest,attributes-slowest-tenth-vs-the-rest,investigation";

// viewPaths returns a path of every view, for a problem; by default, the worst one that began with a change.
export async function viewPaths(service, problem) {
  const { items } = await service.api("/problems");
  const worst =
    problem ?? items.find((p) => p.onset === "changed") ?? items[0] ?? fail("the seeded state has no problem");
  const { items: incidents } = await service.api("/incidents");
  const { items: exemplars } = await service.api(`/exemplars?group=${worst.group}`);
  const { items: services } = await service.api("/services");
  return {
    incidents: "/",
    ...(services[0] && { service: `/services/${encodeURIComponent(services[0].service)}` }),
    ...(incidents[0] && { incident: `/incidents/${incidents[0].id}` }),
    problems: "/problems",
    problem: `/problems/${worst.id}`,
    unfolded: `/problems/${worst.id}?${unfolded}`,
    trace: `/traces/${exemplars[0].trace}?problem=${worst.id}`,
    objectives: "/objectives",
    trees: "/trees",
    tree: `/trees/${worst.request_type}?problem=${worst.id}`,
    compare: `/compare?group=${worst.group}`,
    tracepoints: "/tracepoints",
    plan: "/tracepoints?show=plan",
    agents: "/tracepoints?show=agents",
    services: "/services",
    map: "/map",
    traces: "/traces",
    status: "/status",
    nothing: "/nowhere",
  };
}

export const launch = () =>
  chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-dev-shm-usage"],
  });

const axe = readFileSync(new URL("../node_modules/axe-core/axe.min.js", import.meta.url), "utf8");

// open returns a page that records its issues: exceptions, console errors, requests to other origins. Closing its
// context fails if there are any.
export async function open(browser, { theme = "light", width = 1280, height = 800, ...rest } = {}) {
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: theme,
    reducedMotion: "reduce",
    ...rest,
  });
  context.setDefaultTimeout(patience);
  const page = await context.newPage();
  const issues = [];
  page.on("pageerror", (error) => issues.push(`error: ${error.message}`));
  page.on(
    "console",
    (message) =>
      message.type() === "error" &&
      !/status of (401|403|404|5\d\d)|ERR_(INTERNET|CONNECTION|FAILED)/.test(message.text()) &&
      issues.push(`console: ${message.text()}`),
  );
  page.on("request", (request) => {
    const at = new URL(request.url());
    if (
      !request.isNavigationRequest() &&
      !["data:", "blob:"].includes(at.protocol) &&
      at.origin !== new URL(page.url()).origin
    )
      issues.push(`request to another origin: ${request.url()}`);
  });
  const close = context.close.bind(context);
  context.close = async () => {
    await page.unrouteAll({ behavior: "ignoreErrors" }); // requests may still be in flight
    await close();
    assert.deepEqual(issues, []);
  };
  return { page, context, issues };
}

// settle waits until the page has loaded everything.
export async function settle(page) {
  await page.waitForSelector("main, form");
  await page.waitForFunction(() => !document.querySelector("[aria-busy=true]"));
  await page.waitForTimeout(100); // charts measure themselves
}

// until waits until a value that read returns is as wanted. It fails with the last one if none is.
export async function until(read, wanted, message) {
  let got;
  for (let i = 0; i < patience / 50; i++) {
    got = await read();
    if (isDeepStrictEqual(got, wanted)) return;
    await new Promise((done) => setTimeout(done, 50));
  }
  assert.deepEqual(got, wanted, message);
}

// freezeProblem makes the list of problems, and the detail of one of them, constant for a page: an epoch may end between
// the reads of the two.
export async function freezeProblem(page, service, index = 0) {
  for (let i = 0; ; i++) {
    const list = await service.api("/problems");
    const detail = await service.api(`/problems/${list.items[index].id}`);
    if (detail.problem.diagnosis !== list.items[index].diagnosis && i < 20) continue;
    await page.route("**/api/v1/problems?*", (route) => route.fulfill({ json: list }));
    await page.route(`**/api/v1/problems/${detail.problem.id}`, (route) => route.fulfill({ json: detail }));
    return detail.problem;
  }
}

// visit opens a page at a URL and waits until it has settled.
export async function visit(browser, url, options) {
  const all = await open(browser, options);
  await all.page.goto(url);
  await settle(all.page);
  return all;
}

// violations returns the violations that axe finds in a page, as text.
export async function violations(page) {
  const found = await page.evaluate(`${axe}; axe.run({ resultTypes: ["violations"] })`);
  return found.violations.map(
    (v) =>
      `${v.id}: ${v.help}: ${v.nodes
        .slice(0, 3)
        .map((n) => n.html.slice(0, 200))
        .join(" | ")}`,
  );
}

// told returns the field of the API with a sentence, and the one with its phrases. Phrases are words, or objects with a
// kind other than words and their text, such as { name: "cart" }.
export function told(field, ...phrases) {
  const parts = phrases.map((p) => {
    const [kind, text] = typeof p === "string" ? ["words", p] : Object.entries(p)[0];
    return { kind, text };
  });
  return { [field]: parts.map((p) => p.text).join(""), [`${field}_parts`]: parts };
}
