// Incidents: the first page and the page of an incident, with incidents that the engine found in simulated traffic.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, open, settle, told, until, useService, violations, visit } from "./harness.mjs";
import { layoutIssues } from "./layout.mjs";

let service, browser, listed, incident, closed;
useService({ fresh: true }, async (started) => {
  service = started;
  listed = await service.api("/incidents");
  incident = listed.items.find((x) => x.state === "open" && x.service === "search");
  closed = listed.items.find((x) => x.state === "closed");
  assert.ok(incident && closed, `${listed.items.length} incidents: ${listed.items.map((x) => x.sentence).join(" ")}`);
});
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

const entry = (page, { id }) => page.locator(".incident", { has: page.locator(`a[data-incident="${id}"]`) });

const pathOf = ({ id }) => `/incidents/${id}`;

// ends has an end of each kind, with the words of the service.
const ends = {
  recovered: { reason: "recovered", ...told("text", "back to normal, seen in ", { number: "412 calls" }) },
  stopped: { reason: "stopped", ...told("text", "its requests stopped, so nobody knows whether its cause is gone") },
  no_traces: { reason: "no_traces", ...told("text", "no traces arrived, so nobody knows whether its cause is gone") },
  moved: {
    reason: "moved",
    ...told("text", "its requests go to ", { name: "search-v2" }, " now"),
    service: "search-v2",
  },
  replaced: {
    reason: "replaced",
    ...told("text", "incident ", { incident: "00000000000000ab" }, " tells what happens to its service now"),
    incident: "00000000000000ab",
  },
  merged: {
    reason: "merged",
    ...told("text", "incident ", { incident: "00000000000000ab" }, " has the same cause"),
    incident: "00000000000000ab",
  },
  accepted: {
    reason: "accepted",
    ...told("text", "Ann <b> accepted the behaviour since the onset as normal (more items)"),
  },
};

// fixed makes the list of incidents of a page constant, without services that need attention. change changes it.
async function fixed(page, change) {
  const list = { ...structuredClone(listed), attention: [] };
  change(list);
  await page.route("**/api/v1/incidents?*", (route) => route.fulfill({ json: list }));
  return list;
}

