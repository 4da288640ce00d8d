// The demo: the incident of its fault appears on an open page without a reload and names the place of the fault; two
// clicks lead to a slow request.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { launch, open, settle } from "./harness.mjs";

const timeout = 300_000; // ms

test("the fault of the demo appears live and is located", async (t) => {
  const demo = spawn(
    process.env.SIBYLBENCH,
    ["demo", "--fault", "lock", "--seed", "3", "--learning", "15s", "--headless"],
    {
      stdio: ["ignore", "ignore", "pipe"],
    },
  );
  const ended = new Promise((done) => demo.once("exit", done));
  const browser = await launch();
  try {
    let output = "";
    demo.stderr.on("data", (text) => (output += text));
    const printed = (pattern) =>
      new Promise((done, failed) => {
        const match = () => pattern.exec(output) && done(pattern.exec(output));
        match(); // it may have been printed before
        demo.stderr.on("data", match);
        demo.once("exit", () => failed(new Error(`the demo ended: ${output}`)));
        setTimeout(() => failed(new Error(`the demo did not print ${pattern}: ${output}`)), timeout).unref();
      });
    const [, url] = await printed(/Open (http:\S+):/);
    const { page, issues } = await open(browser);
    await page.goto(`${url}/incidents`);
    await printed(/A fault was injected/);
    const began = Date.now();
    const first = page.locator("a[data-incident]").first();
    await first.waitFor({ timeout });
    t.diagnostic(
      `an incident appeared ${Math.round((Date.now() - began) / 1000)} s after the fault: ${await first.textContent()}`,
    );
    await first.filter({ hasText: "reviews cache.touch" }).waitFor({ timeout });
    t.diagnostic(`located after ${Math.round((Date.now() - began) / 1000)} s`);
    await first.click();
    await settle(page);
    await page.locator("#exemplars a").first().click();
    await page.locator(".span-critical").first().waitFor();
    assert.deepEqual(issues, []);
  } finally {
    await browser.close();
    demo.kill("SIGINT");
    await ended;
  }
});
