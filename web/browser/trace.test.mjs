// The trace view: the overview above the waterfall, gaps, and percentiles of spans.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, viewPaths, serve, settle, until, violations, visit } from "./harness.mjs";

let service, browser, path;
before(async () => {
  service = await serve();
  browser = await launch();
  path = (await viewPaths(service)).trace;
});
after(async () => {
  await browser?.close();
  await service?.stop();
});

const scale = (page) => page.locator(".waterfall .scale").innerText();

test("dragging on the overview zooms, sets the URL, and can be reset", async () => {
  const { page, context } = await visit(browser, service.url + path);
  const whole = await scale(page);
  const box = await page.locator(".minimap").boundingBox();
  await page.mouse.move(box.x + box.width * 0.3, box.y + 20);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.5, box.y + 20, { steps: 4 });
  await page.waitForFunction((whole) => document.querySelector(".waterfall .scale").innerText !== whole, whole);
  assert.doesNotMatch(page.url(), /zoom=/, "the URL changes during the drag");
  await page.mouse.up();
  await page.waitForURL(/zoom=\d+-\d+/);
  const part = await scale(page);
  const other = await context.newPage();
  await other.goto(page.url());
  await settle(other);
  assert.equal(await scale(other), part);
  // Dragging the box moves it.
  await page.mouse.move(box.x + box.width * 0.4, box.y + 20);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.9, box.y + 20, { steps: 4 });
  await page.mouse.up();
  await page.waitForFunction((part) => document.querySelector(".waterfall .scale").innerText !== part, part);
  const end = async () => (await scale(page)).split("\n").at(-1);
  await until(end, whole.split("\n").at(-1), "the box does not stop at the end");
  assert.deepEqual(await violations(page), []);
  await page.getByRole("button", { name: "Reset zoom" }).click();
  await page.waitForFunction((whole) => document.querySelector(".waterfall .scale").innerText === whole, whole);
  await context.close();
});

test("on a phone the names of spans are not cut, and rows do not overlap", async () => {
  const { page, context } = await visit(browser, service.url + path, { width: 360 });
  const rows = await page.locator(".waterfall .vrow").evaluateAll((all) =>
    all.map((e) => {
      const name = e.querySelector(".vname > span[title]");
      const { top, bottom } = e.getBoundingClientRect();
      return {
        top,
        bottom,
        text: name.textContent,
        cut: name.scrollWidth - name.clientWidth,
        depth: parseInt(e.querySelector(".vname").style.getPropertyValue("--depth")),
      };
    }),
  );
  assert.ok(rows.length > 5, `${rows.length} rows`);
  for (const row of rows.filter((r) => r.depth < 12 && r.text.length < 40))
    assert.ok(row.cut <= 0, `${row.text}: ${row.cut} px`);
  for (let i = 1; i < rows.length; i++) assert.ok(Math.abs(rows[i].top - rows[i - 1].bottom) < 1, `row ${i}`);
  await context.close();
});

test("keys zoom and move the visible range", async () => {
  const { page, context } = await visit(browser, service.url + path);
  const zoom = () => new URL(page.url()).searchParams.get("zoom")?.split("-").map(Number);
  const slider = (name) => page.getByRole("slider", { name: new RegExp(`^${name}`) });
  await slider("Start of the visible range").press("Shift+ArrowRight");
  await page.waitForURL(/zoom=/);
  const [from, to] = zoom();
  assert.ok(Math.abs(from / to - 0.1) < 0.001, `from ${from} to ${to}`);
  await slider("Visible range").press("+");
  await page.waitForFunction((was) => !location.search.includes(was), `zoom=${from}-${to}`);
  const [nearer, end] = zoom();
  assert.ok(Math.abs((end - nearer) / (to - from) - 0.5) < 0.001, `${nearer} to ${end}`);
  await slider("Visible range").press("ArrowLeft");
  await page.waitForFunction((was) => !location.search.includes(was), `zoom=${nearer}-${end}`);
  assert.ok(zoom()[0] < nearer && Math.abs(zoom()[1] - zoom()[0] - (end - nearer)) < 2, `moved to ${zoom()}`);
  await slider("Visible range").press("Escape");
  await page.waitForFunction(() => !location.search.includes("zoom="));
  await context.close();
});

