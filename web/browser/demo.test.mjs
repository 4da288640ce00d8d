// The demo: its fault appears on an open page without a reload and is located; two clicks lead to a slow request.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { launch, open, settle } from "./harness.mjs";

const timeout = 150_000; // ms

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
    const printed = (pattern) =>
      new Promise((done, failed) => {
        const match = () => pattern.exec(output) && done(pattern.exec(output));
        demo.stderr.on("data", (text) => ((output += text), match()));
        demo.once("exit", () => failed(new Error(`the demo ended: ${output}`)));
      });
    const [, url] = await printed(/Sibyl is at (http:\S+)/);
    const { page, issues } = await open(browser);
    await page.goto(`${url}/problems`);
    await page.getByText("Learning normal behaviour").first().waitFor({ timeout: 30_000 });
    await printed(/a fault may be active now/);
    const began = Date.now();
    const first = page.locator("tr.changed a[data-problem]").first();
    await first.waitFor({ timeout });
    t.diagnostic(
      `a problem appeared ${Math.round((Date.now() - began) / 1000)} s after the fault: ${await first.textContent()}`,
    );
    await page.locator("tr.changed .state-located, tr.changed .state-explained").first().waitFor({ timeout });
    t.diagnostic(`located after ${Math.round((Date.now() - began) / 1000)} s`);
    await first.click();
    await settle(page);
    await page.locator("#edges tbody tr").first().waitFor();
    await page.locator(".exemplars a").first().click();
    await page.locator(".span-critical").first().waitFor();
    assert.deepEqual(issues, []);
  } finally {
    await browser.close();
    demo.kill("SIGINT");
    await ended;
  }
});
