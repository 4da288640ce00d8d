import { expect, test } from "vitest";
import { type Annotation, annotationsByWindow, annotationsSince, describeAnnotation, marksOf } from "./annotations.ts";

const at = (second: number) => new Date(Date.UTC(2026, 0, 1, 12, 0, second)).toISOString();
const window = (from: number, to: number) => ({ from: at(from), to: at(to) });
const deploy = (second: number, service: string, version: string): Annotation => ({
  id: `${service} ${version}`,
  at: at(second),
  end: null,
  kind: "deploy",
  source: "detected",
  service,
  version,
  before: "1",
  text: "",
  title: `${service} ${version}, before 1`.trim(),
  link: "",
  tags: [],
});
const windows = [window(10, 20), window(20, 30), window(40, 50)];

test("annotationsSince filters by service and time, oldest first", () => {
  const all = [
    deploy(45, "shop", "3"),
    deploy(25, "bank", "2"),
    deploy(15, "mail", "2"),
    deploy(15, "", "2"),
    deploy(10, "shop", "2"),
    deploy(9, "shop", "1"),
  ];
  expect(annotationsSince(windows, all, new Set(["shop", "bank"])).map(describeAnnotation)).toEqual([
    "Deployed: shop 2, before 1",
    "Deployed: 2, before 1",
    "Deployed: bank 2, before 1",
    "Deployed: shop 3, before 1",
  ]);
  expect(annotationsSince([], all, new Set(["shop"]))).toEqual([]);
});

test("annotationsByWindow puts each annotation into one window", () => {
  const versions = (deploys: ReturnType<typeof deploy>[]) =>
    annotationsByWindow(windows, deploys).map((row) => row.map((d) => d.version).join(" "));
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
  expect(annotationsByWindow([], [deploy(10, "shop", "a")])).toEqual([]);
});

test("something that lasts is marked where it begins and where it ends", () => {
  const sale: Annotation = { ...deploy(10, "", ""), kind: "other", title: "sale", end: at(40) };
  expect(marksOf([sale])).toEqual([
    { at: Date.parse(at(10)), text: "event", title: "Event: sale", annotation: true },
    { at: Date.parse(at(40)), text: "end", title: "End of Event: sale" },
  ]);
});
