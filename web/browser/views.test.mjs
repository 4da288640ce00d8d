// Every view in both themes, at 200 % zoom (half the width) and on a phone: it renders without errors and axe
// violations, and nothing overflows the page.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { launch, open, viewPaths, settle, until, useService, violations, visit } from "./harness.mjs";

let service, browser, paths;
const webhooks = `[{name: pager, url: "http://127.0.0.1:9/secret", events: [problem.opened, problem.located], allow-private: true}, {name: chat, url: "http://127.0.0.1:9/", format: slack, allow-private: true}]`;
useService({ args: ["--webhooks", webhooks] }, async (started) => {
  service = started;
  paths = await viewPaths(service);
});
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

// overflowing returns the elements that make a page wider than its window.
const overflowing = (page) =>
  page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    return [...document.querySelectorAll("main *")]
      .filter((e) => !e.closest(".scroll, .virtual") && e.getBoundingClientRect().right > width + 1)
      .map((e) => e.outerHTML.slice(0, 150));
  });

for (const [theme, width, height] of [
  ["light", 1280, 800],
  ["dark", 1280, 800],
  ["light", 640, 400],
  ["light", 390, 844],
  ["dark", 390, 844],
]) {
  test(`all views, ${theme}, ${width} wide`, async () => {
    const { page, context } = await open(browser, { theme, width, height });
    for (const [name, path] of Object.entries(paths)) {
      await page.goto(service.url + path);
      await settle(page);
      assert.ok((await page.textContent("main")).trim().length > 20, `${name} is blank`);
      assert.deepEqual(await violations(page), [], `axe: ${name}`);
      assert.deepEqual(await overflowing(page), [], `${name} is too wide`);
    }
    await context.close();
  });
}

test("webhooks are listed with their events and format, but only with the origin of their address", async () => {
  const { page, context } = await open(browser);
  await page.goto(service.url + paths.status);
  const list = page.getByRole("group", { name: "Webhooks" });
  await list.getByText("pager").waitFor();
  assert.match(
    await list.textContent(),
    /http:\/\/127\.0\.0\.1:9\/….*problem\.opened, problem\.located.*incident\.opened, incident\.steady, incident\.closed.*as slack, not signed/,
  );
  assert.doesNotMatch(await page.content(), /9\/secret/);
  await context.close();
});

// overlays are menus and dialogs: view, button, item of its menu that opens a dialog, and role.
const overlays = [
  ["incident", "Share this incident", null, "menu"],
  ["incident", "Acknowledge", null, "dialog"],
  ["problem", "Theme, time, help", null, "menu"],
  ["problem", "Theme, time, help", "Keyboard shortcuts", "dialog"],
  ["problem", "Share this problem", null, "menu"],
  ["problem", "Critical path: table and export", null, "menu"],
  ["problem", "Acknowledge", null, "dialog"],
  ["problem", "Mute …", null, "dialog"],
  ["off", /^Switch/, null, "menu"],
  ["off", /^Switch/, "Enable …", "dialog"],
  ["off", /^Switch/, "Forbid …", "dialog"],
  ["status", "Show", null, "dialog"],
  ["status", "Resend", null, "dialog"],
  ["status", "Delete", null, "dialog"],
];

for (const theme of ["light", "dark"]) {
  test(`menus, dialogs and log-in, ${theme}`, async () => {
    const { page, context } = await open(browser, { theme });
    const at = { ...paths, off: "/tracepoints?state=off" };
    for (const [place, button, item, role] of overlays) {
      if (!page.url().endsWith(at[place])) await page.goto(service.url + at[place]);
      await settle(page);
      await page.getByRole("button", { name: button, exact: true }).first().click();
      if (item) await page.getByRole("menuitem", { name: item }).click();
      await page.getByRole(role).waitFor();
      await settle(page);
      assert.deepEqual(await violations(page), [], `axe: ${button} ${item ?? ""}`);
      await page.keyboard.press("Escape");
      await page.getByRole(role).waitFor({ state: "detached" });
    }
    await page.route("**/api/v1/**", (route) =>
      route.fulfill({
        status: 401,
        contentType: "application/problem+json",
        json: { title: "Unauthorized", detail: "this needs a token" },
      }),
    );
    await page.goto(service.url);
    await page.getByLabel("Token").waitFor();
    assert.deepEqual(await violations(page), [], "axe: the log-in");
    await context.close();
  });
}

