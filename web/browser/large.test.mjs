// Speed with much to show. The state is what the API answers: 5 000 problems, a tree of 20 000 nodes, a trace of 50 000 spans.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, open, places, serve, settle } from "./world.mjs";

let service, browser, paths;
before(async () => {
  service = await serve();
  browser = await launch();
  paths = await places(service);
});
after(async () => {
  await browser?.close();
  await service?.stop();
});

// How long things take is printed, not asserted: that depends on the machine, and on what else it does.

// response returns how many ms it takes from an act until the next frame is drawn; 0: less than 16.
const response = async (page, act) => {
  await page.evaluate(() => {
    globalThis.took = 0;
    new PerformanceObserver((list) => list.getEntries().forEach((e) => (globalThis.took = Math.max(globalThis.took, e.duration)))).observe({ type: "event", durationThreshold: 16, buffered: false });
  });
  await act();
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 100))));
  return page.evaluate(() => globalThis.took);
};

// scroll returns the slowest frame, ms, while a list is scrolled through.
const scroll = (page) =>
  page.locator(".virtual").evaluate(async (box) => {
    let slowest = 0;
    let last = performance.now();
    for (let i = 0; i < 60; i++) {
      box.scrollTop += box.scrollHeight / 60;
      await new Promise(requestAnimationFrame);
      const now = performance.now();
      slowest = Math.max(slowest, now - last);
      last = now;
    }
    return Math.round(slowest);
  });

test("5 000 problems", async (t) => {
  const { items } = await service.api("/problems");
  const many = Array.from({ length: 5000 }, (_, i) => ({ ...items[i % items.length], id: i.toString(16).padStart(32, "0"), rank: i + 1 }));
  const { page, context } = await open(browser);
  await page.route("**/api/v1/problems?*", (route) => {
    const limit = Number(new URL(route.request().url()).searchParams.get("limit"));
    return route.fulfill({ json: { items: many.slice(0, limit), next_cursor: "more", epoch: new Date().toISOString(), learning: false } });
  });
  await page.goto(service.url);
  await page.waitForSelector(".queue");
  const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
  t.diagnostic(`first contentful paint after ${Math.round(paint)} ms`);
  const key = await response(page, () => page.keyboard.press("j"));
  t.diagnostic(`j took ${key} ms`);
  await page.goto(`${service.url}/?limit=1000`);
  await page.waitForSelector(".queue tr:nth-child(1000)");
  const menu = await response(page, () => page.getByRole("button", { name: "Theme, time, help" }).click());
  t.diagnostic(`a menu above 1000 rows took ${menu} ms`);
  await context.close();
});

test("a tree of 20 000 nodes", async (t) => {
  const nodes = Array.from({ length: 20_000 }, (_, i) => ({
    index: i, parent: i === 0 ? -1 : Math.floor((i - 1) / 10) * 10, end: i === 0 ? 20_000 : i % 10 === 0 ? Math.min(20_000, i + 11) : i + 1, depth: i === 0 ? 0 : i % 10 === 0 ? 1 : 2,
    context: i.toString(16).padStart(16, "0"), service: `service-${i % 40}`, operation: `operation ${i}`, layer: "app", kind: "span", tracepoint: i.toString(16).padStart(16, "0"), tracepoint_name: `t${i}`,
    state: i % 50 ? "off" : "on", hits_per_request: 1, bytes_per_hit: 300, cost_ns: 2000, requests: 10, errors: 0, history: null, history_investigations: 0, reference_ns: null, seen: null,
  }));
  const { page, context } = await open(browser);
  await page.route("**/api/v1/trees/*", (route) => {
    const query = new URL(route.request().url()).searchParams;
    const from = Number(query.get("cursor") ?? 0);
    const to = from + Number(query.get("limit"));
    return route.fulfill({ json: { request_type: "0".repeat(32), request_type_name: "large", version: "1", nodes: nodes.length, items: nodes.slice(from, to), next_cursor: to < nodes.length ? String(to) : null, matches: [] } });
  });
  await page.goto(service.url + paths.tree);
  await page.waitForSelector(".vrow");
  assert.ok((await page.locator(".vrow").count()) < 100, "rows out of sight exist");
  const frame = await scroll(page);
  t.diagnostic(`slowest frame while scrolling ${frame} ms`);
  const search = await response(page, () => page.locator("[data-search]").fill("operation 1999"));
  t.diagnostic(`search took ${search} ms`);
  await page.getByText("operation 19990").first().waitFor();
  await context.close();
});

