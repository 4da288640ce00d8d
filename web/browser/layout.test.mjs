// The layout of every view at the widths of phones, tablets, halves of screens and screens.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, serve, settle, viewPaths, visit } from "./harness.mjs";
import { layoutIssues } from "./layout.mjs";

const widths = [360, 390, 480, 600, 720, 768, 820, 900, 1024, 1200, 1440, 1920];

let service, browser, paths;
before(async () => {
  service = await serve();
  browser = await launch();
  paths = await viewPaths(service);
});
after(async () => {
  await browser?.close();
  await service?.stop();
});

test("nothing overflows, overlaps or leaves its box, at any width", async (t) => {
  for (const [name, path] of Object.entries(paths)) {
    await t.test(name, async () => {
      const { page, context } = await visit(browser, service.url + path, { width: widths[0] });
      const issues = [];
      for (const width of widths) {
        await page.setViewportSize({ width, height: 900 });
        await settle(page);
        for (const issue of await layoutIssues(page)) issues.push(`${width}: ${issue}`);
      }
      await context.close();
      assert.deepEqual(issues, []);
    });
  }
});

test("the page of a usual problem fits on two screens, and the latency since the onset on the first", async () => {
  const { page, context } = await visit(browser, service.url, { width: 1440, height: 900 });
  const heights = [];
  for (const { id } of (await service.api("/problems")).items) {
    await page.goto(`${service.url}/problems/${id}`);
    await settle(page);
    const [height, latency] = await page.evaluate(() => [
      document.documentElement.scrollHeight,
      document.querySelector("#latency").getBoundingClientRect().bottom,
    ]);
    heights.push(height);
    assert.ok(latency <= 900, `the latency of ${id} ends at ${latency} px`);
  }
  heights.sort((a, b) => a - b);
  assert.ok(heights[heights.length >> 1] <= 1800, `the pages are ${heights.join(", ")} px high`);
  await context.close();
});

// The services of the test are well most of the time. Figures of others are marked, which makes them wider.
test("marked figures of services fit on a phone", async () => {
  const { page, context } = await visit(browser, service.url, { width: 360 });
  await page.waitForSelector(".fleet .beside");
  const issues = [];
  for (const figures of [
    ["▲ 0.205/s", "▲ 99 %", "▲ 12.3 ms", "▲ 999 µs"],
    ["▲ 1,234/s", "▲ 9.8 %", "▲ 1.67 min", "▲ 12.3 s"],
  ]) {
    await page.evaluate((figures) => {
      for (const row of document.querySelectorAll(".fleet tbody tr"))
        [...row.querySelectorAll(".number .beside")].forEach((beside, at) => {
          beside.classList.add("notable");
          beside.firstElementChild.textContent = figures[at];
        });
    }, figures);
    issues.push(...(await layoutIssues(page)));
  }
  await context.close();
  assert.deepEqual(issues, []);
});

// Without this the test above could pass on pages that it does not see.
test("the checks find what is broken", async () => {
  const { page, context } = await visit(browser, service.url, { width: 800 });
  const broken = {
    "too wide": `<div style="width: 900px">wide</div>`,
    overlap: `<p>text below</p><p style="margin-top: -1.5em">text above</p>`,
    "outside of its box": `<button style="width: 40px; white-space: nowrap">much too long</button>`,
    "broken into": `<table style="width: 30px"><tr><th style="white-space: normal; overflow-wrap: anywhere">Errors</th></tr></table>`,
    "px high": `<p style="width: 20px; overflow-wrap: anywhere">a column that is too narrow for words, and so becomes a tower</p>`,
  };
  for (const [issue, html] of Object.entries(broken)) {
    await page.evaluate((html) => (document.body.innerHTML = `<main>${html}</main>`), html);
    const found = await layoutIssues(page);
    assert.ok(
      found.some((text) => text.includes(issue)),
      `${issue}: ${found.join("; ")}`,
    );
  }
  await page.evaluate(() => (document.body.innerHTML = "<main><h1>Fine</h1><p>Two lines<br>of text.</p></main>"));
  assert.deepEqual(await layoutIssues(page), []);
  await context.close();
});
