// Screenshots of every view, and of the report in a terminal, for the documentation: make screens.
import { writeFileSync } from "node:fs";
import { launch, open, viewPaths, serve, settle } from "./harness.mjs";
import { terminalPicture } from "./terminal.mjs";

const folder = new URL("../../docs/images/", import.meta.url).pathname;
const root = new URL("../..", import.meta.url).pathname;
const report = ["analyze", "testdata/shop.otlp.jsonl.gz", "--top", "1"];
writeFileSync(
  `${folder}report.svg`,
  terminalPicture({
    program: process.env.SIBYL,
    args: report,
    cwd: root,
    command: `sibyl ${report.join(" ")}`,
    label: "The report of sibyl analyze in a terminal",
  }),
);

const service = await serve();
const browser = await launch();

const tall = { height: 980 }; // includes the critical path

// picture saves a screenshot of a view, or of the part that begins at an element.
async function picture(name, path, { from, ...options } = {}) {
  const { page, context } = await open(browser, { timezoneId: "UTC", ...options });
  await page.goto(service.url + path);
  await settle(page);
  if (from) await page.locator(from).evaluate((e) => e.scrollIntoView());
  await page.screenshot({ path: `${folder}ui-${name}.png` });
  await context.close();
}

// Chronic problems appear when an epoch ends.
for (let i = 0; i < 60 && (await service.api("/problems")).items.length < 10; i++)
  await new Promise((done) => setTimeout(done, 500));
const { items } = await service.api("/problems");
const details = await Promise.all(items.map((p) => service.api(`/problems/${p.id}`)));
const paths = await viewPaths(service, details.find((d) => d.contrasts.length > 0)?.problem);
for (const name of [
  "problems",
  "problem",
  "trace",
  "traces",
  "tree",
  "compare",
  "tracepoints",
  "service",
  "services",
  "map",
  "status",
])
  await picture(name, paths[name], name === "problem" ? tall : {});
await picture("incidents", paths.incidents);
await picture("incident", paths.incident, tall);
await picture("incidents-phone", paths.incidents, { width: 390, height: 800, theme: "dark" });
await picture("problem-dark", paths.problem, { theme: "dark", ...tall });
await picture("explanations", paths.problem, { from: "#explanations", height: 640 });
await picture("explanations-phone", paths.problem, { from: "#explanations", width: 390, height: 800, theme: "dark" });
await picture("problems-phone", paths.problems, { width: 390, height: 800, theme: "dark" });
await browser.close();
await service.stop();
