// Unusual states: no data, learning, failures, missing resources, stale data, missing permissions, and live changes.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, open, viewPaths, serve, settle, told, until, violations } from "./harness.mjs";

let service, browser;
before(async () => {
  service = await serve();
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await service?.stop();
});

const problem = {
  status: 500,
  contentType: "application/problem+json",
  body: JSON.stringify({
    type: "about:blank",
    title: "Internal Server Error",
    status: 500,
    detail: "something broke",
    instance: "7",
  }),
};

test("rows keep their order while one is under the pointer or focused", async () => {
  const { page, context } = await open(browser);
  await page.setViewportSize({ width: 1280, height: 4000 }); // all rows are rendered
  const list = await service.api("/problems");
  await page.route("**/api/v1/problems?*", (route) => route.fulfill({ json: list }));
  await page.goto(`${service.url}/problems`);
  await settle(page);
  const order = () => page.locator("a[data-problem]").evaluateAll((links) => links.map((a) => a.dataset.problem));
  const before = await order();
  await page.locator("a[data-problem]").nth(1).hover();
  list.items.reverse();
  await page.getByText(/rows have moved/).waitFor(); // an epoch
  assert.deepEqual(await order(), before);
  await page.locator("a[data-problem]").nth(1).focus();
  await page.locator("[data-search]").focus(); // the pointer stays where it is
  assert.deepEqual(await order(), before);
  await page.mouse.move(5, 5);
  await page.waitForFunction((id) => document.querySelector("a[data-problem]").dataset.problem !== id, before[0]);
  assert.deepEqual(await order(), [...before].reverse());
  await context.close();
});

test("an empty service explains what to do", async () => {
  const empty = await serve({ empty: true });
  const { page, context, issues } = await open(browser);
  await page.goto(empty.url);
  await page.getByText("No requests yet. Learning starts").waitFor();
  await page.getByText("Learning normal behaviour", { exact: true }).waitFor();
  assert.deepEqual(await violations(page), []);
  for (const [path, text] of [
    ["/problems", "No problems yet"],
    ["/trees", "No trees yet"],
    ["/objectives", "No objectives"],
    ["/audit", "No entries"],
    ["/tracepoints", "No tracepoints yet"],
    ["/tracepoints?show=agents", "No agents"],
    ["/compare", "No requests yet"],
  ]) {
    await page.goto(empty.url + path);
    await page.getByText(text, { exact: true }).waitFor();
    assert.deepEqual(await violations(page), []);
  }
  assert.deepEqual(issues, []);
  await empty.stop();
  await page.getByText(/^○ Not live/).waitFor();
  await page.getByText("Sibyl is not responding").waitFor(); // the status is refetched only after events
  await page.goto(`${service.url}/problems`);
  await context.close();
});

test("failures show their reason and a retry; stale data is labelled", async () => {
  const { page, context } = await open(browser);
  let broken = true;
  let quiet = true; // else an event refreshes the page before the button is clicked
  await page.route("**/api/v1/problems?*", (route) => (broken ? route.fulfill(problem) : route.continue()));
  await page.route("**/api/v1/events", (route) => (quiet ? route.abort() : route.continue()));
  await page.goto(`${service.url}/problems`);
  await page.getByText("something broke").waitFor();
  assert.deepEqual(await violations(page), []);
  broken = false;
  await page.getByRole("button", { name: "Try again" }).click();
  await page.waitForSelector(".queue");
  broken = true;
  quiet = false;
  await page.getByText("Stale.").waitFor();
  assert.ok((await page.locator("a[data-problem]").count()) > 0, "the stale list is gone");
  await context.close();
});

test("a tree loads by itself once the service responds", async () => {
  const { page, context } = await open(browser);
  let gone = true;
  await page.route("**/api/v1/trees/*", (route) => (gone ? route.abort() : route.continue()));
  await page.goto(service.url + (await viewPaths(service)).tree);
  await page.getByText("Sibyl is not responding").waitFor();
  gone = false;
  await page.locator(".vrow").first().waitFor();
  await context.close();
});

