// Journeys of an on-call engineer through the UI.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { freezeProblem, launch, open, viewPaths, settle, until, useService, violations, visit } from "./harness.mjs";

let service, browser, paths;
useService({}, async (started) => {
  service = started;
  paths = await viewPaths(service);
});
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

test("two clicks lead from the diagnosis to a slow request, and the URL restores it", async () => {
  const { page, context } = await open(browser);
  await freezeProblem(page, service);
  await page.goto(`${service.url}/problems`);
  const first = page.locator("a[data-problem]").first();
  const diagnosis = await first.textContent();
  await first.click();
  assert.equal(await page.textContent("h1.diagnosis"), diagnosis);
  await page.locator(".exemplars a").first().click();
  await page.waitForURL(/\/traces\/[0-9a-f]{32}/);
  await page.locator(".vrow").first().waitFor();
  await settle(page);
  assert.ok((await page.locator(".span-critical").count()) > 3, "no critical path is drawn");
  assert.ok((await page.textContent(".does")).endsWith(diagnosis), "the trace does not name its problem");
  await page.getByRole("link", { name: "Open in Jaeger" }).waitFor();
  await page.locator(".vrow").nth(2).click();
  await page.waitForURL(/span=/);
  await page.locator(".vrow.selected").waitFor();
  const other = await context.newPage();
  await other.goto(page.url());
  await settle(other);
  assert.equal(await other.textContent(".side h2"), await page.textContent(".side h2"));
  await context.close();
});