test("the first page says what is slow, where, since when, and what to do", async () => {
  const { page, context } = await visit(browser, service.url, { timezoneId: "UTC" });
  const states = await page.locator(".incident .badge").allTextContents();
  assert.deepEqual(
    states.map((text) => text.split(" ")[1]),
    [...states]
      .map((text) => text.split(" ")[1])
      .sort()
      .reverse(),
    "open incidents are not first",
  );
  const now = entry(page, incident);
  const names = await now.locator("h3 .name").allTextContents();
  assert.ok(
    names.some((name) => name === incident.service || name.startsWith(`${incident.service} `)),
    `${names.join(", ")} without ${incident.service}`,
  );
  assert.match(await now.locator("h3").textContent(), /since (\d{4}-\d\d-\d\d )?\d\d:\d\d/);
  assert.match(
    await now.locator(".crumbs").textContent(),
    /open\s*since (\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d, \d+ (s|min) ago/,
  );
  assert.match(
    await now.locator(".effect .facts").textContent(),
    /They take.+ → .+Affected.+ of all requests, of \d+ request types?/,
  );
  const { failures } = (await service.api(pathOf(incident))).incident; // of all affected requests, as in other outputs
  const [, usual, failed] = (await now.locator(".effect .facts").textContent()).match(
    /Failed([\d.]+)\s%\s→\s([\d.]+)\s%/,
  );
  assert.ok(Math.abs(usual / 100 - failures.before) < 0.001 && Math.abs(failed / 100 - failures.now) < 0.003);
  const facts = await now.locator(".what .facts").textContent();
  assert.match(facts, /^Next.+Suspects.+Deployed/);
  assert.match(facts, new RegExp(`Deployed${incident.service} 2\\.8\\.0, before 2\\.7\\.0`));
  const next = async () => (await service.api(pathOf(incident))).next; // changes when the place is located
  await until(async () => now.getByText(await next(), { exact: true }).count(), 1, "the next step is missing");
  assert.match(await now.locator(".suspects").textContent(), /^search [\d.]+\s%, /);
  await now.getByRole("img", { name: /^Mean duration of payment UpdateToken over time, now [\d.]+ ms$/ }).waitFor();
  const before = entry(page, closed);
  assert.match(
    await before.locator(".crumbs").textContent(),
    /✓ closed\s*ended (\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d, \d+ min ago, lasted \d+\smin.*: back to normal, seen in [\d,]+ calls/,
  );
  const open = listed.items.filter((x) => x.state === "open").length;
  await page.getByRole("link", { name: `Incidents ${open} open` }).waitFor();
  assert.match(await page.title(), /^\d+ open incidents? · Sibyl$/);
  await context.close();
});

test("the times in the sentence are those of the reader's zone", async () => {
  const { page, context } = await visit(browser, service.url, { timezoneId: "Asia/Kolkata" });
  const at = new Date(Date.parse(incident.onset) + 330 * 60_000).toISOString().slice(11, 16);
  assert.match(await entry(page, incident).locator("h3").textContent(), new RegExp(`since (\\S+ )?${at}`));
  await context.close();
});

test("logs, metrics and events of Kubernetes about the suspect, and a server that fails", async () => {
  const onset = Date.parse(incident.onset);
  const at = (minutes) => new Date(onset + minutes * 60_000).toISOString();
  const log = (text, error, count) => ({ at: at(1), text, error, count });
  const points = [-20, -10, 1, 5].map((m, i) => ({ at: at(m), value: (i < 2 ? 200 : 900) * 2 ** 20 }));
  const memory = { unit: "bytes", points, before: points[0].value, after: points[3].value };
  const answer = {
    ...{ service: incident.service, from: at(-30), onset: incident.onset, to: at(10) },
    metrics: [
      { name: "Memory", query: "sum(memory)", ...memory },
      { name: "CPU", query: "sum(", unit: "number", points: [], error: "Prometheus answered 400 Bad Request" },
      { name: "Restarts", query: "sum(restarts)", unit: "number", points: [] },
    ],
    kubernetes: { events: [{ at: at(2), pod: "search-1", reason: "OOMKilled", text: "exit code 137", warning: true }] },
    logs: { lines: [log(`error: <b>pool</b> ${"exhausted".repeat(40)}`, true, 12), log("served", false, 1)] },
  };
  for (const width of [360, 1280]) {
    const { page, context } = await open(browser, { width });
    await page.route("**/telemetry", (route) => route.fulfill({ json: answer }));
    await page.goto(service.url + pathOf(incident));
    await settle(page);
    const text = await page.locator("#telemetry").textContent();
    for (const want of [
      ...["200 MiB", "900 MiB", "Prometheus answered 400 Bad Request.", "No values of Restarts."],
      ...["search-1", "OOMKilled: exit code 137", "12×", "error: <b>pool</b>", "served"],
    ])
      assert.ok(text.includes(want), `no ${want} in ${text}`);
    assert.deepEqual(await layoutIssues(page), [], `${width}`);
    assert.deepEqual(await violations(page), []);
    await context.close();
  }
});

test("an incident leads to its requests, sample traces and problems, and back", async () => {
  const { page, context } = await open(browser);
  const detail = await service.api(pathOf(incident)); // the place may be located meanwhile
  await page.route(`**/api/v1${pathOf(incident)}`, (route) => route.fulfill({ json: detail }));
  await page.goto(service.url);
  await settle(page);
  await entry(page, incident).locator("h3 a").click();
  await page.waitForURL(service.url + pathOf(incident));
  const sentence = await page.textContent("h1.diagnosis");
  await settle(page);
  assert.equal(await page.locator("#suspects tbody .name").first().textContent(), incident.service);
  assert.match(await page.locator("#timeline").textContent(), /The change began.*The incident opened\./);
  await page.locator("#request-types tbody a").first().click();
  await page.waitForURL(/\/compare/);
  await page
    .locator("p.diagnosis, .state", { hasText: /slower|faster|on average|longer/ })
    .first()
    .waitFor();
  await page.goBack();
  await page.locator("#exemplars a").first().click();
  await page.locator(".vrow").first().waitFor(); // the page of an incident has a .does, too
  await settle(page);
  const does = await page.textContent(".does");
  assert.ok(does.endsWith(sentence), `${does} does not name the incident: ${sentence}`);
  await page.getByRole("link", { name: "Incident", exact: true }).click();
  await page.locator("#problems summary").click();
  await page.waitForURL(/problems=open/);
  await page.reload();
  await page.locator("#problems li a").first().click();
  await page.locator("#edges").waitFor();
  await page.getByRole("link", { name: "open incident" }).click();
  await page.waitForURL(service.url + pathOf(incident));
  await context.close();
});

test("an incident has its next step and heat map above the fold, and folds suspects that its sentence tells", async () => {
  const { page, context } = await open(browser, { width: 1440, height: 900 });
  const detail = await service.api(pathOf(incident));
  detail.incident.place ??= "search DeleteSession";
  const [suspect] = detail.incident.suspects;
  Object.assign(suspect, { links: [{ name: "Runbook", url: "https://wiki.invalid/search" }] });
  detail.incident.suspects = [suspect];
  await page.route(`**/api/v1${pathOf(incident)}`, (route) => route.fulfill({ json: detail }));
  await page.goto(service.url + pathOf(incident));
  await settle(page);
  const titles = await page.locator("main .figure h2").allTextContents();
  assert.deepEqual(titles.slice(0, 3), ["Latency over time", "Affected request types", "Place"]);
  const bottom = async (of) => of.boundingBox().then((box) => box.y + box.height);
  assert.ok((await bottom(page.locator(".does").first())) < 250, "the next step is not second");
  assert.ok((await bottom(page.getByRole("region", { name: "Latency over time" }))) < 900, "the heat map is below");
  await page.locator(".effects").getByRole("link", { name: "Runbook" }).waitFor();
  assert.equal(await page.locator("#suspects").count(), 0);
  await page.getByText(/^Suspects: search, 100\s% of the cost$/).click();
  await page.locator("#suspects").waitFor();
  assert.deepEqual(await violations(page), []);
  await context.close();
});

test("names in the heading of an incident lead to their evidence", async () => {
  const { page, context } = await open(browser);
  await page.route(`**/api/v1${pathOf(incident)}`, async (route) => {
    const response = await route.fetch();
    const detail = await response.json();
    const [suspect] = detail.incident.suspects;
    suspect.instances = [{ key: "service.instance.id", value: "search-7", calls: 90, part: 1 }];
    Object.assign(detail.incident, {
      place: "search index.read",
      ...told(
        "sentence",
        "Requests take twice as long; ",
        { name: "search index.read" },
        " carries ",
        { number: "90 %" },
        " of the added latency, on ",
        { name: "search-7" },
        ".",
      ),
    });
    await route.fulfill({ response, json: detail });
  });
  await page.goto(`${service.url}${pathOf(incident)}?latency=lines`);
  await settle(page);
  for (const [name, section] of [
    ["search index.read", "search"],
    ["search-7", "suspects"],
  ]) {
    await page.locator("h1 a", { hasText: name }).click();
    await page.waitForURL(new RegExp(`latency=lines#${section}$`));
    await page.locator(`#${section}`).waitFor();
  }
  await context.close();
});

test("the page shows the search inside the first suspect, its places, tracepoints and decisions", async () => {
  const { page, context } = await open(browser);
  const detail = await service.api(pathOf(incident));
  assert.ok(detail.investigation, "the incident has no investigation");
  const place = (n) => ({
    tracepoint: `search/place-${n}`,
    operation: `search place ${n}`,
    context: ["search GET /search", `search place ${n}`],
    share: { value: 0.76 / n, low: 0.7 / n, high: 0.81 / n },
    inclusive: 0.8 / n,
    requests: 1200,
    open: 0,
  });
  const show = async (state, change) => {
    Object.assign(detail.investigation.investigation, { incident: incident.id, problem: "", state, ...change });
    detail.investigation.requested = state === "investigating" ? [{ ...tracepoint, tracepoint: "search/place-1" }] : [];
    await page.goto(service.url + pathOf(incident));
    await settle(page);
    assert.deepEqual(await violations(page), [], state);
    return page.locator("#search").textContent();
  };
  const tracepoint = { since: incident.opened, value: 0.4, cause: "largest share" };
  await page.route(`**/api/v1${pathOf(incident)}`, (route) => route.fulfill({ json: detail }));
  const suspects = [place(1), place(4)];
  const now = await show("investigating", { on: 1, tried: 3, reason: "waiting for requests", suspects });
  assert.match(now, /investigating.*Waiting for requests\. 1 tracepoint on, 3 tracepoints tried\./);
  assert.match(now, /search place 1.*76\s%.*70\s% to 81\s%.*search place 4.*19\s%/);
  assert.match(now, /On now: search\/place-1/);
  const done = await show("located", { on: 0, reason: "no candidate below it is left", suspects });
  assert.match(done, /located.*No candidate below it is left\..*search place 1.*76\s%/);
  assert.match(await show("exhausted", { reason: "no candidates are left" }), /inconclusive.*No candidates are left\./);
  assert.match(await show("gone", { reason: "the incident has closed" }), /The search ended/);
  await page.locator("#search summary").click();
  await page.waitForURL(/decisions=open/);
  await page.locator("#search .timeline li").first().waitFor();
  await context.close();
});

test("a located incident names what its threads wait for, in its charts and tables, too", async () => {
  const detail = await service.api(pathOf(incident));
  const share = (value) => ({ value, low: value - 0.05, high: value + 0.05 });
  const frame = (context, located, of, self_ns) => ({
    context,
    operation: context.at(-1),
    tracepoint: located ? "search/kernel/sync" : "",
    located,
    self_ns,
    share: share(of),
    requests: located ? 120 : 0,
  });
  Object.assign(detail.incident, {
    ...told(
      "sentence",
      "Requests take ",
      { number: "80 % longer" },
      "; ",
      { number: "82 %" },
      " of the added latency is waiting for the disk (fsync) in ",
      { name: "search audit.append" },
      ", on host ",
      { name: "b" },
      ".",
    ),
    place: "search audit.append",
    wait: {
      class: "sync",
      text: "waiting for the disk (fsync)",
      share: 0.82,
      service: "search",
      function: "search audit.append",
      host: "b",
    },
  });
  Object.assign(detail.investigation.investigation, { state: "explained", reason: "its threads wait for the disk" });
  const entry = "search DeleteSession";
  detail.located = {
    at: incident.opened,
    operation: "search audit.append",
    service: "search",
    tracepoint: "search/audit.append",
    enabled: false,
    of: "slowdown",
    share: share(0.82),
    requests: 120,
    mean_ns: 1.3e8,
    frames: [
      frame([entry, "search audit.append", "search waiting for the disk (fsync)"], true, 0.82, 1e8),
      frame([entry, "search waiting for a CPU"], false, 0.05, 2e7),
      frame([entry], false, 0.01, 1e7),
    ],
    traces: [],
  };
  for (const theme of ["light", "dark"]) {
    const { page, context } = await open(browser, { theme, timezoneId: "UTC" });
    await page.route(`**/api/v1${pathOf(incident)}`, (route) => route.fulfill({ json: detail }));
    await page.goto(service.url + pathOf(incident));
    await settle(page);
    await page.locator("h1 .name", { hasText: "search audit.append" }).waitFor();
    const figure = page.locator("#search");
    await figure.locator(".badge", { hasText: "explained" }).waitFor();
    assert.match(await figure.locator("svg.chart").textContent(), /waiting for the disk \(fsync\)/);
    const rows = await figure.getByRole("group", { name: "Places" }).locator("tbody .name").allTextContents();
    assert.deepEqual(rows.slice(0, 2), ["search waiting for the disk (fsync)", "search waiting for a CPU"]);
    for (const width of [360, 768, 1440]) {
      await page.setViewportSize({ width, height: 900 });
      await settle(page);
      assert.deepEqual(await layoutIssues(page), [], `${width}`);
    }
    assert.deepEqual(await violations(page), [], theme);
    await context.close();
  }
});

test("a problem of an incident points to it, instead of waiting for its turn", async () => {
  const { page, context } = await open(browser);
  const { items } = await service.api("/problems");
  const taken = items.find((p) => p.incident === incident.id);
  assert.ok(taken, "the incident has no problem");
  const join = (p) => Object.assign(p, { state: "none", incident: incident.id });
  await page.route(`**/api/v1/problems/${taken.id}`, async (route) => {
    const detail = await (await route.fetch()).json();
    join(detail.problem);
    await route.fulfill({ json: detail });
  });
  await page.route("**/api/v1/problems?*", async (route) => {
    const list = await (await route.fetch()).json();
    list.items.filter((p) => p.id === taken.id).forEach(join);
    await route.fulfill({ json: list });
  });
  await page.goto(`${service.url}/problems/${taken.id}`);
  await settle(page);
  await page.locator(".badge", { hasText: "in an incident" }).waitFor();
  await page.getByRole("link", { name: "open incident" }).waitFor();
  await page.goto(`${service.url}/problems`);
  await page.getByRole("link", { name: "in an incident" }).first().click();
  await page.waitForURL(service.url + pathOf(incident));
  await context.close();
});

test("incidents open, change and close without a reload", async () => {
  let send;
  const proxy = await service.proxy((request, response) => {
    if (!request.url.endsWith("/events")) return false;
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write(": events follow\n\n");
    send = (type) =>
      response.write(`id: x-1\nevent: ${type}\ndata: {"type":"${type}","at":"2026-01-01T00:00:00Z"}\n\n`);
    return true;
  });
  const { page, context } = await open(browser);
  const list = await fixed(page, (l) => (l.items = []));
  const status = await service.api("/status");
  delete status.learning.provisional; // the state has an instance that was slow from the start
  await page.route("**/api/v1/status", (route) => {
    status.ingest.last_arrival = new Date().toISOString(); // whenever the state was made
    return route.fulfill({ json: status });
  });
  await page.goto(proxy);
  await page.getByText("All is well").waitFor();
  await page.locator(".live:not(.off)").waitFor();
  list.items = [structuredClone(incident)];
  send("incident.opened");
  await entry(page, incident).waitFor();
  await until(() => page.locator(".under [role=status]").first().textContent(), "1 open incident");
  Object.assign(
    list.items[0],
    told("sentence", "Requests take 99 % longer; all of it is time in ", { name: "search" }, "."),
  );
  send("incident.changed");
  await page.getByText("Requests take 99 % longer").waitFor();
  Object.assign(list.items[0], { state: "closed", ended: list.epoch, closed: list.epoch, end: ends.recovered });
  send("incident.closed");
  await page.getByText(/The last incident .* closed .*: back to normal, seen in 412 calls\./).waitFor();
  await page.getByText("All is well").waitFor();
  list.items[0].end = ends.stopped;
  send("incident.changed");
  await page.getByText("No open incident", { exact: true }).waitFor();
  assert.equal(await page.getByText("All is well").count(), 0); // its cause may go on
  await until(() => page.locator("nav .count").count(), 0);
  await context.close();
});

test("the numbers of a heading do not change while they are read, but its words do", async () => {
  const { page, context } = await open(browser);
  const detail = await service.api(pathOf(incident));
  await page.route(`**/api/v1${pathOf(incident)}`, (route) => route.fulfill({ json: detail }));
  await page.goto(service.url + pathOf(incident));
  const before = await page.textContent("h1");
  const higher = detail.incident.sentence_parts.map((p) => (p.kind === "number" ? { ...p, text: "999" } : p));
  assert.notDeepEqual(higher, detail.incident.sentence_parts);
  const size = (share_of_requests) => ({ before_ns: 1e6, now_ns: 2e6, ratio: 2, share_of_requests });
  Object.assign(detail.incident, { sentence_parts: higher, size: size(0.42) });
  await page.getByRole("button", { name: "Acknowledge" }).click(); // the answer changes nothing, but the page reads again
  await page.getByRole("dialog").getByRole("button", { name: "Acknowledge" }).click();
  await page.getByText(/^42\s% of all requests/).waitFor();
  assert.equal(await page.textContent("h1"), before);
  Object.assign(detail.incident, { ...told("sentence", "Requests take 99 % longer."), size: size(0.43) });
  await page.getByText(/^43\s% of all requests/).waitFor(); // the next epoch
  assert.match(await page.textContent("h1"), /^Requests take 99\s% longer\.$/);
  await context.close();
  await fetch(`${service.url}/api/v1${pathOf(incident)}/acknowledge`, { method: "DELETE" });
});

test("when nothing is open, the page says so, since when, and whether it can know", async () => {
  const { page, context } = await open(browser);
  const list = await fixed(page, (l) => (l.items = l.items.filter((x) => x.state === "closed")));
  let silence = 0; // ms
  const status = await service.api("/status");
  delete status.learning.provisional;
  Object.assign(status.few_calls, { text: "2 of 40 operations had fewer than 20 calls.", remedy: "" });
  await page.route("**/api/v1/status", (route) => {
    status.ingest.last_arrival = new Date(Date.now() - silence).toISOString();
    return route.fulfill({ json: status });
  });
  await page.goto(service.url);
  await page.getByText("All is well").waitFor();
  await page.getByText("2 of 40 operations had fewer than 20 calls.").waitFor();
  await page.getByText(/The last incident .* closed \d\d:\d\d:\d\d, \d+ min ago: back to normal/).waitFor();
  assert.equal(await page.getByText("No traces have arrived").count(), 0);
  assert.deepEqual(await violations(page), []);
  const unequal = (value) => ({
    service: "cart",
    attribute: "k8s.pod.name",
    value,
    siblings: 5,
    calls: 900,
    mean_ns: 5e7,
    siblings_mean_ns: 1e7,
    failed: 0,
    siblings_failed: 0,
    ...told(
      "text",
      { name: value },
      " (k8s.pod.name) of ",
      { name: "cart" },
      " takes 5.0 times as long as its 5 siblings: 50 ms a call, they 10 ms.",
    ),
  });
  status.few_calls.remedy = "Set objectives.";
  status.learning.silence_left_ns = 3.6e12 / 2;
  status.learning.operations_left_ns = 3.6e12 * 5;
  status.learning.provisional = ["cart-1", "cart-2", "cart-3", "cart-4"].map(unequal);
  await page.goto(service.url);
  const normal = page.locator(".state p", { hasText: "It has done so since Sibyl first saw it" });
  await normal.first().waitFor();
  assert.equal(await normal.count(), 3); // the others are on the page of the service
  assert.match(await normal.first().textContent(), /^cart-1 .* takes 5\.0 times as long as its 5 siblings/);
  assert.equal(await page.getByText("All is well").count(), 0);
  await page.getByText("No incident in what is judged").waitFor();
  await page.getByText("2 of 40 operations had fewer than 20 calls. Set objectives.").waitFor();
  await page.getByText("after an hour of traffic, requests that stop (30 min left)").waitFor();
  assert.deepEqual(await violations(page), []);
  silence = 90_000;
  await page.getByText(/No traces have arrived for .*: Sibyl cannot detect incidents/).waitFor();
  assert.equal(await page.getByText("All is well").count(), 0); // nobody knows
  list.items = structuredClone(listed.items); // an open incident does not hide it
  await page.goto(service.url);
  await page.locator(".incident.open").first().waitFor();
  await page.getByText(/No traces have arrived for .*: Sibyl cannot detect incidents/).waitFor();
  list.items = [];
  list.learning = true;
  await page.goto(service.url);
  await page.getByText("Learning normal behaviour", { exact: true }).waitFor();
  assert.deepEqual(await violations(page), []);
  await context.close();
});

test("a closed incident says how it ended, in its list and on its page", async () => {
  const { page, context } = await open(browser, { timezoneId: "UTC" });
  const of = (reason, i) => ({ ...closed, id: `${i}`.padStart(16, "0"), service: reason, end: ends[reason] });
  const list = await fixed(page, (l) => (l.items = Object.keys(ends).map(of)));
  const status = await service.api("/status");
  await page.route("**/api/v1/status", (route) => {
    status.ingest.last_arrival = new Date().toISOString();
    return route.fulfill({ json: status });
  });
  await page.goto(service.url);
  await page.getByText("No open incident", { exact: true }).waitFor(); // two may go on
  const ended = page.locator(".state p", { hasText: " closed " });
  assert.deepEqual(
    (await ended.allTextContents()).map((text) => text.replace(/closed .* ago/, "closed")),
    [
      `The last incident (recovered) closed: ${ends.recovered.text}.`,
      `Another one (stopped) closed: ${ends.stopped.text}.`,
      `Another one (no_traces) closed: ${ends.no_traces.text}.`,
    ],
  );
  const signs = { recovered: "✓", accepted: "✓", stopped: "?", no_traces: "?", moved: "→", replaced: "→", merged: "⊂" };
  const detail = await service.api(pathOf(closed));
  for (const x of list.items) {
    const { reason, text } = x.end;
    const unknown = reason === "stopped" || reason === "no_traces";
    const shown = unknown ? /last seen .* ago, after \d+\smin/ : /ended .* ago, lasted \d+\smin/;
    const crumbs = [entry(page, x).locator(".crumbs"), page.locator("main > .crumbs")];
    for (const [i, path] of ["/", pathOf(x)].entries()) {
      if (i > 0) {
        const one = { ...detail, incident: x, earlier: [{ ...x, id: closed.id }] };
        await page.route(`**/api/v1${path}`, (route) => route.fulfill({ json: one }));
        await page.goto(service.url + path);
        await settle(page);
        assert.match(
          await page.locator("#earlier").textContent(),
          new RegExp(`lasted .*: .*${reason === "accepted" ? "Ann <b>" : text}`),
        );
        assert.deepEqual(await violations(page), [], reason);
      }
      assert.equal((await crumbs[i].locator(".badge").textContent()).trim(), `${signs[reason]} closed`);
      assert.match(await crumbs[i].textContent(), shown);
      assert.equal((await crumbs[i].locator(".end").textContent()).replaceAll("\u00a0", " "), `: ${text}`);
      assert.equal(await crumbs[i].locator(".end a").count(), x.end.incident ? 1 : 0);
    }
    await page.goto(service.url);
    await settle(page);
  }
  assert.deepEqual(await violations(page), []);
  for (const width of [360, 768, 1440]) {
    await page.setViewportSize({ width, height: 900 });
    await settle(page);
    assert.deepEqual(await layoutIssues(page), [], `${width}`);
  }
  await entry(page, list.items[4]).locator(".end a").click();
  await page.waitForURL(`${service.url}/incidents/00000000000000ab`);
  await context.close();
});

test("a service that makes other calls has a note, and no alarm", async () => {
  const { page, context } = await open(browser, { timezoneId: "UTC" });
  const text = "makes 11 other calls per 100 requests, as 2.0 was deployed";
  const { items } = await service.api("/services");
  const well = { ...items.at(-1), state: "well", reason: "", worse: [] };
  const note = { since: new Date(Date.now() - 240_000).toISOString(), per_100_requests: 11, version: "2.0", text };
  await page.route(/\/api\/v1\/services(\?|\/|$)/, async (route) => {
    const response = await route.fetch();
    const answer = await response.json();
    // It may be idle: no requests come.
    const is = { changed_calls: note, state: well.state, reason: well.reason, worse: well.worse };
    for (const s of answer.items ?? [answer.service]) if (s.id === well.id) Object.assign(s, is);
    await route.fulfill({ response, json: answer });
  });
  for (const [path, where] of [
    ["/", page.locator("tr", { has: page.locator(`a[data-service="${well.service}"]`) })],
    [`/services?q=${well.service}`, page.locator("tr", { has: page.locator(`a[data-service="${well.service}"]`) })],
    [`/services/${well.id}`, page.locator("main")],
  ]) {
    await page.goto(service.url + path);
    await settle(page);
    await where.getByText(/makes 11 other calls per 100 requests, as 2\.0 was deployed; since .*, 4 min ago/).waitFor();
    await where.locator(".badge.state-well").first().waitFor();
    assert.deepEqual(await violations(page), [], path);
  }
  await context.close();
});

test("keys move between incidents, open, acknowledge and mute them; a muted one is hidden, not forgotten", async () => {
  const { page, context } = await visit(browser, service.url);
  await page.keyboard.press("j");
  const first = await page.evaluate(() => document.activeElement.dataset.incident);
  assert.equal(first, listed.items[0].id);
  await page.keyboard.press("a");
  const dialog = page.getByRole("dialog");
  await dialog.getByText("Acknowledge this incident").waitFor();
  await dialog.getByLabel("Reason (visible to others)").fill("ticket 42");
  await dialog.getByRole("button", { name: "Acknowledge" }).click();
  await dialog.waitFor({ state: "detached" });
  const one = entry(page, { id: first });
  await one.getByText("acknowledged by local").waitFor();
  await until(() => page.evaluate(() => document.activeElement.dataset.incident), first, "the focus is lost");
  await page.keyboard.press("m");
  await dialog.getByRole("button", { name: "Mute" }).click();
  await one.waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Show 1 muted" }).click();
  await page.waitForURL(/muted=shown/);
  await one.getByText("muted by local").waitFor();
  await one.locator("h3 a").focus();
  await page.keyboard.press("Enter");
  await page.locator("#timeline", { hasText: "ticket 42" }).waitFor();
  await page.getByRole("button", { name: "Muted by local" }).click();
  await dialog.getByRole("button", { name: "Unmute" }).click();
  await page.getByRole("button", { name: "Mute …" }).waitFor();
  await page.getByRole("button", { name: "✓ acknowledged by local" }).click();
  await dialog.getByRole("button", { name: "Withdraw" }).click();
  await page.getByRole("button", { name: "Acknowledge", exact: true }).waitFor();
  await page.keyboard.press("p");
  await page.locator(".queue").waitFor();
  await page.keyboard.press("g");
  await one.waitFor();
  await context.close();
});

test("text from traces is escaped", async () => {
  const bad = `<img src=x onerror="document.title='owned'"> \u202ejavascript:alert(1)`;
  const shown = bad.replace("\u202e", "\\u{202e}");
  const hostile = (x) => {
    Object.assign(x, {
      service: bad,
      ...told("sentence", "Requests take longer; all of it is time in ", { name: bad }, "."),
    });
    Object.assign(x.suspects[0], { service: bad, instances: [{ key: bad, value: bad, calls: 1, part: 1 }] });
    x.suspects[0].operations = [{ service: bad, operation: bad, kind: "server", score: 1 }];
    x.request_types[0].name = bad;
    x.annotations = [
      {
        ...{ id: "0".repeat(16), at: x.onset, end: null, kind: "deploy", source: "api", service: bad, version: bad },
        ...{ before: bad, text: bad, title: bad, link: "", tags: [bad] },
      },
    ];
  };
  const { page, context } = await open(browser, { width: 360 });
  await fixed(page, (l) => l.items.forEach(hostile));
  await page.route(`**/api/v1${pathOf(incident)}`, async (route) => {
    const response = await route.fetch();
    const detail = await response.json();
    hostile(detail.incident);
    Object.assign(detail, {
      ...told("next", bad),
      timeline: [{ at: incident.onset, kind: "onset", ...told("text", bad) }],
    });
    await route.fulfill({ response, json: detail });
  });
  for (const path of ["/", pathOf(incident)]) {
    await page.goto(service.url + path);
    await settle(page);
    const heading = path === "/" ? entry(page, incident).locator("h3") : page.locator("h1");
    assert.ok((await heading.textContent()).endsWith(`time in ${shown}.`), await heading.textContent());
    assert.equal(await heading.locator(".name").textContent(), shown);
    assert.equal(await page.locator("main img").count(), 0);
    const wide = await page.evaluate(() =>
      document.documentElement.scrollWidth <= innerWidth
        ? []
        : [...document.querySelectorAll("main *")]
            .filter((e) => !e.closest(".scroll, .virtual") && e.getBoundingClientRect().right > innerWidth + 1)
            .map((e) => e.outerHTML.slice(0, 150)),
    );
    assert.deepEqual(wide, [], `${path} is too wide`);
  }
  await context.close();
});

for (const theme of ["light", "dark"]) {
  test(`both pages fit all widths without violations, ${theme}`, async () => {
    const { page, context } = await open(browser, { theme });
    for (const width of [360, 768, 1440, 1920]) {
      await page.setViewportSize({ width, height: 800 });
      for (const path of ["/", pathOf(incident), pathOf(closed)]) {
        await page.goto(service.url + path);
        await settle(page);
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(overflow <= 0, `${path} is ${overflow} px too wide at ${width}`);
        if (width === 360 || width === 1440) assert.deepEqual(await violations(page), [], `axe: ${path}, ${width}`);
      }
    }
    await context.close();
  });
}

test("a link of a notification opens a dialog, and changes nothing by itself", async () => {
  const { page, context } = await visit(browser, service.url + pathOf(incident) + "?dialog=accept");
  const dialog = page.getByRole("dialog");
  await dialog.getByText(/Sibyl forgets how search/).waitFor();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await dialog.waitFor({ state: "detached" });
  await until(() => new URL(page.url()).search, "");
  for (const [note, title] of [
    ["mute", "Mute this incident"],
    ["acknowledge", "Acknowledge this incident"],
  ]) {
    await page.goto(service.url + pathOf(incident) + `?dialog=${note}`);
    await dialog.getByRole("heading", { name: title }).waitFor();
    assert.deepEqual((await service.api(pathOf(incident))).incident.notes, {}, note);
  }
  await dialog.getByRole("button", { name: "Acknowledge" }).click();
  await page.getByRole("button", { name: /acknowledged by/ }).waitFor();
  await dialog.waitFor({ state: "detached" });
  await page.goto(service.url + pathOf(incident) + "?dialog=acknowledge");
  await page.getByRole("button", { name: /acknowledged by/ }).waitFor();
  assert.equal(await dialog.count(), 0, "a link offers to withdraw the acknowledgement");
  await context.close();
});

test("owners and links of suspects are shown", async () => {
  const { page, context } = await visit(browser, service.url, { waitUntil: "commit" });
  const detail = structuredClone(await service.api(pathOf(incident)));
  detail.incident.owner = detail.incident.suspects[0].owner = { name: "Discovery <b>", contact: "#disco" };
  detail.incident.suspects[0].links = [{ name: "Runbook", url: "https://wiki.invalid/search" }];
  await page.route(`**/api/v1${pathOf(incident)}`, (route) => route.fulfill({ json: detail }));
  await page.goto(service.url + pathOf(incident));
  const suspects = page.getByRole("group", { name: "Suspects" });
  await suspects.getByText("Discovery <b> (#disco)").waitFor();
  assert.equal(
    await suspects.getByRole("link", { name: "Runbook" }).getAttribute("href"),
    "https://wiki.invalid/search",
  );
  assert.match(await page.locator(".facts").first().textContent(), /OwnerDiscovery <b> \(#disco\)/);
  assert.deepEqual(await violations(page), []);
  await context.close();
});

test("accepting explains what it does, asks, and closes the incident", async () => {
  const { page, context } = await visit(browser, service.url + pathOf(incident));
  await page.getByRole("button", { name: "Accept as normal …" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText(/Sibyl forgets how search and the calls to it behaved/).waitFor();
  assert.deepEqual(await violations(page), []);
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await dialog.waitFor({ state: "detached" });
  assert.equal((await service.api(pathOf(incident))).incident.state, "open");
  await page.getByRole("button", { name: "Accept as normal …" }).click();
  await dialog.getByLabel("Reason (visible to others)").fill("more items");
  await dialog.getByRole("button", { name: "Accept as normal" }).click();
  await page
    .locator(".crumbs", { hasText: /local accepted the behaviour since the onset as normal \(more items\)/ })
    .waitFor(); // an epoch
  await until(() => page.getByRole("button", { name: "Accept as normal …" }).count(), 0);
  await context.close();
});
