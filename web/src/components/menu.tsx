import * as Dropdown from "@radix-ui/react-dropdown-menu";
import { useState } from "react";

export type Item = { text: string; act: () => void; checked?: boolean };

// Menu is a button that opens a list of things to do. The list is part of the page's content, which is looked up when it opens: before, it may not be
// there yet.
export function Menu({ label, icon, items }: { label: string; icon: string; items: (Item | null)[] }) {
  const [open, setOpen] = useState(false);
  return (
    <Dropdown.Root modal={false} open={open} onOpenChange={setOpen}>
      <Dropdown.Trigger className={icon.length > 1 ? "" : "quiet"} aria-label={label} title={label}>
        {icon}
      </Dropdown.Trigger>
      <Dropdown.Portal container={document.querySelector("main")}>
        <Dropdown.Content className="menu" align="end" sideOffset={4} collisionPadding={8}>
          {items.map((item, i) =>
            item === null ? (
              <Dropdown.Separator key={i} className="menu-line" />
            ) : item.checked === undefined ? (
              <Dropdown.Item key={item.text} onSelect={item.act}>
                {item.text}
              </Dropdown.Item>
            ) : (
              <Dropdown.CheckboxItem key={item.text} checked={item.checked} onSelect={item.act}>
                <span aria-hidden="true">{item.checked ? "✓" : ""}</span> {item.text}
              </Dropdown.CheckboxItem>
            ),
          )}
        </Dropdown.Content>
      </Dropdown.Portal>
    </Dropdown.Root>
  );
}