test("preferences apply and survive a reload", async () => {
  const { page, context } = await visit(browser, service.url + paths.problem, { theme: "dark" });
  const pick = async (name) => {
    await page.getByRole("button", { name: "Theme, time, help" }).click();
    await page.getByRole("menuitemcheckbox", { name, exact: true }).click();
  };
  const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
  const inUTC = page.locator(".facts", { hasText: / UTC/ });
  assert.equal(await theme(), "dark");
  await pick("Light");
  await until(theme, "light");
  await pick("UTC");
  await inUTC.waitFor();
  await page.reload();
  await settle(page);
  assert.equal(await theme(), "light");
  await inUTC.waitFor();
  await context.close();
});

test("reduced motion disables animations", async () => {
  for (const [reducedMotion, moves] of [
    ["reduce", false],
    ["no-preference", true],
  ]) {
    const { page, context } = await open(browser, { reducedMotion });
    await page.goto(service.url + paths.problem);
    await settle(page);
    await page.evaluate(() => document.addEventListener("animationstart", () => (globalThis.moved = true)));
    await page.keyboard.press("?");
    await page.getByRole("dialog").waitFor();
    if (moves) await page.waitForFunction(() => globalThis.moved);
    else await page.waitForTimeout(200);
    assert.equal(await page.evaluate(() => Boolean(globalThis.moved)), moves, `a dialog, ${reducedMotion}`);
    assert.equal(
      await page.evaluate(() => getComputedStyle(document.documentElement).scrollBehavior === "smooth"),
      moves,
      `links, ${reducedMotion}`,
    );
    await context.close();
  }
});

// records parses a CSV file.
function records(text) {
  const all = [[]];
  for (const [, field, end] of text.replace(/^\ufeff/, "").matchAll(/("(?:[^"]|"")*"|[^,\r\n]*)(,|\r\n)/g)) {
    all.at(-1).push(field);
    if (end !== ",") all.push([]);
  }
  return all.slice(0, -1);
}

test("charts export a table, CSV and PNG; tables export CSV", async () => {
  const { page, context } = await open(browser, { acceptDownloads: true });
  const saved = async (menu, item) => {
    await menu.click();
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("menuitem", { name: item }).click(),
    ]);
    const chunks = [];
    for await (const chunk of await download.createReadStream()) chunks.push(chunk);
    return [download.suggestedFilename(), Buffer.concat(chunks)];
  };
  const charts = new Set();
  for (const path of [...Object.values(paths), `${paths.problem}?latency=lines`]) {
    await page.goto(service.url + path);
    await settle(page);
    const unexported = await page.evaluate(() =>
      [...document.querySelectorAll("main canvas, main svg.chart, main table")]
        .filter((e) => !e.closest(".figure, .queue"))
        .map((e) => e.outerHTML.slice(0, 150)),
    );
    assert.deepEqual(unexported, [], `${path}: charts and tables without export`);
    for (const button of await page.getByRole("button", { name: ": table and export" }).all()) {
      const title = (await button.getAttribute("aria-label")).replace(": table and export", "");
      const figure = ["Incidents", "Problems"].includes(title)
        ? page.locator("main")
        : page.getByRole("region", { name: title, exact: true });
      const drawn = (await figure.locator("canvas, svg.chart:not(.queue *)").count()) > 0;
      const table = (await figure.locator("table, .virtual").count()) > 0;
      const [name, text] = await saved(button, "Save as CSV");
      const [head, ...rows] = records(text.toString());
      assert.ok(name.endsWith(".csv") && head.length > 1, `${title}: ${name}: ${head}`);
      assert.ok(
        rows.every((row) => row.length === head.length),
        `${title}: rows differ in length from their header`,
      );
      assert.ok(rows.length > 0 || !(drawn || table), `${title}: no rows`);
      if (!drawn) continue;
      charts.add(title);
      const [image, png] = await saved(button, "Save as PNG");
      assert.ok(
        image.endsWith(".png") && png.length > 2000 && png.subarray(1, 4).toString() === "PNG",
        `${title}: no image`,
      );
      if (table && ["Waterfall", "Place", "Critical path"].includes(title)) continue; // they contain a table themselves
      await button.click();
      await page.getByRole("menuitem", { name: "Show the table" }).click();
      await until(() => figure.locator("tbody tr").count(), rows.length, `${title}: table and CSV differ`);
      if (title === "Latency over time" && path === paths.problem)
        assert.match(await figure.locator("table").textContent(), /2\.8\.0, before 2\.7\.0/); // deploys, which the heat map marks
      assert.deepEqual(await violations(page), [], `axe: ${title} as a table`);
    }
    if (path === paths.tree) {
      const [image, png] = await saved(
        page.getByRole("button", { name: "Calling contexts: table and export" }),
        "Save as PNG",
      );
      assert.ok(image.endsWith(".png") && png.length > 2000, "no image of the tree");
    }
  }
  const places = ["Located place", "Place"]; // drawn once a place is located
  assert.deepEqual([...charts].filter((title) => !places.includes(title)).sort(), [
    "Critical path",
    "Critical path difference",
    "Duration distribution",
    "Durations",
    "Latency over time",
    "Over time",
    "Waterfall",
  ]);
  await context.close();
});

