// Adverse conditions: deceptive names, silent event streams, slow responses, wrong clocks, denied storage, concurrent
// users.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, open, viewPaths, serve, settle, told, until, useService, violations } from "./harness.mjs";

let service, browser, paths;
useService({}, async (started) => {
  service = started;
  paths = await viewPaths(service);
});
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// events opens an event stream and returns a function that sends an event.
function events(response) {
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  response.write(": events follow\n\n");
  return (type) =>
    response.write(`id: x-1\nevent: ${type}\ndata: {"type":"${type}","at":"${new Date().toISOString()}"}\n\n`);
}

test("control characters in names are escaped", async () => {
  const { page, context } = await open(browser);
  const list = await service.api("/problems");
  const diagnosis = "p99 of GET /\u202etxt.exe is 4× its median; all of it is pay\u200bment\u0000.";
  Object.assign(list.items[0], told("diagnosis", diagnosis));
  await page.route("**/api/v1/problems?*", (route) => route.fulfill({ json: list }));
  await page.goto(`${service.url}/problems`);
  await page.getByText("p99 of GET /\\u{202e}txt.exe is 4× its median; all of it is pay\\u{200b}ment\\u{0}.").waitFor();
  await context.close();
});

test("a silent event stream is replaced", async () => {
  let streams = 0;
  const proxy = await service.proxy(
    (request, response) => request.url.endsWith("/events") && ++streams === 1 && Boolean(events(response)),
  );
  const { page, context } = await open(browser);
  await page.clock.install();
  await page.goto(proxy);
  await page.locator(".live:not(.off)").waitFor();
  await page.clock.fastForward(30_000);
  await pause(200);
  assert.equal(streams, 1);
  await page.clock.fastForward(20_000);
  for (let i = 0; i < 100 && streams < 2; i++) {
    await pause(200); // long enough for a request, else its stream counts as silent, too
    await page.clock.fastForward(1000);
  }
  assert.equal(streams, 2);
  await page.locator(".live:not(.off)").waitFor();
  await context.close();
});

// epochShown returns the end of the epoch that the list of problems shows, in ms.
const epochShown = (page) =>
  page
    .locator(".under time")
    .first()
    .evaluate((e) => Date.parse(e.dateTime));

test("figures follow again after the service restarted, and after a proxy swallowed the stream during a sleep", async () => {
  const own = await serve();
  const swallowed = []; // streams whose events do not arrive any more, while they stay open
  const streams = [];
  const proxy = await own.proxy((request, response) => {
    if (!request.url.endsWith("/events")) return false;
    const write = response.write.bind(response);
    response.write = (...chunk) => swallowed.includes(response) || write(...chunk);
    streams.push(response);
    return false;
  });
  const { page, context, issues } = await open(browser);
  await page.goto(`${proxy}/problems`);
  await page.locator(".live:not(.off)").waitFor();
  await settle(page);
  await own.restart();
  const restarted = Date.parse((await own.api("/status")).epoch.ended ?? 0);
  await until(async () => (await epochShown(page)) > restarted, true, "after the restart");
  await page.locator(".live:not(.off)").waitFor();
  issues.length = 0; // requests failed while the service was down

  swallowed.push(...streams);
  const before = streams.length;
  await page.clock.install();
  await page.clock.fastForward(3_600_000); // timers stop while a computer sleeps
  for (let i = 0; i < 100 && streams.length === before; i++) {
    await pause(100);
    await page.clock.fastForward(1000);
  }
  assert.ok(streams.length > before, "no other stream");
  const slept = await epochShown(page);
  await until(async () => (await epochShown(page)) > slept, true, "after the sleep");
  await context.close();
  await own.stop();
});

