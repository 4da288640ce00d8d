// Charts as PNG: of a canvas what it shows, of an SVG what it looks like with the styles of the page.

const painted = ["fill", "stroke", "stroke-width", "font-size", "font-family", "font-weight", "opacity", "text-anchor"] as const;

// noXML is what names may hold and XML may not: control characters and halves of surrogate pairs.
const noXML = /[^\t\n\r\u{20}-\u{d7ff}\u{e000}-\u{fffd}\u{10000}-\u{10ffff}]/gu;

// picture draws the first canvas or SVG in an element, on the page's background.
export async function picture(within: HTMLElement): Promise<Blob> {
  const source = within.querySelector("canvas") ?? within.querySelector<SVGSVGElement>("svg.chart");
  if (!source) throw new Error("there is no chart to draw");
  const box = source.getBoundingClientRect();
  const scale = 2;
  const canvas = document.createElement("canvas");
  canvas.width = box.width * scale;
  canvas.height = box.height * scale;
  const context = canvas.getContext("2d")!;
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--back");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(source instanceof HTMLCanvasElement ? source : await image(source, box), 0, 0, canvas.width, canvas.height);
  return new Promise((done, failed) => canvas.toBlob((png) => (png ? done(png) : failed(new Error("the browser drew nothing"))), "image/png"));
}

function image(svg: SVGSVGElement, box: DOMRect): Promise<HTMLImageElement> {
  const copy = svg.cloneNode(true) as SVGSVGElement;
  const from = [svg, ...svg.querySelectorAll<SVGElement>("*")];
  [copy, ...copy.querySelectorAll<SVGElement>("*")].forEach((element, i) => {
    const style = getComputedStyle(from[i]!);
    for (const name of painted) element.style.setProperty(name, style.getPropertyValue(name));
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", String(box.width));
  copy.setAttribute("height", String(box.height));
  const drawn = new Image();
  const text = new XMLSerializer().serializeToString(copy).replaceAll(noXML, "\ufffd");
  drawn.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  return drawn.decode().then(() => drawn);
}
