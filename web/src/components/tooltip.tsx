// Tooltip shows the texts of elements with a title or, in charts, with data-tip: under the pointer, after a touch, and
// for the focus of the keyboard. One layer serves the whole page. The title is taken away while its text is shown, so
// that the browser does not show it as well.
import { useEffect, useRef, useState } from "react";

type Shown = { text: string; x: number; below: number; above: number };

const distance = 10; // px, from the pointer or the element
const edge = 6; // px, to the window
const wide = 120; // px; under wider elements the tooltip follows the pointer

const withText = (target: EventTarget | null) =>
  target instanceof Element ? target.closest<HTMLElement | SVGElement>("[data-tip], [title]") : null;

const isActive = (e: Element) => e.closest("a[href], button:not(.term), input, select, summary") !== null;

// isCovered reports whether a menu is open that does not contain the element: tooltips would lie over the menu.
function isCovered(e: Element): boolean {
  const menu = document.querySelector("[role=menu]");
  return menu !== null && !menu.contains(e);
}

// placeOf returns the place of the tooltip of an element: at the pointer, if the element is a shape or wide.
function placeOf(e: Element, at?: { x: number; y: number }): Omit<Shown, "text"> {
  const box = e.getBoundingClientRect();
  if (at && (e instanceof SVGElement || box.width > wide))
    return { x: at.x, below: at.y + 2 * distance, above: at.y - distance };
  return { x: box.left + box.width / 2, below: box.bottom + distance / 2, above: box.top - distance / 2 };
}

export function Tooltip() {
  const [shown, setShown] = useState<Shown>();
  const layer = useRef<HTMLDivElement>(null);
  useEffect(() => {
    let of: HTMLElement | SVGElement | null = null;
    let taken: string | null = null; // title of the element
    const hide = () => {
      if (of && taken !== null) of.setAttribute("title", taken);
      of?.removeAttribute("aria-describedby");
      of = taken = null;
      setShown(undefined);
    };
    const show = (e: HTMLElement | SVGElement, at?: { x: number; y: number }) => {
      if (e === of) {
        setShown((before) => before && { ...before, ...placeOf(e, at) });
        return;
      }
      hide();
      if (isCovered(e)) return;
      const title = e.getAttribute("title");
      const text = title ?? e.getAttribute("data-tip");
      if (!text) return;
      of = e;
      if (title !== null) {
        taken = title;
        e.removeAttribute("title");
      }
      e.setAttribute("aria-describedby", "tooltip");
      setShown({ text, ...placeOf(e, at) });
    };
    const point = (event: PointerEvent) => {
      if (event.pointerType === "touch") return;
      const e = withText(event.target) ?? (of?.contains(event.target as Node) ? of : null);
      if (e) show(e, { x: event.clientX, y: event.clientY });
      else if (of && !of.matches(":focus-visible")) hide();
    };
    const press = (event: PointerEvent) => event.pointerType !== "touch" && hide();
    const touch = (event: PointerEvent) => {
      if (event.pointerType !== "touch") return;
      const e = withText(event.target);
      const again = e === of;
      hide();
      if (e && !again && !isActive(e)) show(e, { x: event.clientX, y: event.clientY });
    };
    const focus = (event: FocusEvent) => {
      const e = withText(event.target);
      if (e?.matches(":focus-visible")) show(e);
    };
    // A touch shows the next element before the focus leaves the last one.
    const blur = (event: FocusEvent) => of === withText(event.target) && hide();
    const key = (event: KeyboardEvent) => event.key === "Escape" && hide();
    const leave = (event: PointerEvent) => event.pointerType !== "touch" && hide();
    document.addEventListener("pointermove", point);
    document.addEventListener("pointerdown", press);
    document.addEventListener("pointerup", touch);
    document.addEventListener("pointerleave", leave);
    document.addEventListener("focusin", focus);
    document.addEventListener("focusout", blur);
    document.addEventListener("keydown", key);
    document.addEventListener("scroll", hide, true);
    return () => {
      hide();
      document.removeEventListener("pointermove", point);
      document.removeEventListener("pointerdown", press);
      document.removeEventListener("pointerup", touch);
      document.removeEventListener("pointerleave", leave);
      document.removeEventListener("focusin", focus);
      document.removeEventListener("focusout", blur);
      document.removeEventListener("keydown", key);
      document.removeEventListener("scroll", hide, true);
    };
  }, []);
  useEffect(() => {
    const e = layer.current;
    if (!e || !shown) return;
    const { width, height } = e.getBoundingClientRect();
    const left = Math.max(edge, Math.min(innerWidth - width - edge, shown.x - width / 2));
    const fits = shown.below + height + edge <= innerHeight;
    e.style.left = `${left}px`;
    e.style.top = `${fits ? shown.below : Math.max(edge, shown.above - height)}px`;
  }, [shown]);
  return (
    <div ref={layer} id="tooltip" className="tooltip" role="tooltip" hidden={!shown}>
      {shown?.text}
    </div>
  );
}

// Term is a word with an explanation, which pointer, touch and keyboard show.
export const Term = ({ children, title }: { children: string; title: string }) => (
  <button type="button" className="term" data-tip={title}>
    {children}
  </button>
);