test("a hidden page leaves its event stream, and catches up when it is visible again", async () => {
  const streams = [];
  const proxy = await service.proxy((request, response) => {
    if (!request.url.endsWith("/events")) return false;
    const stream = { send: events(response), open: true, id: request.headers["last-event-id"] };
    response.on("close", () => (stream.open = false));
    return streams.push(stream) > 0;
  });
  const { page, context } = await open(browser);
  const show = (hidden) =>
    page.evaluate((hidden) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  await page.clock.install();
  await page.goto(proxy);
  await until(() => streams.length, 1);
  streams[0].send("epoch");
  await page.locator(".live:not(.off)").waitFor();
  await settle(page);
  await show(true);
  await page.clock.fastForward(5000);
  await pause(200);
  assert.equal(streams[0].open, true, "the stream ended at once");
  await page.clock.fastForward(10_000);
  await until(() => streams[0].open, false);
  await page.clock.fastForward(600_000);
  await pause(200);
  assert.equal(streams.length, 1);
  await show(false);
  await until(() => streams.length, 2);
  assert.equal(streams[1].id, "x-1", "the stream does not resume");
  assert.equal(await page.getByText("not responding").count(), 0);
  assert.equal(await page.locator(".live").textContent(), "● Live");
  await context.close();
});

test("visible pages share one event stream, and pages that were left have none", async () => {
  const streams = [];
  const proxy = await service.proxy((request, response) => {
    if (!request.url.endsWith("/events")) return false;
    const { "last-event-id": id, "x-page": page } = request.headers;
    const stream = { send: events(response), open: true, id, page };
    response.on("close", () => (stream.open = false));
    return streams.push(stream) > 0;
  });
  const readers = (of) => new Set(of.map((stream) => stream.page)).size; // Chromium may repeat a request
  const context = await browser.newContext();
  const pages = [];
  for (let i = 0; i < 10; i++) {
    const page = await context.newPage(); // all pages of a headless browser are visible
    await page.setExtraHTTPHeaders({ "x-page": String(i) });
    await page.goto(proxy);
    await page.locator(".live:not(.off)").waitFor();
    pages.push(page);
  }
  assert.equal(readers(streams), 1);
  const reads = (page) => page.evaluate(() => performance.getEntriesByType("resource").length);
  const before = await Promise.all(pages.map(reads));
  for (const { send } of streams) send("incident.opened");
  for (const [i, page] of pages.entries()) await until(async () => (await reads(page)) > before[i], true);
  await pages[0].close(); // the one that reads the stream
  await until(() => readers(streams), 2);
  assert.equal(streams.at(-1).id, "x-1", "the stream does not resume");
  for (let i = 0; i < 10; i++) await pages[1].goto(`${proxy}/${i % 2 ? "" : "services"}`); // the cache keeps some
  await pages[1].locator(".live:not(.off)").waitFor();
  await until(() => readers(streams.filter((stream) => stream.open)), 1);
  await context.close();
});

test("a page says that figures stand still although the service answers", async () => {
  let send;
  const proxy = await service.proxy((request, response) => {
    if (request.url.endsWith("/events")) return Boolean((send = events(response)));
    // The page would correct its clock, which runs ahead of the service's, by the dates of answers.
    const writeHead = response.writeHead.bind(response);
    response.sendDate = false;
    response.writeHead = (code, headers) => writeHead(code, { ...headers, date: [] });
    return false;
  });
  const { page, context } = await open(browser);
  await page.clock.install();
  const status = await service.api("/status");
  status.epoch.ended = new Date().toISOString();
  await page.route("**/api/v1/status", (route) => route.fulfill({ json: status })); // no other epoch ends
  await page.goto(proxy);
  await page.locator(".live:not(.off)").waitFor();
  assert.equal(await page.getByText("No new figures").count(), 0);
  // An event may reach a busy page after its clock has gone on: then the page replaces the stream, and waits anew.
  const shown = page.getByText(/^No new figures for \d+ (s|min|h)\.$/);
  await until(
    async () => {
      send("decision"); // the stream is not silent
      await page.clock.fastForward(10_000);
      return shown.count();
    },
    1,
    "no notice",
    60_000,
  );
  await context.close();
});

test("responses slower than the events that refresh them are shown", async () => {
  const timers = [];
  const proxy = await service.proxy(async (request, response) => {
    if (request.url.endsWith("/events")) {
      const send = events(response);
      timers.push(setInterval(() => (send("epoch"), send("decision")), 300));
      return true;
    }
    if (request.url.includes("/trees")) await pause(1500);
    return false;
  });
  const { page, context } = await open(browser);
  for (const [path, shows] of [
    ["/trees", "main td a"],
    [paths.tree, ".vrow"],
  ]) {
    await page.goto(proxy + path);
    await page.locator(shows).first().waitFor();
  }
  await context.close();
  timers.forEach(clearInterval);
});

test("acknowledging shows and replaces the note of a concurrent user", async () => {
  let send;
  const proxy = await service.proxy(
    (request, response) => request.url.endsWith("/events") && Boolean((send = events(response))),
  );
  const { page, context } = await open(browser);
  for (const path of [paths.problems, paths.problem]) {
    await page.goto(proxy + path);
    await page.locator(".live:not(.off)").waitFor(); // the page receives events
    await settle(page);
    if (path === paths.problems) await page.locator(`a[data-problem="${paths.problem.split("/").at(-1)}"]`).focus();
    await page.keyboard.press("a");
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Reason (visible to others)").fill("mine");
    const put = await fetch(`${service.url}/api/v1${paths.problem}/acknowledge`, {
      method: "PUT",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ text: "theirs" }),
    });
    assert.ok(put.ok, await put.text());
    send("epoch");
    await dialog.getByText("In the meantime:").waitFor();
    await dialog.getByText("theirs").waitFor();
    assert.equal(await dialog.getByLabel("Reason (visible to others)").inputValue(), "mine");
    await dialog.getByRole("button", { name: "Acknowledge", exact: true }).click();
    await dialog.waitFor({ state: "detached" });
    const { problem } = await service.api(paths.problem);
    assert.equal(problem.notes.acknowledged?.text, "mine");
    await fetch(`${service.url}/api/v1${paths.problem}/acknowledge`, { method: "DELETE" });
  }
  await context.close();
});