test("truncated lists say so", async () => {
  const { page, context } = await open(browser);
  const more = async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...(await response.json()), next_cursor: "more" } });
  };
  for (const path of ["trees", "tracepoints", "agents", "webhooks/dead"])
    await page.route(new RegExp(`/api/v1/${path}(\\?|$)`), more);
  for (const path of ["/trees", "/tracepoints?limit=1000", "/status"]) {
    await page.goto(service.url + path);
    await page.getByText("there are more").first().waitFor();
  }
  await context.close();
});

test("missing problems, incidents and traces are reported as not found", async () => {
  const { page, context } = await open(browser);
  await page.goto(`${service.url}/problems/${"0".repeat(32)}`);
  await page.getByText("Problem not found").waitFor();
  await page.goto(`${service.url}/incidents/${"0".repeat(16)}`);
  await page.getByText("Incident not found").waitFor();
  await page.goto(`${service.url}/traces/${"0".repeat(31)}1`);
  await page.getByText("Trace not found").waitFor();
  assert.deepEqual(await violations(page), []);
  await context.close();
});

test("the beginning of an ID, as the CLI prints it, leads to the page", async () => {
  const { page, context } = await open(browser);
  for (const list of ["incidents", "problems", "traces"]) {
    const { id } = (await service.api(`/${list}`)).items[0];
    await page.goto(`${service.url}/${list}/${id.slice(0, 8)}`);
    await page.waitForURL(`${service.url}/${list}/${id}`);
    await page.locator("h1").waitFor();
  }
  await page.goto(`${service.url}/incidents/ffffffff`);
  await page.getByText("Incident not found").waitFor();
  await page.goto(`${service.url}/traces/ffffffff`);
  await page.getByText("Trace not found").waitFor();
  const closed = (await service.api("/problems")).items[0].id.replace(/^.{8}/, "fedcba98");
  await page.route(/\/api\/v1\/problems\?.*closed=true/, (route) =>
    route.fulfill({ json: { items: [{ id: closed }, { id: closed }], total: 2, learning: false } }),
  );
  await page.goto(`${service.url}/problems/fedcba98`);
  await page.waitForURL(`${service.url}/problems/${closed}`);
  await context.close();
});

test("text from traces is escaped", async () => {
  const { page, context } = await open(browser);
  const bad = `<img src=x onerror="document.title='owned'"> javascript:alert(1)`;
  await page.route("**/api/v1/problems?*", async (route) => {
    const response = await route.fetch();
    const list = await response.json();
    for (const p of list.items) Object.assign(p, { ...told("diagnosis", bad), request_type_name: bad, why: bad });
    await route.fulfill({ response, json: list });
  });
  await page.goto(`${service.url}/problems`);
  await settle(page);
  assert.equal(await page.locator("a[data-problem]").first().textContent(), bad);
  assert.equal(await page.locator("main img").count(), 0);
  await context.close();
});

test("below a base path, with tokens: log in, stay logged in, log out", async () => {
  const locked = await serve({ base: "/sibyl", token: "operator" });
  const paths = await viewPaths(locked);
  const { page, context } = await open(browser);
  await page.goto(locked.url + paths.problem);
  await page.getByLabel("Token").fill("wrong");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByText("This token is unknown").waitFor();
  assert.deepEqual(await violations(page), []);
  await page.getByLabel("Token").fill(locked.secret);
  await page.getByRole("button", { name: "Log in" }).click();
  await settle(page);
  await page.waitForSelector(".diagnosis");
  await page.getByText("Live", { exact: true }).waitFor();
  await page.reload();
  await page.waitForSelector(".diagnosis");
  for (const path of Object.values(paths)) {
    await page.goto(locked.url + path);
    await settle(page);
    assert.equal(await page.getByLabel("Token", { exact: true }).count(), 0);
  }
  await page.getByRole("button", { name: "Theme, time, help" }).click();
  await page.getByRole("menuitem", { name: "Log out" }).click();
  await page.getByLabel("Token").waitFor();
  await context.close();
  await locked.stop();
});

