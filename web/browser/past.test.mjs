// The past: the day behind a chart, longer spans, and closed problems.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, open, serve, settle, told, viewPaths, violations } from "./harness.mjs";

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

const screenshots = process.env.SCREENSHOTS; // a directory; empty: none are taken
const shot = async (page, name) => screenshots && (await page.screenshot({ path: `${screenshots}/${name}.png` }));

// weekday is the name of the day some days ago, in UTC.
const weekday = (ago) =>
  new Date(Date.now() - ago * 86_400_000).toLocaleDateString("en-GB", { weekday: "short", timeZone: "UTC" });

for (const theme of ["light", "dark"]) {
  test(`a chart shows yesterday and last week behind it, ${theme}`, async () => {
    const { page, context } = await open(browser, { theme, timezoneId: "UTC" });
    await page.goto(service.url + paths.problem);
    await settle(page);
    const chart = page.locator("#latency");
    assert.equal(await chart.locator("svg.chart .past[points*=',']").count(), 0);
    const behind = chart.getByLabel("Behind");
    await behind.focus();
    await page.keyboard.press("y");
    await chart.getByText(`yesterday, ${weekday(1)}`).waitFor();
    await chart.locator("svg.chart .past[points*=',']").nth(1).waitFor({ state: "attached" });
    assert.match(page.url(), /before=yesterday/);
    await shot(page, `past-heatmap-${theme}`);
    const p99 = async () => {
      const points = (await chart.locator("svg.chart .past").first().getAttribute("points")).split(" ");
      return points.map((p) => p.split(",").map(Number));
    };
    const yesterday = await p99();
    const width = (await chart.locator("svg.chart").first().boundingBox()).width;
    assert.ok(yesterday[0][0] < 70 && yesterday.at(-1)[0] > width - 20, "the line fills the chart");
    await behind.selectOption({ label: "last week" }); // a second letter would continue the first for a while
    await chart.getByText(`last week, ${weekday(7)}`).waitFor();
    const isHigher = async () => (await p99())[0][1] < yesterday[0][1]; // the scale of the chart may follow later
    for (let tries = 0; !(await isHigher()) && tries < 1200; tries++) await page.waitForTimeout(50);
    assert.ok(await isHigher(), "last week was slower, so that its line is higher");
    await chart.getByRole("button", { name: "Lines" }).click();
    await chart.getByText("P99 last week").waitFor();
    await settle(page);
    assert.deepEqual(await violations(page), []);
    await shot(page, `past-lines-${theme}`);
    await page.reload();
    await chart.getByText("P99 last week").waitFor();
    await behind.selectOption("nothing");
    await chart.getByText("P99 last week").waitFor({ state: "detached" });
    assert.doesNotMatch(page.url(), /before=/);
    await context.close();
  });
}

test("the table of a chart has the mean of the other day", async () => {
  const { page, context } = await open(browser);
  await page.goto(`${service.url}${paths.problem}?before=yesterday&tables=latency-over-time`);
  const table = page.locator("#latency").getByRole("group", { name: "Table" });
  await table.getByText("mean yesterday (ms)").waitFor();
  await table.locator("tbody tr:last-child td:last-child:not(:text('–'))").waitFor();
  await context.close();
});

test("a chart shows a day and a week", async () => {
  const { page, context } = await open(browser);
  await page.goto(`${service.url}${paths.problem}?range=7d`);
  const chart = page.locator("#latency");
  await chart.locator(".lines canvas").waitFor();
  await settle(page);
  await shot(page, "past-week");
  await page.goto(`${service.url}${paths.problem}?range=1d`);
  await chart.locator("svg.chart").first().waitFor();
  await chart.getByLabel("Behind").selectOption("yesterday");
  await chart.getByText(/yesterday, \w/).waitFor();
  await settle(page);
  assert.deepEqual(await violations(page), []);
  await shot(page, "past-day");
  await context.close();
});

test("a group without a past says so", async () => {
  const { page, context } = await open(browser);
  await page.route("**/history?**", (route) =>
    route.fulfill({ json: { from: "2026-01-01T00:00:00Z", to: "2026-01-02T00:00:00Z", windows: [], compared: [] } }),
  );
  await page.goto(`${service.url}${paths.problem}?before=yesterday`);
  await page.getByText(/There is no data for yesterday, /).waitFor();
  await context.close();
});

test("an incident shows the latency of its request types", async () => {
  const { page, context } = await open(browser);
  const { items } = await service.api("/incidents");
  const closed = items.find((x) => x.state === "closed") ?? items[0];
  await page.goto(`${service.url}/incidents/${closed.id}?before=last_week`);
  await page
    .getByText(/last week, \w/)
    .first()
    .waitFor();
  await page
    .getByText(/last week, \w/)
    .first()
    .scrollIntoViewIfNeeded();
  await settle(page);
  assert.deepEqual(await violations(page), []);
  await shot(page, "past-incident");
  await context.close();
});

test("closed problems are listed and opened", async () => {
  const { page, context } = await open(browser);
  const { items } = await service.api("/problems");
  const open1 = items.find((p) => `/problems/${p.id}` === paths.problem);
  const after = (minutes) => new Date(Date.parse(open1.since) + minutes * 60_000).toISOString();
  const closed = { ...open1, closed: after(4) };
  await page.route("**/api/v1/problems?*closed=true*", (route) =>
    route.fulfill({
      json: {
        items: [closed, { ...closed, closed: after(2) }],
        next_cursor: null,
        total: 2,
        epoch: null,
        learning: false,
      },
    }),
  );
  await page.route(`**/api/v1/problems/${closed.id}`, async (route) => {
    const detail = await (await route.fetch()).json();
    await route.fulfill({
      json: { ...detail, problem: closed, ...told("next", "Nothing to do: the problem has closed.") },
    });
  });
  await page.goto(`${service.url}/problems`);
  await page.getByRole("button", { name: "Closed", exact: true }).click();
  const list = page.getByRole("group", { name: "Closed problems" });
  await list.getByRole("link").first().waitFor();
  assert.equal(await list.getByRole("link").count(), 2);
  assert.deepEqual(await violations(page), []);
  await shot(page, "past-closed-problems");
  await list.getByRole("link").first().click();
  await page.getByText("Nothing to do: the problem has closed.").waitFor();
  await page.getByText("few to many requests").waitFor();
  assert.equal(await page.getByRole("button", { name: "Acknowledge" }).count(), 0);
  await settle(page);
  assert.deepEqual(await violations(page), []);
  await shot(page, "past-closed-problem");
  await context.close();
});