test("a browser with a wrong clock uses the time of the service", async () => {
  for (const off of [-2, 2]) {
    const { page, context } = await open(browser);
    await page.clock.install({ time: Date.now() + off * 3_600_000 });
    await page.goto(service.url + paths.unfolded);
    await settle(page);
    assert.match(await page.locator(".timeline time").first().textContent(), /now|\b\d+ (s|min) ago/);
    await page.keyboard.press("a");
    await page.getByLabel("For").selectOption("1");
    await page.getByRole("dialog").getByRole("button", { name: "Acknowledge" }).click();
    await page.getByRole("button", { name: /acknowledged by local/ }).waitFor();
    const { problem } = await service.api(paths.problem);
    const left = Date.parse(problem.notes.acknowledged.expires) - Date.now();
    assert.ok(Math.abs(left - 3_600_000) < 60_000, `${left} ms`);
    await fetch(`${service.url}/api/v1${paths.problem}/acknowledge`, { method: "DELETE" });
    await context.close();
  }
});

test("without browser storage, preferences and token last until the page is closed", async () => {
  const locked = await serve({ token: "viewer" });
  const { page, context } = await open(browser);
  await page.addInitScript(() => {
    const none = {
      get() {
        throw new DOMException("denied", "SecurityError");
      },
    };
    for (const name of ["localStorage", "sessionStorage"]) Object.defineProperty(globalThis, name, none);
  });
  await page.goto(`${locked.url}/problems`);
  await page.getByLabel("Token").fill(locked.secret);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.locator("a[data-problem]").first().waitFor();
  await page.getByRole("button", { name: "Theme, time, help" }).click();
  await page.getByRole("menuitemcheckbox", { name: "Dark" }).click();
  await page.waitForFunction(() => document.documentElement.dataset.theme === "dark");
  await context.close();
  await locked.stop();
});

test("log-out clears storage and cache; forbidden actions are explained", async () => {
  const locked = await serve({ token: "viewer" });
  const { page, context } = await open(browser);
  const logIn = async () => {
    await page.getByLabel("Token").fill(locked.secret);
    await page.getByRole("button", { name: "Log in" }).click();
  };
  await page.goto(`${locked.url}/problems`);
  await logIn();
  await page.locator("a[data-problem]").first().click();
  await settle(page);
  await page.keyboard.press("a");
  await page.getByRole("dialog").getByRole("button", { name: "Acknowledge" }).click();
  await page.getByText(/this needs the role operator; yours is viewer/).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Theme, time, help" }).click();
  await page.getByRole("menuitem", { name: "Log out" }).click();
  await page.getByLabel("Token").waitFor();
  assert.equal(await page.evaluate(() => localStorage.length + sessionStorage.length), 0);
  await page.route(/\/api\/v1\/(problems|groups)/, () => {}); // never answered
  await logIn();
  await page.getByText("Loading the problem").waitFor();
  await page.getByRole("link", { name: "Problems", exact: true }).first().click();
  await page.getByText("Loading problems").waitFor();
  assert.equal(await page.locator("h1.diagnosis, a[data-problem]").count(), 0);
  await context.close();
  await locked.stop();
});