test("the URL of every view restores it", async () => {
  const { page, context } = await open(browser);
  // top scrolls virtual lists to their first rows.
  const top = async (page) => {
    await page.evaluate(() => document.querySelectorAll(".virtual").forEach((list) => (list.scrollTop = 0)));
    await settle(page);
  };
  // state returns the headings of a page, the values of its controls, the collapsed rows and the figures shown as
  // tables.
  const state = async (page) => {
    await top(page);
    return page.evaluate(() => ({
      headings: [...document.querySelectorAll("main h1, main h2")].map((e) => e.textContent),
      values: [...document.querySelectorAll("main select, main input[type=search]")].map((e) => e.value),
      pressed: [...document.querySelectorAll("main .choice button")].map((e) => e.ariaPressed),
      // Decisions change the rows that pass a filter.
      folds: /state=/.test(location.search)
        ? []
        : [...document.querySelectorAll("main [aria-expanded]:not([aria-haspopup])")].map(
            (e) => `${e.ariaLabel ?? ""} ${e.ariaExpanded}`,
          ),
      // Decisions also fill and empty the tables of figures that have no chart.
      tables: [...document.querySelectorAll("main .figure")].map(
        (e) => e.querySelectorAll('[aria-label="Table"]').length,
      ),
    }));
  };
  let changed = 0;
  for (const [name, path] of Object.entries(paths)) {
    await page.goto(service.url + path);
    await settle(page);
    const selects = await page.locator("main select").count();
    const choices = await page.locator("main .choice").count();
    const searches = await page.locator("main input[type=search]").count();
    const folds = await page.locator("main [aria-expanded]:not([aria-haspopup])").count();
    const figures = await page.getByRole("button", { name: ": table and export" }).all();
    const asTable = page.getByRole("menuitem", { name: "Show the table" });
    const charts = [];
    for (const menu of figures) {
      await menu.click();
      if (await asTable.count()) charts.push(menu);
      await page.keyboard.press("Escape");
    }
    const changes = [
      ...Array.from({ length: searches }, (_, i) => () => page.locator("main input[type=search]").nth(i).fill("a")),
      ...Array.from({ length: selects }, (_, i) => () => page.locator("main select").nth(i).selectOption({ index: 1 })),
      ...Array.from(
        { length: choices },
        (_, i) => () => page.locator("main .choice").nth(i).locator("button[aria-pressed=false]").last().click(),
      ),
      ...Array.from(
        { length: Math.min(folds, 2) },
        (_, i) => () => page.locator("main [aria-expanded]:not([aria-haspopup])").nth(i).click(),
      ),
      ...charts.map((menu) => async () => (await menu.click(), await asTable.click())),
    ];
    // restores makes a change and returns the state of the page before and after the URL is opened anew.
    const restores = async (change, i) => {
      await page.goto(service.url + path);
      await settle(page);
      await top(page);
      const before = page.url();
      await change();
      await page
        .waitForFunction((url) => location.href !== url, before)
        .catch(() => assert.fail(`${name}: change ${i} (of ${searches}, ${selects}, ${choices}, …) is not in the URL`));
      await settle(page);
      const now = await state(page);
      await page.goto(page.url());
      await settle(page);
      return [await state(page), now];
    };
    for (const [i, change] of changes.entries()) {
      // The service goes on: an incident may close between the two. It closes once.
      const same = await restores(change, i).then(([again, now]) => isDeepStrictEqual(again, now));
      if (!same) assert.deepEqual(...(await restores(change, i)), `${name}: ${page.url()}`);
      changed++;
    }
  }
  assert.ok(changed > 15, `${changed} changes`);
  await page.goto(service.url + paths.tree);
  await page.locator(".vrow").nth(2).click();
  await page.waitForURL(/node=/);
  const picked = await page.textContent(".side h2");
  await page.reload();
  await page.locator(".side h2", { hasText: picked }).waitFor();
  const [path, params] = paths.tree.split("?");
  const { items } = await service.api(`${path}?limit=1000`);
  const deepest = items.reduce((x, y) => (y.depth > x.depth ? y : x));
  await page.goto(`${service.url}${path}?${params}&node=${deepest.context}`); // collapsed unless selected
  await page.locator(".vrow.selected").waitFor();
  await context.close();
});
