import { type ReactNode, useLayoutEffect, useRef, useState } from "react";
import { Link, useLocation } from "wouter";
import { Menu } from "./menu.tsx";

export type View = { path: string; name: string; current: boolean; badge?: ReactNode };

// Navigation links to views. The tools, and views for which the line has no room, are in a menu at its end.
export function Navigation({ views, tools }: { views: View[]; tools: View[] }) {
  const [line, room] = useRoom(views.length);
  const [, go] = useLocation();
  const rest = [...views.slice(room), ...tools];
  const current = rest.find((v) => v.current);
  return (
    <nav aria-label="Views">
      <div className="views" ref={line}>
        {views.map(({ path, name, current, badge }, i) => (
          <Link
            key={path}
            href={path}
            aria-current={current ? "page" : undefined}
            style={i < room ? {} : { visibility: "hidden" }}
          >
            {name}
            {badge}
          </Link>
        ))}
      </div>
      <Menu
        label={current ? `${current.name}, and more views` : "More views"}
        icon={`${current?.name ?? "More"} ▾`}
        className={current ? "rest current" : "rest"}
        items={rest.map((v) => ({ text: v.name, act: () => go(v.path) }))}
      />
    </nav>
  );
}

// useRoom returns a ref of an element, and the number of its n children that fit into its first line. The element clips
// the lines below, which keep the others measurable.
function useRoom(n: number) {
  const element = useRef<HTMLDivElement>(null);
  const [room, setRoom] = useState(n);
  useLayoutEffect(() => {
    const children = [...element.current!.children] as HTMLElement[];
    const measure = () => {
      const wrapped = children.findIndex((e) => e.offsetTop > children[0]!.offsetTop);
      setRoom(wrapped < 0 ? n : wrapped);
    };
    const observer = new ResizeObserver(measure);
    for (const e of [element.current!, ...children]) observer.observe(e);
    measure();
    return () => observer.disconnect();
  }, [n]);
  return [element, room] as const;
}