test("a page older than the service offers a reload", async () => {
  const { page, context } = await open(browser);
  let send;
  const proxy = await service.proxy(
    (request, response) => request.url.endsWith("/events") && Boolean((send = events(response))),
  );
  const status = page.waitForResponse("**/api/v1/status"); // has the version of the page
  await page.goto(proxy);
  await (await status).finished();
  await page.locator(".live:not(.off)").waitFor(); // the page receives events
  await settle(page);
  assert.equal(await page.getByText("Sibyl was updated").count(), 0);
  const current = await service.api("/status");
  await page.route("**/api/v1/status", (route) => route.fulfill({ json: { ...current, version: "v99" } }));
  send("epoch");
  await page.getByText("Sibyl was updated to version v99.").waitFor();
  await page.unroute("**/api/v1/status");
  await page.getByRole("button", { name: "Reload" }).click();
  await page.getByText("Sibyl was updated to version v99.").waitFor({ state: "detached" });
  await context.close();
});

test("invalid times in a URL are ignored", async () => {
  const { page, context } = await open(browser);
  for (const at of ["9999-12-31T23:59:59Z", "0000-01-01T00:00:00Z", "2026-02-30T10:00:00Z"]) {
    await page.goto(`${service.url}${paths.compare}&by=time&from=${at}&base_from=${at}`);
    await settle(page);
    assert.equal(await page.locator(".state.bad").count(), 0, at);
  }
  await context.close();
});

test("closing a dialog returns the focus to its opener", async () => {
  const { page, context } = await open(browser);
  const focused = () =>
    page.evaluate(
      () =>
        document.activeElement.getAttribute("aria-label") ??
        (document.activeElement.id || document.activeElement.textContent),
    );
  const closed = async () => {
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.waitForFunction(() => document.activeElement !== document.body);
    return focused();
  };
  await page.goto(service.url + paths.problem);
  await settle(page);
  await page.getByRole("button", { name: "Acknowledge", exact: true }).press("Enter");
  assert.equal(await closed(), "Acknowledge");
  await page.getByRole("button", { name: "Theme, time, help" }).press("Enter");
  await page.getByRole("menuitem", { name: "Keyboard shortcuts" }).press("Enter");
  assert.equal(await closed(), "Theme, time, help");
  await page.goto(`${service.url}/problems`);
  await settle(page);
  await page.keyboard.press("j");
  const row = await focused();
  await page.keyboard.press("m");
  assert.equal(await closed(), row);
  await context.close();
});

test("no view is wider than the page on the smallest phone", async () => {
  const { page, context } = await open(browser, { width: 320, height: 480 });
  for (const [name, path] of Object.entries(paths)) {
    await page.goto(service.url + path);
    await settle(page);
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)) <= 0, name);
  }
  await context.close();
});

test("the attributes of a comparison are listed, significant ones at once", async () => {
  const { page, context } = await open(browser);
  const difference = (key, value, p_value) => ({
    key,
    value,
    where: ["shop GET /cart", "bank pay"],
    service: "bank",
    text: `${key} = ${value} at bank pay`,
    a_share: 0.92,
    b_share: 0.03,
    p_value,
    with_ns: 3e8,
    without_ns: 1e8,
    difference_ns: { value: 2e8, low: 1.5e8, high: 2.5e8 },
  });
  let items = [difference("host", "b7", 0.0001), difference("shard", "3", 0.4)];
  await page.route("**/api/v1/groups/*/compare*", async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...(await response.json()), attributes: { a: 13, b: 115, items } } });
  });
  const figure = page.locator("#attributes");
  for (const path of [paths.unfolded, paths.compare]) {
    await page.goto(service.url + path);
    await figure.getByText("From 13 and 115 sampled requests").waitFor();
    assert.deepEqual(await figure.locator("tbody td").allInnerTexts(), [
      "host = b7\nat bank pay",
      "92 %",
      "3 %",
      "+200 ms",
      "< 0.001",
    ]);
    await figure.getByRole("button", { name: "1 more, not significant" }).click();
    await figure.getByText("shard = 3").waitFor();
    await until(() => figure.locator("tbody tr").count(), 2);
  }
  items = items.slice(1);
  await page.goto(service.url + paths.compare);
  await figure.getByText("No attribute differs significantly.").waitFor();
  assert.deepEqual(await violations(page), []);
  await context.close();
});

