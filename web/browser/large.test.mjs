// Performance with a large state: the real service with 5 000 problems of 3 600 operations, a tree of 20 000 nodes, and
// a continuous input of spans. Only the response with the trace of 50 000 spans is synthetic.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, open, serve } from "./harness.mjs";

// Updates to wait for; an hour of epochs of ten seconds has 360.
const updates = Number(process.env.UPDATES ?? 45);

let service, browser;
before(async () => {
  service = await serve({ large: true, args: ["--epoch", "1s"] });
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await service?.stop();
});

// Durations are printed, not asserted, since they depend on the machine and its load.

// response returns the ms from an action until the next frame is drawn; 0 if fewer than 16.
const response = async (page, action) => {
  await page.evaluate(() => {
    globalThis.took = 0;
    new PerformanceObserver((list) =>
      list.getEntries().forEach((e) => (globalThis.took = Math.max(globalThis.took, e.duration))),
    ).observe({ type: "event", durationThreshold: 16, buffered: false });
  });
  await action();
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 100))));
  return page.evaluate(() => globalThis.took);
};

// scroll scrolls through a list and returns the slowest frame in ms.
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

const toEnd = (page) => page.evaluate(() => scrollTo(0, document.body.scrollHeight));

// until waits until a condition holds.
async function until(description, condition) {
  for (let i = 0; !(await condition()); i++) {
    assert.ok(i < 600, `timeout: ${description}`);
    await new Promise((done) => setTimeout(done, 100));
  }
}

test("the API with 5 000 problems", async (t) => {
  const { items, total } = await service.api("/problems?limit=1");
  const status = await service.api("/status");
  assert.ok(total >= 5000 && status.groups >= 2000, `${total} problems, ${status.groups} groups`);
  const { items: trees } = await service.api("/trees?q=batch");
  assert.ok(trees[0].nodes >= 20_000, `a tree of ${trees[0].nodes} nodes`);
  for (const path of [
    "/problems?limit=200",
    "/problems?limit=200&sort=impact&q=orders",
    `/problems/${items[0].id}`,
    `/groups/${items[0].group}`,
    "/groups?limit=1000",
    `/trees/${trees[0].request_type}?limit=1000`,
    "/decisions",
  ]) {
    const took = [];
    for (let i = 0; i < 20; i++) {
      const began = performance.now();
      await service.api(path);
      took.push(performance.now() - began);
    }
    took.sort((a, b) => a - b);
    t.diagnostic(
      `${path.replace(/[0-9a-f]{32}/, "…")}: ${took[10].toFixed(1)} ms in the median, ${took[19].toFixed(0)} ms at most`,
    );
  }
});

test("the list of 5 000 problems", async (t) => {
  const { page, context } = await open(browser);
  await page.goto(`${service.url}/problems`);
  await page.waitForSelector(".queue a[data-problem]");
  const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
  t.diagnostic(`first contentful paint after ${Math.round(paint)} ms`);
  t.diagnostic(`j took ${await response(page, () => page.keyboard.press("j"))} ms`);
  const last = () => page.locator(".queue tbody tr[aria-rowindex]").last().getAttribute("aria-rowindex").then(Number);
  const { total } = await service.api("/problems?limit=1");
  await until("the end of the list is reached", async () => {
    await toEnd(page);
    return (await last()) > total * 0.99;
  });
  const rows = await page.locator(".queue a[data-problem]").count();
  assert.ok(rows < 200, `${rows} rows are rendered, though few are in view`);
  t.diagnostic(`at the end of ${total} problems, ${rows} rows are rendered`);
  t.diagnostic(
    `a menu took ${await response(page, () => page.getByRole("button", { name: "Theme, time, help" }).click())} ms`,
  );
  await page.keyboard.press("Escape");
  await page.evaluate(() => scrollTo(0, 0));
  t.diagnostic(`sorting took ${await response(page, () => page.getByRole("button", { name: /^Impact/ }).click())} ms`);
  await page.waitForSelector("th[aria-sort=descending]");
  t.diagnostic(
    `the slowest letter of a search took ${await response(page, () => page.locator("[data-search]").pressSequentially("tariffs"))} ms`,
  );
  await until("only matches are listed", async () =>
    (await page.locator(".queue a[data-problem]").allTextContents()).every((text) => text.includes("tariffs")),
  );
  const found = await service.api("/problems?limit=1&q=tariffs");
  await page.getByText(`${found.total} problems`).waitFor();
  await context.close();
});

