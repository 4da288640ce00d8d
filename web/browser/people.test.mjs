// What people add: comments on incidents and saved views; and what they take along: the report of an incident.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { launch, open, serve, settle, until, violations, visit } from "./harness.mjs";

let service, browser, incident;
before(async () => {
  service = await serve();
  browser = await launch();
  incident = (await service.api("/incidents")).items.find((x) => x.state === "closed");
});
after(async () => {
  await browser?.close();
  await service?.stop();
});

const pathOf = (x) => `/incidents/${x.id}`;

test("a comment is added, kept, counted in the list, and deleted", async () => {
  const { page, context } = await visit(browser, service.url + pathOf(incident));
  const comments = page.locator("#comments");
  const add = comments.getByRole("button", { name: "Comment", exact: true });
  assert.ok(await add.isDisabled(), "an empty comment can be added");
  await comments.getByRole("textbox", { name: "New comment" }).fill("Rolled back.\n<b>Not</b> the cause.");
  await add.click();
  await comments.locator("li", { hasText: "<b>Not</b> the cause." }).waitFor();
  await comments.locator("textarea:placeholder-shown").waitFor(); // the field is empty again
  assert.match(await comments.locator("li").innerText(), /^local, .*\nRolled back\.\n<b>Not<\/b> the cause\.$/s);
  assert.doesNotMatch(await page.locator("#timeline").textContent(), /Rolled back/);
  assert.deepEqual(await violations(page), []);
  await page.goto(service.url);
  await page
    .locator(".incident", { has: page.locator(`a[data-incident="${incident.id}"]`) })
    .getByText("1 comment")
    .waitFor();
  await page.goBack();
  await comments.getByRole("button", { name: /^Delete: Rolled back/ }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await comments.locator("li").waitFor({ state: "detached" });
  assert.deepEqual((await service.api(pathOf(incident))).comments, []);
  await context.close();
});

test("a comment that cannot be stored stays in the field", async () => {
  const { page, context } = await open(browser);
  await page.route("**/comments", (route) =>
    route.fulfill({
      status: 503,
      contentType: "application/problem+json",
      json: { title: "Overloaded", detail: "the disk is full", status: 503 },
    }),
  );
  await page.goto(service.url + pathOf(incident));
  await page.getByRole("textbox", { name: "New comment" }).fill("important");
  await page.locator("#comments").getByRole("button", { name: "Comment", exact: true }).click();
  await page.getByRole("alert").getByText("the disk is full").waitFor();
  assert.equal(await page.getByRole("textbox", { name: "New comment" }).inputValue(), "important");
  await context.close();
});

test("the page of a closed incident asks once what helped", async () => {
  const { page, context } = await visit(browser, service.url + pathOf(incident));
  const question = page.getByRole("textbox", { name: "What helped?" });
  await question.fill("rolled back to 1.8.1");
  assert.deepEqual(await violations(page), []);
  await page.getByRole("button", { name: "This helped" }).click();
  await page.locator("#comments li", { hasText: "this helped" }).waitFor();
  await question.waitFor({ state: "detached" });
  const [comment] = (await service.api(pathOf(incident))).comments;
  assert.equal(comment.helped, true);
  await page.getByRole("button", { name: /^Delete: rolled back/ }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await question.waitFor();
  await context.close();
});

test("a person ends the search for a problem, and lets Sibyl decide again", async () => {
  const [problem] = (await service.api("/problems")).items;
  const { page, context } = await visit(browser, `${service.url}/problems/${problem.id}`);
  const search = page.locator("#investigation");
  await search.getByRole("button", { name: /^(End the search|Search now) …$/ }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("textbox").fill("known");
  assert.deepEqual(await violations(page), []);
  await dialog.getByRole("button", { name: /^(End the search|Search now)$/ }).click();
  await search.getByText(/(Ended|Started) by local/).waitFor();
  await search.getByRole("button", { name: "Withdraw" }).click();
  await search.getByRole("button", { name: /…$/ }).first().waitFor();
  await context.close();
});

test("a silence is previewed, added and ended", async () => {
  const { page, context } = await visit(browser, `${service.url}/silences?service=${incident.service}`);
  const dialog = page.getByRole("dialog");
  await dialog.getByText(/closed incidents of the last 7 days match/).waitFor();
  await dialog.getByLabel("Service (the first suspect)").fill("no-such-service");
  await dialog.getByText("No incident of the last 7 days matches.").waitFor();
  await dialog.getByLabel("Repeat").selectOption("every week");
  await dialog.getByLabel("friday").check();
  await dialog.getByLabel("Reason (visible to others)").fill("load test");
  assert.deepEqual(await violations(page), []);
  await dialog.getByRole("button", { name: "Silence" }).click();
  const row = page.getByRole("row", { name: /no-such-service/ });
  await row.getByText(/only Fri from 22:00 for 2 h .*“load test”/).waitFor();
  assert.deepEqual(await violations(page), []);
  await row.getByRole("button", { name: "End the silence of no-such-service" }).click();
  await row.getByRole("button").waitFor({ state: "detached" });
  const { items } = await service.api("/silences");
  assert.ok(
    items.every((x) => x.state === "ended"),
    JSON.stringify(items),
  );
  await context.close();
});

test("a view is saved with its filters, opened, replaced and deleted", async () => {
  const { page, context } = await visit(browser, `${service.url}/services?state=well&range=6h`);
  const menu = () => page.getByRole("button", { name: "Saved views" }).click();
  const save = async (name) => {
    await menu();
    await page.getByRole("menuitem", { name: "Save this view" }).click();
    await page.getByRole("dialog").getByRole("textbox").fill(name);
    assert.deepEqual(await violations(page), []);
    await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
  };
  await save("All is well");
  await page.goto(`${service.url}/problems?sort=impact`);
  await settle(page);
  await menu();
  await page.getByRole("menuitem", { name: "All is well" }).click();
  await page.waitForURL(/\/services\?state=well&range=6h$/);
  await settle(page);
  await page.goto(`${service.url}/problems?sort=impact`);
  await settle(page);
  await save("All is well");
  assert.deepEqual(
    (await service.api("/views")).items.map((v) => [v.name, v.path, v.by]),
    [["All is well", "/problems?sort=impact", "local"]],
  );
  await menu();
  await page.getByRole("menuitem", { name: "Delete saved views" }).click();
  await page
    .getByRole("dialog")
    .getByRole("checkbox", { name: /All is well/ })
    .check();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.deepEqual((await service.api("/views")).items, []);
  await context.close();
});

test("an incident is saved as a page of its own, and copied as Markdown", async () => {
  const { page, context } = await visit(browser, service.url + pathOf(incident), {
    permissions: ["clipboard-read", "clipboard-write"],
  });
  const share = async (item) => {
    await page.getByRole("button", { name: "Share this incident" }).click();
    await page.getByRole("menuitem", { name: item }).click();
  };
  const download = page.waitForEvent("download");
  await share("Save as HTML page");
  const file = await download;
  assert.equal(file.suggestedFilename(), `incident-${incident.id}.html`);
  const html = readFileSync(await file.path(), "utf8");
  await share("Copy as Markdown");
  await page.getByText("Copied.").waitFor();
  const markdown = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(markdown, /^# Requests .*\n\n- \*\*Severity\*\*: (critical|major|minor)\. .*\n/);
  await context.close();

  const { page: saved, context: offline } = await open(browser, { javaScriptEnabled: true, offline: true });
  await saved.setContent(html);
  assert.equal(await saved.textContent("h1"), incident.sentence);
  assert.equal(await saved.locator("polyline").count(), 2, "no chart of the latency");
  for (const width of [360, 1440]) {
    await saved.setViewportSize({ width, height: 800 });
    assert.ok(await saved.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `too wide at ${width}`);
  }
  await offline.close();
});

test("incidents are filtered by severity and by service", async () => {
  const { page, context } = await visit(browser, service.url);
  const shown = () => page.locator(".incident").count();
  const all = (await service.api("/incidents")).items;
  await until(shown, all.length);
  await page.getByLabel("Severity").selectOption(incident.severity);
  await page.waitForURL(new RegExp(`severity=${incident.severity}`));
  await until(shown, all.filter((x) => x.severity === incident.severity).length);
  await page.goto(`${service.url}/?service=${incident.service}`);
  await settle(page);
  await until(shown, all.filter((x) => x.service === incident.service).length);
  await page.getByRole("button", { name: /All services/ }).click();
  await until(shown, all.length);
  await context.close();
});

test("who may only read is told so", async () => {
  const locked = await serve({ token: "viewer" });
  const { page, context } = await open(browser);
  await page.addInitScript((secret) => sessionStorage.setItem("sibyl.token", secret), locked.secret);
  await page.goto(locked.url + pathOf(incident));
  await page.getByRole("textbox", { name: "New comment" }).fill("x");
  await page.locator("#comments").getByRole("button", { name: "Comment", exact: true }).click();
  await page
    .getByRole("alert")
    .getByText(/role operator/)
    .waitFor();
  await context.close();
  await locked.stop();
});

test("an objective is previewed, added, changed and deleted, and gates are set", async () => {
  const { page, context } = await visit(browser, `${service.url}/objectives`);
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "New objective" }).click();
  await dialog.getByLabel("Entry").fill("no-such-service");
  await dialog.getByRole("button", { name: "Preview" }).click();
  await dialog.getByText(/^No requests of this entry are kept/).waitFor();
  assert.deepEqual(await violations(page), []);
  await dialog.getByRole("button", { name: "Save" }).click();
  const row = page.getByRole("row", { name: /no-such-service/ });
  await row.getByText(/by local/).waitFor();
  await row.getByRole("button", { name: "Edit no-such-service" }).click();
  await dialog.getByLabel("must take less than (ms)").fill("500");
  await dialog.getByRole("button", { name: "Save" }).click();
  await row.getByText(/500.ms/).waitFor();
  assert.deepEqual(await violations(page), []);
  await row.getByRole("button", { name: "Delete no-such-service" }).click();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await row.waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Change gates" }).click();
  await dialog.getByLabel("Growth of an operation (%)").fill("20");
  await dialog.getByRole("button", { name: "Preview" }).click();
  await dialog.getByText(/kept incidents would not have opened/).waitFor();
  assert.deepEqual(await violations(page), []);
  await dialog.getByRole("button", { name: "Save" }).click();
  await page.getByText("Growth of an operation (%): 20, set by local").waitFor();
  assert.equal((await service.api("/gates")).growth, 0.2);
  await context.close();
});
