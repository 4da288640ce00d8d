// Export of charts as PNG, from a canvas or an SVG.

const copiedStyles = [
  "fill",
  "stroke",
  "stroke-width",
  "font-size",
  "font-family",
  "font-weight",
  "opacity",
  "text-anchor",
] as const;

// invalidInXML matches control characters and unpaired surrogates, which names may contain and XML may not.
const invalidInXML = /[^\t\n\r\u{20}-\u{d7ff}\u{e000}-\u{fffd}\u{10000}-\u{10ffff}]/gu;

// chartImage draws the first canvas or SVG of an element on the page's background.
export async function chartImage(within: HTMLElement): Promise<Blob> {
  const source = within.querySelector("canvas") ?? within.querySelector<SVGSVGElement>("svg.chart");
  if (!source) throw new Error("there is no chart to draw");
  const box = source.getBoundingClientRect();
  const { canvas, context } = createSheet(box.width, box.height);
  context.drawImage(
    source instanceof HTMLCanvasElement ? source : await image(source, box),
    0,
    0,
    box.width,
    box.height,
  );
  return toBlob(canvas);
}

const scale = 2;

// createSheet returns a canvas in the page's background colour, and its context, scaled to CSS pixels.
function createSheet(width: number, height: number) {
  const canvas = document.createElement("canvas");
  canvas.width = width * scale;
  canvas.height = height * scale;
  const context = canvas.getContext("2d")!;
  context.scale(scale, scale);
  context.fillStyle = colour("--back");
  context.fillRect(0, 0, width, height);
  return { canvas, context };
}

const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name);

function toBlob(canvas: HTMLCanvasElement): Promise<Blob> {
  return new Promise((done, failed) =>
    canvas.toBlob((png) => (png ? done(png) : failed(new Error("the browser drew nothing"))), "image/png"),
  );
}

// Line is a row of an outline: depth, text, the cells of its columns, and whether it is emphasized.
export type Line = { depth: number; text: string; cells: string[]; strong: boolean };

const maxLines = 500; // browsers limit the height of a canvas
const lineHeight = 20;
const indent = 14;
const textWidth = 640;
const cellWidth = 100;
const margin = 16;

// outlineImage draws indented rows of text, at most maxLines; the last row counts the omitted ones.
export function outlineImage(head: string[], lines: Line[]): Promise<Blob> {
  const shown = lines.slice(0, maxLines);
  const last = lines.length > shown.length ? [`… and ${lines.length - shown.length} more`] : [];
  const deepest = Math.max(0, ...shown.map((l) => l.depth)) * indent;
  const cells = head.length - 1;
  const width = 2 * margin + deepest + textWidth + cells * cellWidth;
  const { canvas, context } = createSheet(width, 2 * margin + (shown.length + 1 + last.length) * lineHeight);
  const right = width - margin - (cells - 1) * cellWidth;
  const write = (row: number, x: number, texts: string[], strong: boolean, ink: string) => {
    const y = margin + row * lineHeight + lineHeight / 2;
    context.fillStyle = colour(ink);
    context.font = `${strong ? "600 " : ""}13px system-ui, sans-serif`;
    context.textBaseline = "middle";
    texts.forEach((text, i) => {
      context.textAlign = i === 0 ? "left" : "right";
      context.fillText(
        text,
        i === 0 ? x : right + (i - 1) * cellWidth,
        y,
        i === 0 ? right - cellWidth - x : cellWidth - 8,
      );
    });
  };
  write(0, margin, head, true, "--dim");
  shown.forEach((l, i) => write(i + 1, margin + l.depth * indent, [l.text, ...l.cells], l.strong, "--text"));
  write(shown.length + 1, margin, last, false, "--dim");
  return toBlob(canvas);
}

function image(svg: SVGSVGElement, box: DOMRect): Promise<HTMLImageElement> {
  const copy = svg.cloneNode(true) as SVGSVGElement;
  const from = [svg, ...svg.querySelectorAll<SVGElement>("*")];
  [copy, ...copy.querySelectorAll<SVGElement>("*")].forEach((element, i) => {
    const style = getComputedStyle(from[i]!);
    for (const name of copiedStyles) element.style.setProperty(name, style.getPropertyValue(name));
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", String(box.width));
  copy.setAttribute("height", String(box.height));
  const drawn = new Image();
  const text = new XMLSerializer().serializeToString(copy).replaceAll(invalidInXML, "\ufffd");
  drawn.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  return drawn.decode().then(() => drawn);
}
