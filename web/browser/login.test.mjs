// People log in at an identity provider: the certified provider for Node, whose pages and rules are real.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import Provider from "oidc-provider";
import { launch, open, serve, settle, until, violations } from "./harness.mjs";

const client = { client_id: "sibyl", client_secret: "a-secret-of-the-browser-tests" };

let browser, service, provider;

// identify starts a provider at a port, or at any port. Everybody whose name is a group is in it, with any password.
async function identify(sites, port = 0) {
  const server = createServer();
  await new Promise((done) => server.listen(port, "127.0.0.1", done));
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const log = console.warn;
  console.warn = () => {}; // about the keys of development
  const oidc = new Provider(issuer, {
    clients: [
      {
        ...client,
        redirect_uris: sites.map((site) => `${site}/login/callback`),
        post_logout_redirect_uris: sites.map((site) => `${site}/`),
      },
    ],
    claims: { openid: ["sub"], email: ["email", "email_verified"], groups: ["groups"] },
    findAccount: (_, name) => ({
      accountId: name,
      claims: () => ({ sub: name, email: `${name}@example.com`, email_verified: true, groups: ["all", name] }),
    }),
  });
  console.warn = log;
  server.on("request", oidc.callback());
  return { issuer, stop: () => new Promise((done) => (server.closeAllConnections(), server.close(done))) };
}

// found waits until the service has found the provider, which it looks for every five seconds at most.
const found = () =>
  until(async () => (await fetch(`${service.url}/login`, { redirect: "manual" })).status, 302, "status of /login");

before(async () => {
  browser = await launch();
  const placeholder = await identify([]);
  await placeholder.stop(); // so that Sibyl starts while the provider is down
  service = await serve({
    base: "/sibyl",
    empty: true,
    token: "admin",
    args: [
      ...["--auth-oidc-issuer", placeholder.issuer, "--auth-oidc-client-id", client.client_id],
      ...["--auth-oidc-scopes", "openid,email,groups", "--auth-oidc-roles-operator", "ops"],
      ...["--auth-oidc-roles-viewer", "staff"],
    ],
    files: { "--auth-oidc-client-secret-file": client.client_secret },
  });
  provider = await identify([service.url], Number(new URL(placeholder.issuer).port));
  await found();
});
after(async () => {
  await browser?.close();
  await service?.stop();
  await provider?.stop();
});

const start = (page) => page.getByRole("button", { name: "Log in", exact: true });

// logIn logs in at the provider, whose page is open.
async function logIn(page, name) {
  await page.getByPlaceholder("Enter any login").fill(name);
  await page.getByPlaceholder("and password").fill("any");
  await page.getByRole("button", { name: "Sign-in" }).click();
  await page.getByRole("button", { name: "Continue" }).click();
}

// enter opens a page. The provider's pages ask for a font of another origin, which is no issue of ours.
async function enter() {
  const all = await open(browser);
  await all.context.route("https://fonts.googleapis.com/**", (route) => route.abort());
  const close = async () => {
    const ours = all.issues.filter((issue) => !issue.includes("fonts.googleapis.com"));
    all.issues.splice(0, all.issues.length, ...ours);
    await all.context.close();
  };
  return { ...all, close };
}

// session returns the names of the cookies of the service.
const session = async (context) =>
  (await context.cookies()).map((c) => c.name).filter((name) => name.startsWith("sibyl-"));

test("log in, return to the page, change something, log out from the provider, too", async () => {
  const { page, context, close } = await enter();
  await page.goto(`${service.url}/status?a=b#c`);
  await start(page).waitFor();
  assert.deepEqual(await violations(page), []);
  await start(page).click();
  await logIn(page, "ops");
  await page.getByText("Live", { exact: true }).waitFor();
  assert.equal(page.url(), `${service.url}/status?a=b#c`);
  await page.reload();
  await settle(page);
  const saved = await page.evaluate(async () => {
    const headers = { "Content-Type": "application/json" };
    const body = JSON.stringify({ name: "mine", path: "/status" });
    return (await fetch("api/v1/views", { method: "POST", headers, body })).json();
  });
  assert.equal(saved.by, "ops@example.com");
  assert.equal((await session(context)).length, 1);
  await page.getByRole("button", { name: "Theme, time, help" }).click();
  await page.getByRole("menuitem", { name: "Log out ops@example.com (operator)" }).click();
  await page.getByRole("button", { name: "Yes, sign me out" }).click();
  await start(page).waitFor();
  assert.deepEqual(await session(context), []);
  await start(page).click();
  await page.getByPlaceholder("Enter any login").waitFor(); // the provider asks again
  await close();
});

test("without a role: the page says why, and another person can log in", async () => {
  const { page, context, close } = await enter();
  await page.goto(service.url);
  await start(page).click();
  await logIn(page, "guest");
  await page.getByRole("heading", { name: "You have no role in Sibyl" }).waitFor();
  await page.getByText("guest@example.com, but the claim groups").waitFor();
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(await session(context), []);
  await page.getByRole("link", { name: "Log in as someone else" }).click();
  await logIn(page, "staff");
  await page.getByText("Live", { exact: true }).waitFor();
  await close();
});

test("while the provider is down, sessions and tokens work, and log-in says so", async () => {
  const { page, close } = await enter();
  await page.goto(service.url);
  await start(page).click();
  await logIn(page, "staff");
  await page.getByText("Live", { exact: true }).waitFor();
  const port = Number(new URL(provider.issuer).port);
  await settle(page);
  await page.goto("about:blank"); // it would miss the service
  await provider.stop();
  await service.restart();
  await page.goto(service.url);
  await page.getByText("Live", { exact: true }).waitFor();
  const other = await enter();
  await other.page.goto(service.url);
  await start(other.page).click();
  await other.page.getByRole("heading", { name: "Log-in is not possible now" }).waitFor();
  assert.deepEqual(await violations(other.page), []);
  await other.page.goto(service.url);
  await other.page.getByLabel("Token").fill(service.secret);
  await other.page.getByRole("button", { name: "Use the token" }).click();
  await other.page.getByText("Live", { exact: true }).waitFor();
  await other.close();
  provider = await identify([service.url], port);
  await found();
  await close();
});
