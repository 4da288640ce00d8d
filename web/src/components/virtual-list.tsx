import { type CSSProperties, type ReactNode, useEffect, useRef, useState } from "react";

// Focus is a row to scroll into sight when its id is another, and where it is; below 0: nowhere. When rows above it come and go it is not followed.
type Focus = { id: string; at: number };

// Virtual is a list of rows of one height of which only those in sight exist. head stays on top.
export function VirtualList(props: {
  count: number;
  height: number;
  focus: Focus;
  label: string;
  head?: ReactNode;
  row: (i: number) => ReactNode;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [sight, setSight] = useState({ top: 0, height: 600 });
  useEffect(() => {
    const element = box.current!;
    const look = () => setSight({ top: element.scrollTop, height: element.clientHeight });
    const watch = new ResizeObserver(look);
    watch.observe(element);
    element.addEventListener("scroll", look, { passive: true });
    return () => {
      watch.disconnect();
      element.removeEventListener("scroll", look);
    };
  }, []);
  const { focus, height } = props;
  const there = focus.at >= 0;
  useEffect(() => {
    const element = box.current;
    if (!there || !element) return;
    const top = focus.at * height;
    if (top < element.scrollTop + height) element.scrollTop = Math.max(0, top - 3 * height);
    else if (top + 3 * height > element.scrollTop + element.clientHeight)
      element.scrollTop = top - element.clientHeight + 6 * height;
  }, [focus.id, there, height]);
  const beyond = 8; // rows out of sight that exist, so that scrolling shows no blank
  const first = Math.max(0, Math.floor(sight.top / height) - beyond);
  const last = Math.min(props.count, Math.ceil((sight.top + sight.height) / height) + beyond);
  const rows = [];
  for (let i = first; i < last; i++) rows.push(props.row(i));
  return (
    <div className="virtual" ref={box} tabIndex={0} role="group" aria-label={props.label}>
      {props.head}
      <div style={{ height: props.count * height, position: "relative" }}>
        <div style={{ transform: `translateY(${first * height}px)` }}>{rows}</div>
      </div>
    </div>
  );
}

// depth indents the name of a row.
export const indent = (n: number) => ({ "--depth": n }) as CSSProperties;
