// The demo is watched: its fault appears by itself on a page that is open, is located, and two clicks lead to the evidence and to a slow request.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { launch, open, settle } from "./harness.mjs";

const patience = 150_000; // ms, from the fault

test("the fault of the demo is found while the test watches", async (t) => {
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
    let said = "";
    const heard = (pattern) =>
      new Promise((done, failed) => {
        const look = () => pattern.exec(said) && done(pattern.exec(said));
        demo.stderr.on("data", (text) => ((said += text), look()));
        demo.once("exit", () => failed(new Error(`the demo ended: ${said}`)));
      });
    const [, url] = await heard(/Sibyl is at (http:\S+)/);
    const { page, wrongs } = await open(browser);
    await page.goto(url);
    await page.getByText("Learning normal behaviour").first().waitFor({ timeout: 30_000 });
    await heard(/a fault may be active now/);
    const began = Date.now();
    const first = page.locator("tr.changed a[data-problem]").first();
    await first.waitFor({ timeout: patience });
    t.diagnostic(
      `a problem is on the page ${Math.round((Date.now() - began) / 1000)} s after the fault: ${await first.textContent()}`,
    );
    await page.locator("tr.changed .state-located, tr.changed .state-explained").first().waitFor({ timeout: patience });
    t.diagnostic(`located after ${Math.round((Date.now() - began) / 1000)} s`);
    await first.click();
    await settle(page);
    await page.locator("#edges tbody tr").first().waitFor();
    await page.locator(".exemplars a").first().click();
    await page.locator(".span-critical").first().waitFor();
    assert.deepEqual(wrongs, []);
  } finally {
    await browser.close();
    demo.kill("SIGINT");
    await ended;
  }
});
