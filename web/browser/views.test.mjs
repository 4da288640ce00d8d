// Every view, in both themes, magnified twice (a window half as wide), and on a phone: it shows, axe has nothing against it, nothing fails, and nothing sticks out.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, open, places, serve, settle, violations } from "./world.mjs";

let service, browser, paths;
before(async () => {
  service = await serve({ args: ["--webhooks", `[{name: pager, url: "http://127.0.0.1:9/secret", events: [problem.opened, problem.located], allow-private: true}, {name: chat, url: "http://127.0.0.1:9/", format: slack, allow-private: true}]`] });
  browser = await launch();
  paths = await places(service);
});
after(async () => {
  await browser?.close();
  await service?.stop();
});

// sticksOut returns what makes a page wider than its window.
const sticksOut = (page) =>
  page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    return [...document.querySelectorAll("main *")].filter((e) => !e.closest(".scroll, .virtual") && e.getBoundingClientRect().right > width + 1).map((e) => e.outerHTML.slice(0, 150));
  });

for (const [theme, width, height] of [["light", 1280, 800], ["dark", 1280, 800], ["light", 640, 400], ["light", 390, 844], ["dark", 390, 844]]) {
  test(`all views, ${theme}, ${width} wide`, async () => {
    const { page, context, wrongs } = await open(browser, { theme, width, height });
    for (const [name, path] of Object.entries(paths)) {
      await page.goto(service.url + path);
      await settle(page);
      assert.ok((await page.textContent("main")).trim().length > 20, `${name} is blank`);
      assert.deepEqual(await violations(page), [], `axe: ${name}`);
      assert.deepEqual(await sticksOut(page), [], `${name} is too wide`);
    }
    assert.deepEqual(wrongs, []);
    await context.close();
  });
}

test("webhooks are listed, with what they did not take, but not all of their address", async () => {
  const { page, context, wrongs } = await open(browser);
  await page.goto(service.url + paths.service);
  const list = page.getByRole("group", { name: "Webhooks" });
  await list.getByText("pager").waitFor();
  assert.match(await list.textContent(), /http:\/\/127\.0\.0\.1:9\/….*problem\.opened, problem\.located.*everything.*as slack, not signed/);
  assert.doesNotMatch(await page.content(), /9\/secret/);
  assert.deepEqual(wrongs, []);
  await context.close();
});

test("dialogs and menus have nothing against them either", async () => {
  const { page, context, wrongs } = await open(browser, { theme: "dark" });
  await page.goto(service.url + paths.problem);
  await settle(page);
  await page.keyboard.press("?");
  assert.deepEqual(await violations(page), []);
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Mute …" }).click();
  assert.deepEqual(await violations(page), []);
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Theme, time, help" }).click();
  assert.deepEqual(await violations(page), []);
  await page.getByRole("menuitemcheckbox", { name: "Light", exact: true }).click();
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "light");
  await page.getByRole("button", { name: "Theme, time, help" }).click();
  await page.getByRole("menuitemcheckbox", { name: "UTC" }).click();
  assert.match(await page.textContent(".facts"), / UTC/);
  assert.deepEqual(wrongs, []);
  await context.close();
});

test("every chart has its table, CSV and PNG", async () => {
  const { page, context, wrongs } = await open(browser, { acceptDownloads: true });
  for (const [path, title] of [[paths.problem, "Latency over time"], [paths.problem, "Durations of the requests judged"], [paths.problem, "Critical path"], [paths.trace, "Waterfall"], [paths.tree, "Calling contexts"], [paths.compare, "Difference of critical paths"]]) {
    if (!page.url().endsWith(path)) await page.goto(service.url + path);
    await settle(page);
    const menu = page.getByRole("button", { name: `${title}: table and files` });
    for (const [item, ending, least] of [["Save as CSV", ".csv", 50], ["Save as PNG", ".png", 2000]]) {
      await menu.click();
      const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("menuitem", { name: item }).click()]);
      assert.ok(download.suggestedFilename().endsWith(ending));
      const chunks = [];
      for await (const chunk of await download.createReadStream()) chunks.push(chunk);
      assert.ok(Buffer.concat(chunks).length > least, `${title}: ${item} is empty`);
    }
    if (/Waterfall|contexts/.test(title)) continue; // they are tables
    await menu.click();
    await page.getByRole("menuitem", { name: "Show the table" }).click();
    await page.getByRole("region", { name: title }).locator("table").waitFor();
    if (title === "Latency over time") assert.match(await page.textContent("#latency table"), /2\.8\.0 \(2\.7\.0 before\)/); // what was deployed, where the heat map has its mark
  }
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(wrongs, []);
  await context.close();
});