test("an expired token on the event stream requires a log-in", async () => {
  const { page, context } = await open(browser);
  let expired = false;
  await page.route("**/api/v1/events", (route) =>
    expired ? route.fulfill({ ...problem, status: 401 }) : route.abort(),
  );
  await page.goto(`${service.url}/problems`);
  await settle(page);
  assert.equal(await page.getByLabel("Token").count(), 0);
  expired = true;
  await page.getByLabel("Token").waitFor();
  await context.close();
});

test("a viewer sees the role that each action requires, and keeps the typed text", async () => {
  const locked = await serve({ token: "viewer" });
  const paths = await viewPaths(locked);
  const { page, context } = await open(browser);
  await page.addInitScript((secret) => sessionStorage.setItem("sibyl.token", secret), locked.secret);
  const denied = async () => {
    await page
      .getByRole("dialog")
      .getByText(/operator/)
      .waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
  };
  await page.goto(locked.url + paths.problem);
  await settle(page);
  for (const verb of ["Acknowledge", "Mute"]) {
    await page.getByRole("button", { name: new RegExp(`^${verb}`) }).click();
    await page.getByLabel("Reason (visible to others)").fill("ticket 42");
    await page.getByRole("dialog").getByRole("button", { name: verb }).click();
    await page
      .getByRole("dialog")
      .getByText(/operator/)
      .waitFor();
    assert.equal(await page.getByLabel("Reason (visible to others)").inputValue(), "ticket 42");
    await denied();
  }
  await page.goto(`${locked.url}${paths.tracepoints}?state=off`);
  for (const verb of ["Enable", "Pin", "Forbid"]) {
    await page
      .getByRole("button", { name: /^Switch/ })
      .first()
      .click();
    await page.getByRole("menuitem", { name: `${verb} …` }).click();
    await page.getByRole("dialog").getByRole("button", { name: verb }).click();
    await denied();
  }
  await page.goto(locked.url + paths.status);
  for (const verb of ["Resend", "Delete"]) {
    await page.getByRole("button", { name: verb }).first().click();
    await page.getByRole("dialog").getByRole("button", { name: verb }).click();
    await denied();
  }
  await page.getByRole("button", { name: "Show" }).first().click();
  await page.locator("pre").waitFor();
  await context.close();
  await locked.stop();
});

test("a page stays live if a proxy cuts the event stream every second, and is not live without events", async () => {
  const { page, context } = await open(browser);
  let connections = 0;
  await page.addInitScript(() => {
    const real = globalThis.fetch;
    globalThis.fetch = async (input, init) => {
      if (!String(input.url ?? input).endsWith("/events")) return real(input, init);
      const cut = new AbortController();
      const response = await real(input, { ...init, signal: AbortSignal.any([init.signal, cut.signal]) });
      setTimeout(() => cut.abort(), 1000);
      return response;
    };
  });
  page.on("request", (request) => (connections += request.url().endsWith("/events") ? 1 : 0));
  await page.goto(`${service.url}/problems`);
  await settle(page);
  const { epoch } = await service.api("/problems?limit=1");
  await page.locator(".under time").first().waitFor();
  await page.locator("a[data-problem]").nth(1).focus();
  const focused = await page.evaluate(() => document.activeElement.dataset.problem);
  await page.waitForFunction(
    (at) => Date.parse(document.querySelector(".under time").dateTime) > Date.parse(at),
    epoch,
  );
  assert.equal(await page.evaluate(() => document.activeElement.dataset.problem), focused);
  await page.evaluate(() => {
    const indicator = document.querySelector(".live");
    globalThis.states = [indicator.textContent];
    new MutationObserver(() => globalThis.states.push(indicator.textContent)).observe(indicator, {
      childList: true,
      characterData: true,
      subtree: true,
    });
  });
  const before = connections;
  await page.waitForTimeout(8000);
  await until(() => connections > before + 1, true, "too few connections");
  assert.deepEqual(await page.evaluate(() => globalThis.states), ["● Live"]);
  await page.route("**/api/v1/events", (route) => route.abort());
  await page.getByText(/^○ Not live/).waitFor();
  await context.close();
});
