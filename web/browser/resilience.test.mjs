// Resilience: proxies, views that fail to load, invalid links, extreme names.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, open, viewPaths, settle, until, visit, useService } from "./harness.mjs";

const base = "/sibyl";
let service, browser, paths;
useService({ base }, async (started) => {
  service = started;
  paths = await viewPaths(service);
});
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

test("the UI works behind a proxy that strips the base path, and redirects without a proxy", async () => {
  const stripping = await service.proxy((request) => {
    if (request.url.startsWith(base)) request.url = request.url.slice(base.length) || "/";
  });
  const proxy = stripping + base;
  const { page, context } = await open(browser);
  for (const url of [
    proxy,
    `${proxy}/`,
    proxy + paths.problem,
    `${new URL(service.url).origin}${paths.problem}?by=mean`,
  ]) {
    await page.goto(url);
    await settle(page);
    assert.ok(new URL(page.url()).pathname.startsWith(base), page.url());
    await page
      .locator(url.includes("problems/") ? "#edges" : ".incident")
      .first()
      .waitFor();
  }
  assert.match(page.url(), /by=mean/);
  await context.close();
});

test("a view whose script fails to load shows an error; other views work", async () => {
  const { page, context, issues } = await visit(browser, `${service.url}/problems`);
  await page.route("**/assets/*", (route) => route.fulfill({ status: 404 }));
  await page.locator("a[data-problem]").first().click();
  await page.getByText("This page could not be displayed").waitFor();
  await page.getByRole("link", { name: "Problems" }).click();
  await page.waitForSelector(".queue");
  await page.locator("a[data-problem]").first().click();
  await page.unroute("**/assets/*");
  await page.getByRole("button", { name: "Reload" }).click();
  await page.waitForSelector("#edges");
  issues.length = 0; // React logs the error, too
  await context.close();
});

test("invalid parameters in a URL are ignored", async () => {
  const { page, context } = await open(browser);
  for (const [path, shows] of [
    ["/?muted=x&earlier=x", ".incident"],
    ["/incidents/x", "text=Incident not found"],
    ["/problems?sort=x&state=x&kind=x&onset=x&muted=x&limit=-5", ".queue"],
    ["/tracepoints?show=x&state=x&sort=x&limit=0", "table .badge"],
    [`${paths.tree}x&state=x&node=x&folded=x,,&unfolded=x`, ".vrow"],
    [`${paths.trace}&folded=x&span=x&zoom=x&path=x&only=x`, ".vrow"],
    [`${paths.problem}?by=x&latency=x&edges=x&tables=x,latency-over-time`, "#edges td"],
    [`${paths.compare}&by=x&part=7`, ".diagnosis"],
    [`${paths.compare}&by=duration&longer=x&shorter=-1&from=x`, ".diagnosis"],
    [`/problems?q=${"x".repeat(400)}`, "text=No matching problems"],
    [`/tracepoints?q=${"x".repeat(400)}`, "text=No matching tracepoints"],
    [`/trees?q=${"x".repeat(400)}`, "text=No matching request types"],
    [`/compare?q=${"x".repeat(400)}`, "text=No matching requests"],
    ["/compare?group=x", ".diagnosis"],
    ["/trees/x", "text=Tree not found"],
  ]) {
    await page.goto(service.url + path);
    await settle(page);
    assert.equal(await page.locator(".state.bad").count(), 0, path);
    await page.locator(shows).first().waitFor();
  }
  await context.close();
});

test("copying works without the clipboard API", async () => {
  const { page, context } = await open(browser);
  await page.addInitScript(() => {
    delete Navigator.prototype.clipboard;
    document.addEventListener("copy", () => (globalThis.copied = document.activeElement.value));
  });
  await page.goto(service.url + paths.problem);
  await settle(page);
  await page.getByRole("button", { name: "Share this problem" }).click();
  await page.getByRole("menuitem", { name: "Copy as Markdown" }).click();
  await page.getByText("Copied.").waitFor();
  const toast = await page.locator(".toast p").boundingBox();
  assert.ok(toast.y > 0 && toast.y + toast.height <= page.viewportSize().height, "the toast is out of view");
  assert.ok((await page.evaluate(() => globalThis.copied)).startsWith("**"));
  await context.close();
});

test("a failure to withdraw an override shows a toast", async () => {
  const { page, context } = await open(browser);
  await page.route("**/api/v1/tracepoints/*", async (route) => {
    if (route.request().method() === "DELETE")
      return route.fulfill({
        status: 403,
        contentType: "application/problem+json",
        json: { title: "Forbidden", detail: "this takes the role operator" },
      });
    const response = await route.fetch();
    await route.fulfill({
      response,
      json: {
        ...(await response.json()),
        override: { kind: "forbid", by: "somebody", at: new Date().toISOString(), until: null, forced: false },
      },
    });
  });
  await page.goto(`${service.url}${paths.tree}&state=off`);
  await settle(page);
  await page.locator(".vrow", { hasText: "off" }).first().click();
  await page.getByRole("button", { name: /^Switch/ }).click();
  await page.getByRole("menuitem", { name: "Let the search decide" }).click();
  await page.getByText(/this takes the role operator/).waitFor();
  await context.close();
});