test("a problem links to a slow request, and to a typical one if all are slow", async () => {
  const { page, context } = await open(browser);
  const { items } = await service.api("/problems");
  const p = items.find((x) => x.kind === "slow" && x.onset === "changed");
  const { items: samples } = await service.api(`/exemplars?group=${p.group}`);
  for (const stratum of ["typical", "slow"]) {
    await page.goto(`${service.url}/problems/${p.id}`);
    await page.getByRole("link", { name: `A ${stratum} request` }).click();
    await page.waitForURL(/\/traces\//);
    assert.equal(samples.find((e) => e.trace === page.url().match(/traces\/(\w+)/)[1])?.stratum, stratum);
  }
  await context.close();
});

test("the share in the diagnosis is that of the located place or the first edge; small edges are collapsed", async () => {
  const { page, context } = await open(browser);
  const { items } = await service.api("/problems");
  const p = items.find((x) => x.share_of === "slowdown" && x.onset === "changed");
  await page.goto(`${service.url}/problems/${p.id}`);
  await settle(page);
  await page
    .getByRole("group", { name: "Edges" })
    .getByRole("columnheader", { name: "Share of the slowdown" })
    .waitFor();
  // Read at once: the next epoch changes both, but the heading keeps its numbers while it is read.
  const [stated, share] = await page.evaluate(() =>
    ['.diagnosis a:is([href$="#edges"], [href$="#located"])', ":is(#located, #edges) td.bars"].map(
      (e) => document.querySelector(e).textContent,
    ),
  );
  const shareOf = (text) => (text.startsWith("all") ? 100 : Math.min(100, parseFloat(text)));
  assert.ok(Math.abs(shareOf(stated) - shareOf(share)) <= 1, `${stated} in the diagnosis, ${share} in the table`);
  const { edges } = await service.api(`/problems/${p.id}`);
  const rows = () => page.locator("#edges tbody tr").count();
  assert.ok((await rows()) < edges.length, "no edge is collapsed");
  await page.getByRole("button", { name: /more, with less than/ }).click();
  await until(rows, edges.length);
  const hottest = page.locator("#path g.box", { has: page.locator('rect[style*="heat-4"]') });
  await until(() => hottest.count(), 1);
  assert.ok(
    (await hottest.getAttribute("data-tip")).startsWith(p.leading),
    "another edge of the critical path is highlighted",
  );
  await context.close();
});

test("services without spans have the mean time of their calls; the map marks those that were deployed", async () => {
  const { page, context } = await visit(browser, `${service.url}/services`, { width: 1440 });
  const row = page.locator("tr", { hasText: "postgresql fraud-db:5432" });
  assert.match(await row.locator("td[data-label=P50]").textContent(), /^[\d.]+ ms/);
  await page.goto(`${service.url}/map`);
  await settle(page);
  const { items } = await service.api("/services");
  const deployed = items.filter((s) => s.deploy !== null).map((s) => s.service);
  const marked = await page
    .locator(".spot:has(.mark-annotation)")
    .evaluateAll((all) => all.map((e) => e.dataset.service));
  assert.ok(deployed.length > 0);
  assert.deepEqual(marked.sort(), deployed.sort());
  await page.getByText("on a box: deployed in the last hour").waitFor();
  assert.deepEqual(await violations(page), []);
  await context.close();
});

test("the labels of a deploy and of the problem do not overlap on the heat map", async () => {
  const { page, context } = await open(browser);
  await page.goto(service.url + paths.problem);
  await settle(page);
  const label = (text) =>
    page
      .locator("#latency svg.chart text.axis", { hasText: new RegExp(`^${text}$`) })
      .first()
      .boundingBox();
  const [deploy, problem] = [await label("deploy"), await label("problem")];
  const beside = deploy.x + deploy.width <= problem.x || problem.x + problem.width <= deploy.x; // if windows are wide enough
  assert.ok(beside || deploy.y >= problem.y + 10, "the labels overlap");
  await context.close();
});

test("a tree defines its shares, caps them at 100 %, and omits small ones", async () => {
  const { page, context } = await open(browser);
  await page.route(`**/api/v1/trees/*`, async (route) => {
    const response = await route.fetch();
    const tree = await response.json();
    tree.matches.forEach((m, i) => (m.score = i === 0 ? 1.03 : 0.004));
    await route.fulfill({ response, json: tree });
  });
  await page.goto(service.url + paths.tree);
  await settle(page);
  const side = page.locator(".side");
  await side.getByText("The slowdown is the additional time").waitFor();
  assert.equal(await side.getByText("of the slowdown").count(), 1);
  assert.match(await side.textContent(), /all of the slowdown/);
  await side.getByText("Each of the others has less than 1 %").waitFor();
  assert.equal(await page.locator(".vrow.matched").count(), 1);
  assert.match(await page.locator(".vrow.matched").textContent(), /◆ 100 %/);
  await context.close();
});

test("states and tags are defined in tooltips and in the help", async () => {
  const { page, context } = await visit(browser, `${service.url}/problems`);
  const titles = await page
    .locator(".queue .tag:not(.noted), .queue .badge")
    .evaluateAll((all) => all.map((e) => e.title));
  assert.ok(titles.length > 5 && titles.every((title) => title.length > 10), titles.join());
  await page.keyboard.press("?");
  for (const word of ["changed", "chronic", "variable", "queued", "located", "inconclusive"])
    await page.getByRole("dialog").getByText(word, { exact: true }).waitFor();
  await context.close();
});

test("a touch explains one term after the other", async () => {
  const { page, context } = await visit(browser, service.url + paths.problem, { hasTouch: true });
  const tooltip = page.getByRole("tooltip");
  for (const [term, text] of [
    ["CoV", /^Coefficient of variation/],
    ["Impact", /above the expected mean/],
  ]) {
    await page.locator(".facts .term", { hasText: term }).tap();
    await tooltip.getByText(text).waitFor();
  }
  await page.locator("h1").tap();
  await tooltip.waitFor({ state: "hidden" });
  await context.close();
});

test("no tooltip lies over an open menu", async () => {
  const { page, context } = await visit(browser, service.url + paths.problem);
  const tooltip = page.getByRole("tooltip");
  const button = page.getByRole("button", { name: "Theme, time, help" });
  await button.hover();
  await tooltip.waitFor();
  await button.click();
  await page.getByRole("menu").waitFor();
  const box = await button.boundingBox();
  for (let i = 0; i < 5; i++) await page.mouse.move(box.x + 4 + i, box.y + 4 + i); // over the button, below the menu
  assert.equal(await tooltip.isVisible(), false);
  for (const term of await page.locator(".facts .term").all()) {
    await term.hover({ force: true });
    assert.equal(await tooltip.isVisible(), false);
  }
  await page.keyboard.press("Escape");
  await page.getByRole("menu").waitFor({ state: "detached" });
  await page.locator(".facts .term").first().hover();
  await tooltip.waitFor();
  await context.close();
});

test("tools, and views for which the navigation has no room, are in its menu", async () => {
  const { page, context } = await visit(browser, `${service.url}/services`, { width: 1440 });
  const nav = page.getByRole("navigation", { name: "Views" });
  const links = () =>
    nav
      .getByRole("link")
      .evaluateAll((all) =>
        all.filter((e) => e.checkVisibility({ visibilityProperty: true })).map((e) => e.textContent),
      );
  const all = await links();
  assert.equal(all.length, 7);
  const tools = ["Trees", "Compare", "Tracepoints"];
  await nav.getByRole("button", { name: "More views" }).click();
  assert.deepEqual(await page.getByRole("menuitem").allTextContents(), tools);
  await page.keyboard.press("Escape");
  for (const width of [768, 360]) {
    await page.setViewportSize({ width, height: 800 });
    const more = nav.getByRole("button", { name: "More views" });
    await more.waitFor();
    const shown = await links();
    assert.ok(shown.length >= 3 && shown.length <= 7, `${width}: ${shown}`);
    const { right, lines } = await nav.evaluate((e) => ({
      right: Math.max(
        ...[...e.querySelectorAll("a, button")]
          .filter((x) => x.checkVisibility({ visibilityProperty: true }))
          .map((x) => x.getBoundingClientRect().right),
      ),
      lines: new Set(
        [...e.querySelectorAll("a, button")]
          .filter((x) => x.checkVisibility({ visibilityProperty: true }))
          .map((x) => Math.round(x.getBoundingClientRect().bottom)),
      ).size,
    }));
    assert.ok(right <= width, `${width}: up to ${right} px`);
    assert.equal(lines, 1, `${width}: the bottoms of the links differ`);
    await more.click();
    const rest = await page.getByRole("menuitem").allTextContents();
    assert.deepEqual([...shown, ...rest], [...all, ...tools]);
    await page.keyboard.press("Escape");
  }
  await nav.getByRole("button", { name: "More views" }).click();
  await page.getByRole("menuitem", { name: "Status" }).click();
  await page.waitForURL(/\/status/);
  await nav.getByRole("button", { name: "Status, and more views" }).waitFor();
  await context.close();
});

test("no view asks for something that does not exist", async () => {
  const { page, context } = await open(browser);
  const missing = [];
  page.on("response", (r) => r.status() >= 400 && missing.push(`${r.status()} ${r.url()}`));
  // The tree of a problem that is not investigated by itself, but with its incident or later.
  const { items } = await service.api("/problems");
  const waiting = items.filter((p) => p.state === "none");
  assert.ok(waiting.length > 0, "no problem without an investigation");
  const trees = waiting.slice(0, 3).map((p) => `/trees/${p.request_type}?problem=${p.id}`);
  for (const path of [...Object.values(paths), ...trees]) {
    await page.goto(service.url + path);
    await settle(page);
  }
  assert.deepEqual(missing, []);
  await context.close();
});

test("the numbers of the diagnosis link to their evidence", async () => {
  const { page, context } = await visit(browser, service.url + paths.problem);
  const hrefs = await page.locator(".diagnosis a").evaluateAll((links) => links.map((a) => a.hash));
  assert.ok(hrefs.length >= 2, hrefs.join());
  for (const hash of new Set(hrefs)) assert.equal(await page.locator(hash).count(), 1, `${hash} does not exist`);
  await page.locator(".diagnosis a").first().click();
  await page.waitForURL(/#/);
  await context.close();
});

test("keyboard shortcuts: j, k, Enter, /, ?", async () => {
  const { page, context } = await open(browser);
  await freezeProblem(page, service, 1);
  await page.goto(`${service.url}/problems`);
  await page.locator("a[data-problem]").first().waitFor();
  await settle(page);
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  const second = await page.locator("a[data-problem]").nth(1).textContent();
  await page.keyboard.press("Enter");
  assert.equal(await page.textContent("h1.diagnosis"), second);
  await page.unroute("**/api/v1/problems?*");
  await page.keyboard.press("p");
  await page.waitForSelector(".queue");
  await page.keyboard.press("/");
  await page.keyboard.type("no such thing");
  await page.waitForSelector("text=No matching problems");
  await page.waitForURL(/q=no/);
  await page.keyboard.press("Escape");
  await page.keyboard.press("?");
  await page.getByRole("dialog").waitFor();
  await context.close();
});

test("sorting and filters are in the URL", async () => {
  const { page, context } = await visit(browser, `${service.url}/problems`);
  await page.getByRole("button", { name: "Impact" }).click();
  await page.waitForURL(/sort=impact/);
  await page.waitForFunction(() => document.querySelector("th[aria-sort=descending]"));
  await page.locator("th[aria-sort=descending] button:focus").waitFor(); // the table was replaced
  await page.getByRole("button", { name: "Rate" }).press("Enter");
  await page.waitForURL(/sort=rate/);
  await page.locator("th[aria-sort=descending] button:focus", { hasText: "Rate" }).waitFor();
  await page.getByLabel("Onset").selectOption("chronic");
  await page.waitForURL(/onset=chronic/);
  await page.waitForFunction(() => document.querySelector("tr.chronic") && !document.querySelector("tr.changed"));
  await context.close();
});

test("acknowledge, withdraw, mute", async () => {
  const { page, context } = await visit(browser, service.url + paths.problem);
  await page.keyboard.press("a");
  await page.getByLabel("Reason (visible to others)").fill("ticket 42");
  await page.getByRole("dialog").getByRole("button", { name: "Acknowledge" }).click();
  await page.getByRole("button", { name: /acknowledged by local/ }).click();
  await page.getByText("ticket 42").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Withdraw" }).click();
  await page.getByRole("button", { name: "Acknowledge", exact: true }).waitFor();
  await page.getByRole("button", { name: "Mute …" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Mute" }).click();
  await page.getByRole("button", { name: "Muted by local" }).waitFor();
  const id = paths.problem.split("/").at(-1);
  await page.goto(`${service.url}/problems`);
  await page.locator("a[data-problem]").first().waitFor();
  assert.equal(await page.locator(`a[data-problem="${id}"]`).count(), 0, "a muted problem is listed");
  await page.goto(`${service.url}/problems?muted=true`);
  await page.locator(`a[data-problem="${id}"]`).waitFor();
  await context.close();
});

test("a tracepoint is forbidden from the tree; enabling shows its cost first", async () => {
  const { page, context } = await visit(browser, `${service.url}${paths.tree}&state=off`);
  assert.ok((await page.locator(".vrow").count()) > 3);
  await page.locator(".vrow", { hasText: "off" }).first().click();
  await page.getByRole("button", { name: /^Switch/ }).click();
  await page.getByRole("menuitem", { name: "Enable …" }).click();
  await page.getByText("Estimated overhead").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: /^Switch/ }).click();
  await page.getByRole("menuitem", { name: "Forbid …" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Forbid" }).click();
  await page.getByText(/Override by local: forbid/).waitFor();
  await page.getByRole("button", { name: /^Switch/ }).click();
  await page.getByRole("menuitem", { name: "Let the search decide" }).click();
  await page.getByText(/Override by local/).waitFor({ state: "detached" });
  await context.close();
});

// brush drags over the heat map between two points, given as a fraction of the width of its cells and px below its top.
async function brush(page, [fromX, fromY], [toX, toY]) {
  const chart = page.locator("#latency .heat svg.chart");
  await chart.scrollIntoViewIfNeeded();
  const box = await chart.boundingBox();
  const cells = await chart.locator('rect[style*="cell"]').evaluateAll((all) => {
    const boxes = all.map((e) => e.getBoundingClientRect());
    return [Math.min(...boxes.map((b) => b.left)), Math.max(...boxes.map((b) => b.right))];
  });
  [box.x, box.width] = [cells[0], cells[1] - cells[0]];
  await page.mouse.move(box.x + box.width * fromX, box.y + fromY);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * toX, box.y + toY, { steps: 4 });
  await page.mouse.up();
}

test("a brushed time range is compared with the rest", async () => {
  const { page, context } = await visit(browser, service.url + paths.problem);
  await brush(page, [0.5, 60], [0.9, 60]);
  await page.waitForURL(/compare\?.*by=selection&from=.*&to=/);
  await settle(page);
  assert.match(
    await page.textContent(".diagnosis"),
    /for the sampled requests that arrived from .* for the other sampled requests/,
  );
  await context.close();
});

test("a brushed box compares its requests with the rest; the keyboard can select it, too", async () => {
  const { page, context } = await visit(browser, service.url + paths.problem);
  await brush(page, [0.5, 70], [0.9, 150]); // below all lines of labels
  await page.waitForURL(/compare\?.*by=selection&from=.*longer=\d+&shorter=\d+/);
  await settle(page);
  const picked = new URL(page.url()).searchParams;
  const group = picked.get("group");
  const compare = (query) => service.api(`/groups/${group}/compare?${new URLSearchParams(query)}`);
  const times = { from: picked.get("from"), to: picked.get("to") };
  const brushed = await compare({ ...times, longer_ns: picked.get("longer"), shorter_ns: picked.get("shorter") });
  const [all, sameTime, sameDuration] = [
    await compare({ longer_ns: 0 }),
    await compare({ ...times, longer_ns: 0 }),
    await compare({ longer_ns: picked.get("longer"), shorter_ns: picked.get("shorter") }),
  ];
  const size = (c) => c.a.requests;
  assert.ok(
    size(brushed) > 0 && size(brushed) + brushed.b.requests === size(all),
    `${size(brushed)} in the box, ${brushed.b.requests} of the rest, ${size(all)} in all`,
  );
  assert.ok(
    size(brushed) < size(sameTime) && size(sameTime) < size(all) && size(brushed) <= size(sameDuration),
    `${size(brushed)} in the box, ${size(sameTime)} of its time, ${size(sameDuration)} of its durations, ${size(all)} in all`,
  );
  const count = (n) => n.toLocaleString("en-US");
  const summary = (await page.textContent(".diagnosis")).replace(/\s+/g, " ");
  assert.match(
    summary,
    new RegExp(
      `for the sampled requests that arrived from \\S.* to .* and took .* \\(${count(size(brushed))}\\), .* for the other sampled requests \\(${count(brushed.b.requests)}\\)`,
    ),
  );
  assert.doesNotMatch(summary, /\dT\d/, "a time is not formatted");
  await page.getByRole("button", { name: "Compare this time range with before" }).click();
  await page.waitForURL(/by=time/);
  await page.waitForURL(/base_to=/);
  await page.goto(service.url + paths.problem);
  await page.getByRole("link", { name: "Select range" }).press("Enter");
  await page.waitForURL(/compare\?.*by=duration/);
  await page
    .getByText(/sampled requests that took .* or longer/)
    .first()
    .waitFor();
  const last = page.getByLabel("received from").locator("option").last();
  await page.getByLabel("received from").selectOption(await last.getAttribute("value"));
  await page
    .getByText(/sampled requests that arrived from .* on and took .* or longer|One side has no requests/)
    .first()
    .waitFor();
  await context.close();
});

test("a box links to its sample traces, and gives advice if it has no sampled requests", async () => {
  const { page, context } = await open(browser);
  const group = new URLSearchParams(paths.compare.split("?")[1]).get("group");
  const { items } = await service.api(`/exemplars?group=${group}`);
  const sample = items[0];
  const at = (ms) => new Date(ms).toISOString();
  const start = Date.parse(sample.start);
  const go = (from, to, durations) =>
    page.goto(
      `${service.url}/compare?${new URLSearchParams({ group, by: "duration", from: at(from), to: at(to), ...durations })}`,
    );
  await go(start - 20_000, start + 20_000, {
    longer: String(sample.duration_ns - 1),
    shorter: String(sample.duration_ns + 1),
  });
  await page.locator(`.notice a[href="/traces/${sample.trace}"]`).waitFor();
  await go(start - 7_200_000, start - 3_600_000, { longer: "1" });
  await page
    .getByText(
      /No sampled request lies in the box: sampling began only at [\d: -]+( UTC)?; choose a later box, or compare times alone/,
    )
    .waitFor();
  await page.getByText("One side has no requests").waitFor();
  await page.getByText("No stored trace is in this selection").waitFor();
  assert.deepEqual(await violations(page), []);
  await context.close();
});

test("search in a trace counts matches, and Enter selects the next one", async () => {
  const { page, context } = await visit(browser, service.url + paths.trace);
  const name = await page.locator(".vrow:not(.gap-row) .vname .dim").first().textContent();
  await page.keyboard.press("/");
  await page.keyboard.type(name);
  const status = page.locator(".found [role=status]");
  await page.waitForFunction(() => /^1 of/.test(document.querySelector(".found [role=status]")?.textContent ?? ""));
  const [, total] = /^1 of (\d+)/.exec(await status.textContent());
  assert.ok(Number(total) > 1, `${total} found`);
  const picked = () =>
    page
      .locator(".vrow.selected.hit")
      .getAttribute("class")
      .then(() => new URL(page.url()).searchParams.get("span"));
  const first = await picked();
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => /^2 of/.test(document.querySelector(".found [role=status]").textContent));
  await page.waitForFunction((first) => new URL(location).searchParams.get("span") !== first, first);
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.press("Shift+Enter");
  await page.waitForFunction(
    (n) => document.querySelector(".found [role=status]").textContent.startsWith(`${n} of`),
    total,
  );
  await page.locator("[data-search]").fill("no such span");
  await page.getByText("none", { exact: true }).waitFor();
  await context.close();
});

test("search finds requests to compare by name", async () => {
  const { page, context } = await open(browser);
  await page.goto(`${service.url}/compare`);
  const { items } = await service.api("/groups?limit=200");
  const name = items.find((g) => g.request_type_name !== items[0].request_type_name).request_type_name;
  await page.locator("[data-search]").fill(name);
  await page.waitForFunction((name) => {
    const listed = [...document.querySelector("main select").options].slice(1); // the first are those shown now
    return listed.length > 0 && listed.every((o) => o.textContent.includes(name));
  }, name);
  const found = await page.evaluate((name) => {
    const { options } = document.querySelector("main select");
    // The name of another type may begin with this one.
    return [...options].find((o) => [`${name}, `, `${name} (group `].some((s) => o.textContent.startsWith(s))).value;
  }, name);
  await page.locator("main select").first().selectOption(found);
  await page.waitForURL(/group=[0-9a-f]{32}/);
  assert.equal(items.find((g) => page.url().includes(g.id))?.request_type_name, name);
  await page.locator(".diagnosis, .state strong").first().waitFor();
  await context.close();
});

test("Tab reaches every control and shows the focus", async () => {
  const { page, context } = await open(browser);
  for (const [name, path] of Object.entries(paths)) {
    await page.goto(service.url + path);
    await settle(page);
    const all = await page.evaluate(() => {
      const open = (e) => e.checkVisibility() && !e.disabled;
      const some = [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")].filter(
        open,
      );
      some.forEach((e, i) => (e.dataset.n = i));
      return some.length;
    });
    const reached = new Set();
    const invisible = [];
    for (let i = 0; i < all + 20 && reached.size < all; i++) {
      await page.keyboard.press("Tab");
      const [n, seen, html] = await page.evaluate(() => {
        const e = document.activeElement;
        return [e.dataset.n, getComputedStyle(e).outlineStyle !== "none", e.outerHTML.slice(0, 80)];
      });
      if (n !== undefined && !seen) invisible.push(html);
      if (n !== undefined) reached.add(n);
    }
    const missed = await page.evaluate(
      (reached) =>
        [...document.querySelectorAll("[data-n]")]
          .filter((e) => !reached.includes(e.dataset.n))
          .map((e) => e.outerHTML.slice(0, 120)),
      [...reached],
    );
    assert.deepEqual(missed, [], `${name}: not reached`);
    assert.deepEqual(invisible, [], `${name}: focus is invisible`);
  }
  await context.close();
});

test("collapsed nodes stay collapsed when the tree grows", async () => {
  const { page, context } = await open(browser);
  const tree = paths.tree.split("?")[0];
  // grown inserts a node before the other children of the root.
  const grown = (items) => {
    const [root, first] = items;
    const moved = items
      .slice(1)
      .map((n) => ({ ...n, index: n.index + 1, parent: n.parent === 0 ? 0 : n.parent + 1, end: n.end + 1 }));
    return [
      { ...root, end: root.end + 1 },
      { ...first, index: 1, end: 2, context: "f".repeat(16), operation: "new operation" },
      ...moved,
    ];
  };
  let later = false;
  await page.route("**/api/v1/trees/*", async (route) => {
    const response = await route.fetch();
    const got = await response.json();
    await route.fulfill({ response, json: { ...got, matches: [], items: later ? grown(got.items) : got.items } });
  });
  const events = [];
  await page.route("**/api/v1/events", (route) => void events.push(route)); // answered below
  await page.goto(service.url + tree);
  await page.locator(".fold[aria-expanded]").nth(1).click();
  const name = await page.locator(".fold[aria-expanded=false]").first().getAttribute("aria-label");
  const folded = await page.locator(".fold[aria-expanded=false]").count();
  later = true;
  await until(() => events.length > 0, true);
  await events[0].fulfill({ contentType: "text/event-stream", body: "event: reset\ndata: {}\n\n" });
  await page.getByText("new operation").waitFor();
  assert.equal(await page.locator(".fold[aria-expanded=false]").first().getAttribute("aria-label"), name);
  assert.equal(await page.locator(".fold[aria-expanded=false]").count(), folded);
  await context.close();
});

test("collapsing does not scroll, and keys continue from the row that hides the selected context", async () => {
  const { page, context } = await open(browser, { height: 400 });
  const [path] = paths.tree.split("?");
  const { items } = await service.api(`${path}?limit=1000`);
  const deepest = items.reduce((x, y) => (y.depth > x.depth ? y : x));
  const scrolled = () => page.locator(".virtual").evaluate((list) => list.scrollTop);
  await page.goto(`${service.url}${path}?node=${deepest.context}`);
  await page.locator(".vrow.selected").waitFor();
  const before = await scrolled();
  const name = await page.evaluate(() => {
    const rows = [...document.querySelectorAll(".vrow")];
    const depth = (row) => Number(row.querySelector(".vname").style.getPropertyValue("--depth"));
    const picked = rows.findIndex((row) => row.classList.contains("selected"));
    const fold = rows.findLast((row, i) => i < picked && depth(row) < depth(rows[picked])).querySelector(".fold");
    fold.click();
    return fold.ariaLabel.replace(/^\w+ /, "");
  });
  await page.locator(".vrow.selected").waitFor({ state: "detached" });
  assert.equal(await scrolled(), before);
  await page.reload();
  await settle(page);
  assert.equal(
    await page.locator(".vrow.selected").count(),
    0,
    "the ancestor of the selected context is no longer collapsed",
  );
  await page.keyboard.press("k");
  await page.keyboard.press("j");
  await page.locator(".vrow.selected", { hasText: new RegExp(`^[▸▾].*${name.replaceAll(/[^\w ]/g, ".")}`) }).waitFor();
  // Leaves cannot be collapsed, and nothing can be while a filter is active.
  const leaf = items.find((n) => n.end === n.index + 1);
  await page.goto(`${service.url}${path}?node=${leaf.context}`);
  await page.locator(".vrow.selected").waitFor();
  const url = page.url();
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("ArrowRight");
  assert.equal(page.url(), url);
  await page.goto(`${service.url}${path}?q=${encodeURIComponent(deepest.operation)}`);
  await page.locator(".vrow").first().waitFor();
  assert.equal(await page.locator(".vrow .fold[aria-expanded]").count(), 0);
  await context.close();
});

test("selecting a match reveals it", async () => {
  const { page, context } = await open(browser);
  const { items } = await service.api(`${paths.tree.split("?")[0]}?limit=1000`);
  for (const hidden of [`folded=${items[0].context}`, "q=no-such-operation", "state=forbidden"]) {
    await page.goto(`${service.url}${paths.tree}&${hidden}`);
    await page.locator(".match .link").first().click();
    await page.locator(".vrow.selected").waitFor();
  }
  await context.close();
});

test("links of the diagnosis keep the state of the page", async () => {
  const { page, context } = await visit(browser, service.url + paths.problem);
  await page.evaluate(() => (globalThis.same = true));
  await page.getByRole("button", { name: "Latency over time: table and export" }).click();
  await page.getByRole("menuitem", { name: "Show the table" }).click();
  await page.waitForURL(/tables=latency-over-time/);
  await page.locator(".diagnosis a").first().click();
  await page.waitForURL(/tables=latency-over-time.*#/);
  assert.ok(await page.evaluate(() => globalThis.same), "the page was reloaded");
  await context.close();
});

test("tracepoints that no request reached are listed", async () => {
  const { page, context } = await open(browser);
  const nothing = { value: null, low: null, high: null };
  let reached = true;
  await page.route("**/api/v1/problems/*", async (route) => {
    const response = await route.fetch();
    const detail = await response.json();
    const ran = {
      within: detail.edges[0].place.edge,
      context: ["a", "b"],
      operation: "quoted",
      tracepoint: "x/quoted",
      arm: "a",
      requests: 40,
      hits: 40,
      mean_ns: 2e6,
      exclusive_ns: 1e6,
      share: { value: 0.5, low: 0.4, high: 0.6 },
      self: 0.5,
      share_mean: 0.5,
      excess_ns: 1e6,
    };
    const idle = {
      ...ran,
      within: "0".repeat(16),
      context: [],
      operation: "",
      tracepoint: "x/never",
      hits: 0,
      mean_ns: 0,
      share: nothing,
    };
    await route.fulfill({ response, json: { ...detail, refined: reached ? [idle, ran] : [idle] } });
  });
  await page.goto(service.url + paths.problem);
  const figure = page.locator("#refined");
  await figure.getByText("Not reached by any request: x/never.").waitFor();
  assert.equal(await figure.locator("tbody tr").count(), 1);
  const { edges } = await service.api(paths.problem);
  assert.match(
    await figure.locator("tbody tr").textContent(),
    new RegExp(`quoted within ${edges[0].place.label.replaceAll(/[^\w ]/g, ".")}`),
  );
  reached = false;
  await page.reload();
  await figure.getByText("Not reached by any request: x/never.").waitFor();
  assert.equal(await figure.locator("table").count(), 0, "a table without rows");
  await context.close();
});

test("selecting a hidden span expands only its ancestors", async () => {
  const { page, context } = await visit(browser, service.url + paths.trace);
  const links = page.locator(".side .link, .side a[href='#'], .side button").filter({ hasText: /./ });
  await links.first().click();
  await page.waitForURL(/span=/);
  const url = new URL(page.url());
  const span = url.searchParams.get("span");
  const roots = (await service.api(paths.trace.split("?")[0])).spans.filter((s) => !s.parent);
  url.searchParams.delete("span");
  url.searchParams.set("folded", `${roots[0].id},${span}`);
  url.searchParams.set("zoom", "");
  await page.goto(url.href);
  await settle(page);
  await until(() => page.locator(".vrow").count(), 1);
  await page.locator(".side .link, .side button").first().click();
  await page.locator(".vrow.selected").waitFor();
  await until(() => new URL(page.url()).searchParams.get("folded"), span);
  await context.close();
});

test("dead letters can be shown and deleted", async () => {
  const { page, context } = await visit(browser, service.url + paths.status);
  await page.getByRole("button", { name: "Show" }).first().click();
  await page.locator("pre").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" }); // it hides the buttons behind it
  const before = await page.getByRole("button", { name: "Delete" }).count();
  await page.getByRole("button", { name: "Delete" }).first().click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.waitForFunction((n) => document.querySelectorAll("td .buttons").length < n, before);
  await context.close();
});

test("a tree shows a located tracepoint below collapsed nodes", async () => {
  const { page, context } = await open(browser);
  const { items: problems } = await service.api("/problems");
  const p = problems.find((p) => p.onset === "changed" && p.state !== "none"); // with an investigation of its own
  const { items } = await service.api(`/trees/${p.request_type}?limit=1000`);
  const deep = items.find(
    (n) =>
      n.depth > 5 &&
      n.tracepoint_name &&
      items.filter((other) => other.tracepoint_name === n.tracepoint_name).length === 1,
  );
  await page.route("**/api/v1/problems/*", async (route) => {
    const response = await route.fetch();
    const detail = await response.json();
    const found = detail.investigation;
    const suspect = {
      tracepoint: deep.tracepoint_name,
      operation: deep.operation,
      context: [],
      share: { value: 0.9, low: 0.8, high: 1 },
      inclusive: 1,
      requests: 100,
      open: 0,
    };
    await route.fulfill({
      response,
      json: {
        ...detail,
        investigation: {
          ...found,
          requested: [],
          investigation: { ...found.investigation, state: "located", suspects: [suspect] },
        },
      },
    });
  });
  await page.goto(`${service.url}/trees/${p.request_type}?problem=${p.id}`);
  await page.locator(".vrow.cause", { hasText: deep.operation }).waitFor();
  await page.getByText("★ located").waitFor();
  await context.close();
});

test("a problem on one host names the host, the time that a recovery saves, and both in the CSV", async () => {
  const { items } = await service.api("/problems?muted=all"); // an earlier test mutes one
  const details = await Promise.all(items.map((p) => service.api(`/problems/${p.id}`)));
  const found = details.find((d) => d.contrasts.some((c) => c.key === "host.name") && d.what_if.length > 0);
  assert.ok(found, "the seeded state has no problem on one host");
  const { page, context } = await open(browser, { permissions: ["clipboard-read", "clipboard-write"] });
  await page.goto(`${service.url}/problems/${found.problem.id}`);
  await settle(page);
  for (const [title, { text }, place] of [
    ["Slower than others", found.contrasts[0], "whole request"],
    ["What if", found.what_if[0], found.what_if[0].edge.label],
  ]) {
    const figure = page.getByRole("region", { name: title });
    assert.equal((await figure.locator("li").first().textContent()).replaceAll("\u00a0", " "), text);
    await figure.getByRole("button", { name: `${title}: table and export` }).click();
    await page.getByRole("menuitem", { name: "Copy as CSV" }).click();
    await page.waitForFunction(
      async (place) => (await navigator.clipboard.readText()).split("\r\n")[1]?.includes(place),
      place,
    );
  }
  await page.getByRole("button", { name: "Attributes: slowest tenth vs. the rest", exact: true }).press("Enter");
  await page.waitForURL(/unfolded=/);
  await page.locator("#attributes tbody td").first().waitFor();
  await context.close();
});