test("acknowledging one of 5 000 problems", async (t) => {
  const { page, context } = await open(browser);
  const { items } = await service.api("/problems?limit=1");
  await page.goto(`${service.url}/problems/${items[0].id}`);
  t.diagnostic(
    `the dialog took ${await response(page, () => page.getByRole("button", { name: "Acknowledge" }).click())} ms`,
  );
  await page.getByRole("dialog").getByRole("button", { name: "Acknowledge" }).click();
  await page.getByRole("button", { name: /acknowledged by/ }).waitFor();
  await context.close();
});

test("a tree of 20 000 nodes", async (t) => {
  const { items } = await service.api("/trees?q=batch");
  const { page, context } = await open(browser);
  const began = Date.now();
  await page.goto(`${service.url}/trees/${items[0].request_type}`);
  await page.waitForSelector(".vrow");
  t.diagnostic(`loaded after ${Date.now() - began} ms`);
  assert.ok((await page.locator(".vrow").count()) < 100, "rows out of view are rendered");
  t.diagnostic(`slowest frame while scrolling ${await scroll(page)} ms`);
  t.diagnostic(
    `search took ${await response(page, () => page.locator("[data-search]").fill("call 39 of threads"))} ms`,
  );
  await page.getByText("call 39 of threads").first().waitFor();
  await context.close();
});

test("a trace of 50 000 spans", async (t) => {
  const id = "a".repeat(32);
  const spans = Array.from({ length: 50_000 }, (_, i) => ({
    id: String(i),
    parent: i === 0 ? "" : String(Math.floor((i - 1) / 8)),
    service: `service-${i % 30}`,
    name: `span ${i}`,
    kind: "internal",
    start_ns: i * 1000,
    duration_ns: 50_000_000 - i * 1000,
    error: false,
    attributes: [],
    tracepoint: "",
    exclusive_ns: i % 3 ? 0 : 1000,
    percentile: i % 100,
    among: 12_340,
  }));
  const sections = spans
    .filter((s) => s.exclusive_ns > 0)
    .map((s) => ({ span: s.id, start_ns: s.start_ns, end_ns: s.start_ns + 1000 }));
  const { page, context } = await open(browser);
  await page.route("**/api/v1/traces/*", (route) =>
    route.fulfill({
      json: {
        id,
        start: new Date().toISOString(),
        duration_ns: 50_000_000,
        flags: [],
        spans,
        dropped_spans: 0,
        links: [],
        ranked_since: new Date().toISOString(),
        roots: [{ span: "0", duration_ns: 50_000_000, sections, refined: [] }],
      },
    }),
  );
  await page.goto(`${service.url}/traces/${id}`);
  await page.waitForSelector(".vrow");
  assert.ok((await page.locator(".vrow").count()) < 100, "rows out of view are rendered");
  const frame = await scroll(page);
  t.diagnostic(`slowest frame while scrolling ${frame} ms`);
  const pick = await response(page, () => page.locator(".vrow").nth(10).click());
  t.diagnostic(`selecting a span took ${pick} ms`);
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
  assert.ok((await page.locator(".vrow").count()) < 100, "rows out of view are rendered");
  await context.close();
});

// traffic returns traces of current requests to the operations of problems, each with one call. From time to time they
// are slower.
function traffic(problems, round) {
  const hex = (n) =>
    [...crypto.getRandomValues(new Uint8Array(n))].map((x) => x.toString(16).padStart(2, "0")).join("");
  const requests = problems.flatMap((p, i) => {
    const [, service, name, callee] = /^(\S+) (GET \S+) \((.+)\)$/.exec(p.request_type_name) ?? [];
    if (!service) return [];
    return Array.from({ length: 5 }, () => {
      const took = BigInt(Math.round(p.mean_ns * (i % 10 === 1 && round % 20 > 10 ? 4 : 1) * (0.5 + Math.random())));
      const end = BigInt(Date.now()) * 1_000_000n;
      const [trace, root] = [hex(16), hex(8)];
      const span = (id, parent, name, kind, longer) => ({
        traceId: trace,
        spanId: id,
        parentSpanId: parent,
        name,
        kind,
        startTimeUnixNano: String(end - took - longer),
        endTimeUnixNano: String(end + longer),
      });
      return { service, spans: [span(root, "", name, 2, 50_000n), span(hex(8), root, callee, 3, 0n)] };
    });
  });
  return {
    resourceSpans: requests.map(({ service, spans }) => ({
      resource: { attributes: [{ key: "service.name", value: { stringValue: service } }] },
      scopeSpans: [{ spans }],
    })),
  };
}