test("new views start at the top, links at their section, and going back restores the position", async () => {
  const { page, context } = await visit(browser, `${service.url}${paths.problem}#exemplars`, { height: 400 });
  const link = page.locator(".exemplars a").first();
  await page.waitForFunction(() => scrollY > 300);
  await page.locator(".diagnosis a").first().click(); // within the view
  await page.waitForFunction(() => location.hash !== "#exemplars");
  await link.click();
  await page.waitForSelector(".vrow");
  await until(() => page.evaluate(() => [scrollY, document.activeElement.id]), [0, "main"]);
  await page.goto(`${service.url}/problems`);
  await settle(page);
  // At once, since an epoch may add rows meanwhile.
  const at = await page.evaluate(() => {
    const last = [...document.querySelectorAll("a[data-problem]")].at(-1);
    last.scrollIntoView();
    last.click();
    return scrollY;
  });
  assert.ok(at > 100, `${at}`);
  await page.waitForSelector("#edges");
  await until(() => page.evaluate(() => scrollY), 0);
  await page.goBack();
  await page.waitForSelector(".queue");
  await page.waitForFunction((y) => Math.abs(scrollY - y) < 50, at);
  await context.close();
});

test("long names and attributes do not widen the page", async () => {
  const { page, context } = await open(browser);
  await page.route("**/api/v1/traces/*", async (route) => {
    const response = await route.fetch();
    const trace = await response.json();
    for (const span of trace.spans)
      Object.assign(span, {
        service: "s".repeat(5000),
        attributes: [{ key: "k".repeat(5000), value: "v".repeat(10_000) }],
      });
    await route.fulfill({ response, json: trace });
  });
  await page.route("**/api/v1/groups/*/compare*", async (route) => {
    const response = await route.fetch();
    const long = {
      key: "k".repeat(5000),
      value: "v".repeat(10_000),
      where: ["w".repeat(5000)],
      service: "s".repeat(5000),
      text: "t".repeat(20_000),
      a_share: 1,
      b_share: 0,
      p_value: 0.001,
      with_ns: 2e6,
      without_ns: 1e6,
      difference_ns: { value: 1e6, low: null, high: null },
    };
    await route.fulfill({
      response,
      json: { ...(await response.json()), attributes: { a: 9, b: 90, items: [long] } },
    });
  });
  for (const path of [paths.unfolded, paths.trace]) {
    await page.goto(service.url + path);
    await page.waitForSelector(path === paths.unfolded ? "#attributes td" : ".vrow");
    if (path === paths.trace) {
      const [name, overflow] = await page
        .locator(".vrow .vname > span[title]")
        .first()
        .evaluate((e) => [e.textContent, e.scrollWidth - e.clientWidth]);
      assert.match(name, / s{10,}…s+$/, "a long service name hides the name of the span");
      assert.ok(overflow < 200, `${overflow} px are cut off`);
      await page.locator(".vrow").first().click();
    }
    const { width, height } = await page.evaluate(() => ({
      width: document.documentElement.scrollWidth - innerWidth,
      height: document.documentElement.scrollHeight,
    }));
    assert.ok(width <= 0, `${path}: ${width} px too wide`);
    assert.ok(height < 6000, `${path}: ${height} px high`);
  }
  await context.close();
});

// The browser allows six connections to a server over HTTP/1. A page that kept its own event stream, also after it was
// left, would stop the seventh.
test("ten loads in one tab, and ten tabs, all show the first page; the first load takes at most 200 KiB", async () => {
  const context = await browser.newContext();
  const shows = async (page) => {
    await page.goto(service.url);
    await page.locator(".incident").first().waitFor({ timeout: 15_000 });
  };
  const first = await context.newPage();
  const requests = [];
  first.on("requestfinished", (request) => requests.push(request));
  await shows(first);
  const load = [...requests]; // without those of other views, which follow when the page is idle
  let bytes = 0;
  for (const request of load)
    if (!request.url().includes("/events")) {
      const { responseBodySize, responseHeadersSize } = await request.sizes();
      bytes += responseBodySize + responseHeadersSize;
    }
  assert.ok(load.length > 3 && bytes <= 200 * 1024, `${load.length} requests, ${bytes} bytes`);
  for (let n = 1; n < 10; n++) await shows(first);
  const tabs = [];
  for (let n = 1; n < 10; n++) tabs.push(await context.newPage());
  await Promise.all(tabs.map(shows));
  await context.close();
});