test("a gap has a row, and selecting it resets a zoom that hides it", async () => {
  const { page, context } = await visit(browser, service.url + path);
  const gap = page.locator(".side button", { hasText: /^gap in/ }).first();
  await gap.click();
  await page.locator(".gap-row.selected").waitFor();
  assert.match(
    await page.locator(".gap-row.selected").innerText(),
    /^gap [\d.]+ [mµn]?s: nothing instrumented ran here/,
  );
  await page.locator(".side h2", { hasText: /^Gap$/ }).waitFor();
  await page.reload();
  await settle(page);
  await page.locator(".side h2", { hasText: /^Gap$/ }).waitFor();
  await page.goto(`${service.url}${path}&zoom=0-1000`);
  await settle(page);
  assert.equal(await page.locator(".gap-row").count(), 0);
  await gap.click();
  await page.locator(".gap-row.selected").waitFor();
  await context.close();
});

test("the CSV contains gaps and percentiles, and the overview exports as PNG", async () => {
  const { page, context } = await visit(browser, service.url + path, { acceptDownloads: true });
  const saved = async (item) => {
    await page.getByRole("button", { name: "Waterfall: table and export" }).click();
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("menuitem", { name: item }).click(),
    ]);
    const chunks = [];
    for await (const chunk of await download.createReadStream()) chunks.push(chunk);
    return Buffer.concat(chunks);
  };
  const table = (await saved("Save as CSV")).toString();
  assert.match(table, /^\ufeffservice,.*,percentile,spans compared,/);
  assert.match(table, /nothing instrumented ran in .*,gap,[\d.]+,[\d.]+,/);
  assert.ok((await saved("Save as PNG")).length > 1000, "the image is empty");
  await context.close();
});

test("the overview is redrawn when the theme changes", async () => {
  const { page, context } = await visit(browser, service.url + path);
  // drawn reports whether the overview contains the page's colour of the critical path.
  const drawn = () =>
    page.evaluate(() => {
      const strip = document.querySelector(".minimap canvas");
      const { width, height } = strip;
      const dots = strip.getContext("2d").getImageData(0, 0, width, height).data;
      const hex = getComputedStyle(document.documentElement).getPropertyValue("--critical").trim().slice(1);
      const want = [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
      for (let i = 0; i < dots.length; i += 4) if (want.every((part, k) => dots[i + k] === part)) return true;
      return false;
    });
  await until(drawn, true, "light theme");
  await page.getByRole("button", { name: "Theme, time, help" }).click();
  await page.getByRole("menuitemcheckbox", { name: "Dark", exact: true }).click();
  await page.waitForFunction(() => document.documentElement.dataset.theme === "dark");
  await until(drawn, true, "dark theme");
  await context.close();
});

test("a span shows its percentile among the spans of its operation", async () => {
  const { page, context } = await visit(browser, service.url + path);
  await page.locator(".vrow").first().click();
  await page.locator(".side .rank").waitFor();
  assert.match(
    await page.locator(".side .rank").innerText(),
    /^Slower than [\d.]+ % of [\d,]+ spans of this operation\. Since /,
  );
  assert.match(await page.locator(".vrow").first().innerText(), /[\d.]+ %/);
  await context.close();
});

test("kept traces are counted by duration and request type, and a type selects its own", async () => {
  const { page, context } = await visit(browser, `${service.url}/traces`);
  const types = page.getByRole("region", { name: "Request types" });
  const { items } = await service.api("/traces?limit=500");
  const of = (name) => items.filter((t) => t.request_type_name === name).length;
  const first = types.locator("tbody tr").first();
  const name = await first.locator("button").textContent();
  assert.equal(await first.locator(".bars").textContent(), String(of(name)));
  const drawn = () =>
    page
      .getByRole("region", { name: "Durations" })
      .locator("rect")
      .evaluateAll((bars) =>
        bars.reduce((n, b) => n + Number(b.dataset.tip.match(/: ([\d,]+) /)[1].replace(",", "")), 0),
      );
  assert.equal(await drawn(), items.length);
  await first.locator("button").click();
  await page.getByText(`${of(name)} found of ${name}`).waitFor();
  await until(drawn, of(name));
  assert.deepEqual(await violations(page), []);
  await types.getByRole("button", { name: "All types" }).click();
  await until(drawn, items.length);
  await context.close();
});