// openWithoutDebugger opens a page in a browser of its own. A debugger makes the browser keep all responses (measured:
// 200 MiB).
function openWithoutDebugger(url) {
  const profile = mkdtempSync(join(tmpdir(), "sibyl-page-"));
  const child = spawn(
    process.env.CHROMIUM,
    [
      "--headless",
      "--no-sandbox",
      "--disable-dev-shm-usage",
      "--remote-debugging-port=0",
      `--user-data-dir=${profile}`,
      "--window-size=1280,800",
      url,
    ],
    { stdio: "ignore" },
  );
  const read = (pid, name) => {
    try {
      return readFileSync(`/proc/${pid}/${name}`, "utf8");
    } catch {
      return ""; // the process has ended
    }
  };
  return {
    // memory returns the private memory in MiB of the renderer process of the page.
    memory: () => {
      const renderers = readdirSync("/proc").filter((pid) =>
        ["--type=renderer", profile].every((text) => read(pid, "cmdline").includes(text)),
      );
      return Math.max(...renderers.map((pid) => Number(/RssAnon:\s+(\d+)/.exec(read(pid, "status"))?.[1] ?? 0) / 1024));
    },
    stop: () => new Promise((done) => (child.once("exit", done), child.kill("SIGTERM"))),
  };
}

test("live updates", async (t) => {
  const { page, context } = await open(browser);
  await page.addInitScript(() => {
    const real = globalThis.fetch;
    globalThis.received = { epoch: 0, others: 0, reads: 0 };
    globalThis.fetch = async (input, init) => {
      const url = String(input.url ?? input);
      if (url.includes("/problems?")) globalThis.received.reads++;
      const response = await real(input, init);
      if (!url.endsWith("/events")) return response;
      const [mine, its] = response.body.pipeThrough(new TextDecoderStream()).tee();
      void (async () => {
        for (const from = mine.getReader(); ;) {
          const { done, value } = await from.read();
          if (done) return;
          for (const [, type] of value.matchAll(/^event: (\w+)/gm))
            globalThis.received[type === "epoch" ? "epoch" : "others"]++;
        }
      })();
      return new Response(its.pipeThrough(new TextEncoderStream()), response);
    };
  });
  await page.goto(`${service.url}/problems`);
  await page.waitForSelector(".queue a[data-problem]");
  for (let i = 0; i < 3; i++) {
    await toEnd(page);
    await page.waitForTimeout(500);
  }
  const other = openWithoutDebugger(`${service.url}/problems`);
  t.after(other.stop);
  const { items } = await service.api("/problems?limit=100");
  const received = () => page.evaluate(() => globalThis.received);
  let slowest = 0;
  for (let round = 0; (await received()).epoch < updates; round++) {
    assert.ok(round < updates * 10, "too few epochs");
    await service.send(traffic(items, round));
    slowest = Math.max(slowest, await response(page, () => page.keyboard.press("j")));
    await page.waitForTimeout(350);
  }
  const { epoch, others, reads } = await received();
  const own = other.memory();
  const session = await context.newCDPSession(page);
  await session.send("HeapProfiler.collectGarbage");
  const heap = (await session.send("Runtime.getHeapUsage")).usedSize / (1 << 20);
  const status = await service.api("/status");
  t.diagnostic(
    `${epoch} epochs and ${others} other events, ${status.ingest.spans} spans; the list was read ${reads} times`,
  );
  t.diagnostic(
    `a page uses ${Math.round(own)} MiB, the heap of this one ${Math.round(heap)} MiB; the slowest key took ${slowest} ms`,
  );
  assert.ok(reads >= updates / 2, `the list was read ${reads} times`);
  assert.ok(own > 10, `${own} MiB: measured an empty page`);
  assert.ok(heap < 300 && own < 300, `${own} MiB, ${heap} MiB of heap`);
  await context.close();
});