// hostileDetail returns a problem with explanations that contain text.
const hostileDetail = (detail, text, n) => {
  const place = { edge: "1", label: text, context: [text], service: text, operation: text, kind: "server" };
  const difference = {
    edge: place,
    mean_ns: 2e8,
    rest_ns: 1e8,
    excess_ns: 1e8,
    low_ns: 9e7,
    high_ns: 11e7,
    p_value: 0,
  };
  const many = (one) => Array.from({ length: n }, () => one);
  const recovery = {
    ...told("text", text),
    edge: place,
    level_ns: 1,
    requests: 64,
    mean_ns: 1,
    mean_low_ns: 1,
    mean_high_ns: 1,
    mean_fraction: 0.04,
    p99_ns: 1,
    p99_fraction: 0.05,
  };
  return {
    ...detail,
    joint_correlation: 0.71,
    unrelated: many({ variable: text, where: [text, text] }),
    contrasts: many({
      ...told("text", text),
      key: text,
      value: text,
      requests: 9,
      rest: 90,
      duration: difference,
      edges: [difference],
    }),
    what_if: [...many(recovery), { ...recovery, ...told("text", "too little"), p99_fraction: 0.049 }],
    common: many({
      ...told("text", text),
      edges: [{ request_type: text, request_type_id: "0".repeat(32), context: [text] }],
      correlation: 0.6,
      p_value: 0.004,
    }),
  };
};

const causeTitles = ["Slower than others", "What if", "Rise and fall together"];

test("deceptive and long explanations are escaped and stay within the page", async () => {
  const deceptive = `<img src=x onerror="document.title='owned'"> \u202etxt.exe [x](javascript:alert(1))`;
  const shown = deceptive.replace("\u202e", "\\u{202e}");
  for (const [theme, width] of [
    ["light", 1280],
    ["dark", 320],
  ]) {
    const { page, context } = await open(browser, { theme, width });
    let text = deceptive;
    await page.route("**/api/v1/problems/*", async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: hostileDetail(await response.json(), text, 5) });
    });
    await page.goto(service.url + paths.problem);
    await settle(page);
    for (const title of causeTitles) {
      const figure = page.getByRole("region", { name: title });
      assert.deepEqual(await figure.locator("li:visible").allTextContents(), Array(2).fill(shown), title);
      await figure.getByText("3 more").click();
      await until(() => figure.locator("li:visible").count(), 5, title);
    }
    const attributes = page.locator("#explanations");
    assert.equal(await attributes.locator("li:visible").count(), 0);
    await attributes.getByText("Unrelated attributes · Joint correlation").click();
    await attributes.getByText("correlate with the duration by 0.71 (0 to 1)").waitFor();
    assert.equal(await attributes.locator("li:visible").first().textContent(), `${shown} ${shown}`);
    assert.equal(await page.locator("main img").count(), 0);
    assert.notEqual(await page.title(), "owned");
    assert.deepEqual(await violations(page), []);
    text = "w".repeat(20_000);
    await page.goto(service.url + paths.problem);
    await settle(page);
    const { wide, high } = await page.evaluate(() => ({
      wide: document.documentElement.scrollWidth - innerWidth,
      high: Math.max(...[...document.querySelectorAll(".findings li")].map((e) => e.clientHeight)),
    }));
    assert.ok(wide <= 0, `${wide} px too wide`);
    assert.ok(high < 300, `a finding is ${high} px high`);
    await context.close();
  }
});

test("a problem without slower hosts, recoveries and common places has no headings for them", async () => {
  const { page, context } = await open(browser);
  await page.route("**/api/v1/problems/*", async (route) => {
    const response = await route.fetch();
    const json = { ...hostileDetail(await response.json(), "", 0), joint_correlation: null };
    await route.fulfill({ response, json });
  });
  await page.goto(service.url + paths.problem);
  await settle(page);
  for (const title of causeTitles) assert.equal(await page.getByRole("region", { name: title }).count(), 0, title);
  assert.equal(await page.locator("#explanations details").count(), 0);
  await context.close();
});