test("a trace of 50 000 spans scrolls", async (t) => {
  const id = "a".repeat(32);
  const spans = Array.from({ length: 50_000 }, (_, i) => ({
    id: String(i), parent: i === 0 ? "" : String(Math.floor((i - 1) / 8)), service: `service-${i % 30}`, name: `span ${i}`, kind: "internal", start_ns: i * 1000, duration_ns: 50_000_000 - i * 1000,
    error: false, attributes: [], tracepoint: "", exclusive_ns: i % 3 ? 0 : 1000, percentile: i % 100, among: 12_340,
  }));
  const sections = spans.filter((s) => s.exclusive_ns > 0).map((s) => ({ span: s.id, start_ns: s.start_ns, end_ns: s.start_ns + 1000 }));
  const { page, context } = await open(browser);
  await page.route("**/api/v1/traces/*", (route) => route.fulfill({ json: { id, start: new Date().toISOString(), duration_ns: 50_000_000, flags: [], spans, dropped_spans: 0, links: [], ranked_since: new Date().toISOString(), roots: [{ span: "0", duration_ns: 50_000_000, sections, refined: [] }] } }));
  await page.goto(`${service.url}/traces/${id}`);
  await page.waitForSelector(".vrow");
  assert.ok((await page.locator(".vrow").count()) < 100, "rows out of sight exist");
  const frame = await scroll(page);
  t.diagnostic(`slowest frame while scrolling ${frame} ms`);
  const pick = await response(page, () => page.locator(".vrow").nth(10).click());
  t.diagnostic(`picking a span took ${pick} ms`);
  const box = await page.locator(".minimap").boundingBox();
  await page.mouse.move(box.x + box.width * 0.2, box.y + 20);
  await page.mouse.down();
  const slowest = page.evaluate(async () => {
    let slowest = 0;
    for (let i = 0, last = performance.now(); i < 30; i++) {
      await new Promise(requestAnimationFrame);
      const now = performance.now();
      slowest = Math.max(slowest, now - last);
      last = now;
    }
    return Math.round(slowest);
  });
  await page.mouse.move(box.x + box.width * 0.6, box.y + 20, { steps: 20 });
  t.diagnostic(`slowest frame while zooming ${await slowest} ms`);
  await page.mouse.up();
  await page.waitForURL(/zoom=/);
  assert.ok((await page.locator(".vrow").count()) < 100, "rows out of sight exist");
  await context.close();
});

test("an hour of live updates", async (t) => {
  const { items } = await service.api("/problems");
  const many = Array.from({ length: 5000 }, (_, i) => ({ ...items[i % items.length], id: i.toString(16).padStart(32, "0"), rank: i + 1 }));
  const { page, context } = await open(browser);
  let read = 0;
  await page.route("**/api/v1/problems?*", (route) => {
    read++;
    many.push(many.shift()); // every time in another order
    return route.fulfill({ json: { items: many.slice(0, 100), next_cursor: "more", epoch: new Date().toISOString(), learning: false } });
  });
  // An epoch every 50 ms instead of 10 s.
  await page.addInitScript(() => {
    const real = globalThis.fetch;
    globalThis.fetch = (input, init) => {
      if (!String(input.url ?? input).endsWith("/events")) return real(input, init);
      let n = 0;
      const stream = new ReadableStream({
        async pull(to) {
          await new Promise((done) => setTimeout(done, 50));
          to.enqueue(new TextEncoder().encode(`id: r-${n++}\nevent: epoch\ndata: {"type":"epoch","at":"2026-01-01T00:00:00Z"}\n\n`));
        },
      });
      return Promise.resolve(new Response(stream));
    };
  });
  await page.goto(service.url);
  const epochs = 360;
  await page.waitForTimeout(epochs * 50 + 2000);
  const session = await context.newCDPSession(page);
  await session.send("HeapProfiler.collectGarbage");
  const heap = (await session.send("Runtime.getHeapUsage")).usedSize / (1 << 20);
  t.diagnostic(`${Math.round(heap)} MiB of heap after ${read} updates of 100 problems`);
  assert.ok(read > 50, `the list was read ${read} times`);
  assert.ok(heap < 300, `${heap} MiB of heap`);
  await context.close();
});
