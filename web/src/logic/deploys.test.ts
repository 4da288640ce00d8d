import { expect, test } from "vitest";
import { deploysByWindow, describeDeploy, deploysSince } from "./deploys.ts";

const at = (second: number) => new Date(Date.UTC(2026, 0, 1, 12, 0, second)).toISOString();
const window = (from: number, to: number) => ({ from: at(from), to: at(to) });
const deploy = (second: number, service: string, version: string) => ({
  id: `${service} ${version}`,
  at: at(second),
  service,
  version,
  before: "1",
});
const windows = [window(10, 20), window(20, 30), window(40, 50)];

test("deploysSince filters by service and time, oldest first", () => {
  const all = [
    deploy(45, "shop", "3"),
    deploy(25, "bank", "2"),
    deploy(15, "mail", "2"),
    deploy(10, "shop", "2"),
    deploy(9, "shop", "1"),
  ];
  expect(deploysSince(windows, all, new Set(["shop", "bank"])).map(describeDeploy)).toEqual([
    "shop 2 (1 before)",
    "bank 2 (1 before)",
    "shop 3 (1 before)",
  ]);
  expect(deploysSince([], all, new Set(["shop"]))).toEqual([]);
});

test("deploysByWindow puts each deploy into one window", () => {
  const versions = (deploys: ReturnType<typeof deploy>[]) =>
    deploysByWindow(windows, deploys).map((row) => row.map((d) => d.version).join(" "));
  expect(
    versions([
      deploy(10, "shop", "a"),
      deploy(20, "shop", "b"),
      deploy(35, "shop", "c"),
      deploy(49, "shop", "d"),
      deploy(50, "shop", "e"),
    ]),
  ).toEqual(["a", "b", "c d e"]);
  expect(versions([])).toEqual(["", "", ""]);
  expect(deploysByWindow([], [deploy(10, "shop", "a")])).toEqual([]);
});
